"""Frames with hostile headers: a program lets them pass and changes only what it may change."""

from __future__ import annotations

import pytest

from tests.support.fuzzing.keep_alives import KeepAlivesTarget
from tests.support.fuzzing.packets import PacketsTarget
from tests.support.fuzzing.short import assert_withstands

pytestmark = pytest.mark.beside_others


def test_no_frame_is_changed_in_a_wrong_way() -> None:
    assert_withstands("packets", PacketsTarget(), 20_000, accepted=(0.2, 0.9))


def test_a_keep_alive_is_right_whatever_its_segment_contains() -> None:
    assert_withstands("keep_alives", KeepAlivesTarget(), 5_000, accepted=(0.1, 0.9))
