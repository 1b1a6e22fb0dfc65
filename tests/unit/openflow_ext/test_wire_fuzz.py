"""The codec on mangled bytes and on values that cannot be sent: tests/support/fuzzing/codec.py."""

from __future__ import annotations

from tests.support.fuzzing.codec import CodecTarget
from tests.support.fuzzing.short import assert_withstands


def test_odd_input_raises_only_wire_error_and_does_not_leak_memory() -> None:
    assert_withstands("codec", CodecTarget(), 40_000, accepted=(0.2, 0.8))
