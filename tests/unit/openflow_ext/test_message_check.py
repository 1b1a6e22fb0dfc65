"""Lengths are checked before an engine parses: right messages pass, wrong ones are refused, nothing hangs."""

from __future__ import annotations

import pytest

from openflow_ext import message_check, registry, wire
from tests.support.fuzzing.engines import EnginesTarget
from tests.support.fuzzing.short import assert_withstands
from tests.support.openflow import switch_messages as golden
from tests.support.openflow.installed_engine import Engine
from tests.support.openflow.switch_messages import MESSAGES, message, multipart, sized

BUNDLE_REPLY_13 = bytes.fromhex("4f4e4600") + (2300).to_bytes(4, "big")
"""Ryu lacks a class that its parser of this message needs."""


def test_right_messages_pass_and_the_engine_parses_them(eng: Engine) -> None:
    for data in MESSAGES[eng.version]:
        message_check.check(data)
        if eng.name == "os_ken" or data[8:16] != BUNDLE_REPLY_13:
            assert eng.receive(data) is not None, data.hex()
    assert registry.malformed.total() == 0


def hello(*elements: bytes) -> bytes:
    return message(wire.OFP13, 0, b"".join(elements))


def flow(*instructions: bytes) -> bytes:
    return multipart(wire.OFP13, 1, golden._flow_13(*instructions))


ENDLESS = {
    "a HELLO element of length 0": hello(b"\0\2\0\0"),
    "padding behind a HELLO element": hello(b"\0\1\0\x0c\0\0\0\x50\0\0\0\0", bytes(4)),
    "a flow entry of length 0": multipart(4, 1, bytes(2) + golden._flow_13()[2:]),
    "an instruction of length 0": flow(b"\0\4\0\0\0\0\0\0"),
    "bytes behind an instruction of a fixed size": flow(
        golden.instruction(1, bytes(4) + b"\0\4\0\0\0\0\0\0")
    ),
    "a set-field action of length 0": flow(golden.instruction(4, bytes(4) + b"\0\x19\0\0" + bytes(12))),
    "bytes behind an action of a fixed size": flow(
        golden.instruction(4, bytes(4) + golden.action(22, bytes(4) + b"\0\x19\0\0" + bytes(4)))
    ),
    "an action of length 0 inside an action": flow(
        golden.instruction(4, bytes(4) + golden.nicira(35, bytes(14) + b"\0\x19\0\0\x80\0\x18\4" + bytes(4)))
    ),
    "bytes behind a property of CONTROLLER2 of a fixed size": flow(
        golden.instruction(
            4, bytes(4) + golden.nicira(37, bytes(6) + b"\0\0\0\x10" + bytes(4) + b"\0\3\0\0" + bytes(4))
        )
    ),
    "an instruction id of length 0": multipart(
        4, 12, sized(bytes(64), golden.padded(b"\0\0\0\x0c" + b"\0\1\0\4\0\4\0\0"))
    ),
    "a queue of length 0": message(4, 23, bytes(8) + bytes(16)),
    "a queue property of an unknown type": message(
        4, 23, bytes(8) + sized(bytes(16), b"\0\7\0\x10" + bytes(12), at=8)
    ),
    "a property of length 0": message(6, 30, bytes(16) + b"\0\1\0\0\0\0\0\0"),
    "a group of length 0": multipart(6, 6, bytes(40)),
    "a copy-field action": multipart(
        6,
        1,
        sized(
            bytes(24),
            golden.match()
            + golden.stats()
            + golden.instruction(
                4, bytes(4) + golden.action(28, bytes(8) + b"\0\x19\0\0\x80\0\x18\4" + bytes(4))
            ),
        ),
    ),
}


@pytest.mark.parametrize("data", ENDLESS.values(), ids=ENDLESS)
def test_a_message_on_which_an_engine_loops_for_ever_is_refused(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        message_check.check(data)


def test_a_list_of_many_properties_is_refused() -> None:
    """Ryu keeps a copy of the rest of the message for each of them: together half a gigabyte."""
    with pytest.raises(wire.BadLength, match="more than 128 times"):
        message_check.check(message(6, 30, bytes(16) + b"\x12\x34\0\4\0\0\0\0" * 8000))


@pytest.mark.parametrize("of_type", [5, 13, 14, 18, 24, 99])
@pytest.mark.parametrize("version", [wire.OFP13, wire.OFP15])
def test_messages_that_a_switch_does_not_send_are_refused(version: int, of_type: int) -> None:
    with pytest.raises(wire.UnknownType):
        message_check.check(message(version, of_type, bytes(64)))


@pytest.mark.parametrize("version", [0, 1, 2, 3, 5, 7, 255])
def test_of_other_versions_only_hello_error_and_echo_pass(version: int) -> None:
    for of_type in (0, 1, 2, 3):
        message_check.check(message(version, of_type, bytes(4) if of_type == 1 else b""))
    with pytest.raises(wire.UnknownType):
        message_check.check(message(version, 10, bytes(64)))


def test_sizes_that_the_engines_skip_are_the_checked_ones(eng: Engine) -> None:
    sizes = {kind: cls.cls_action_len for kind, cls in eng.parser.OFPAction._ACTION_TYPES.items()}
    of_announced_length = {25, wire.OFPAT_EXPERIMENTER}
    refused = {28}
    for kind in sizes.keys() - of_announced_length - refused:
        assert message_check._ACTION_SIZES[kind] == sizes[kind]


def test_a_malformed_hello_ends_the_session_and_others_do_not(eng: Engine) -> None:
    assert eng.receive(message(eng.version, 30, bytes(3))) is None
    assert eng.closed == 0
    assert eng.receive(message(eng.version, 0, b"\0\2\0\0")) is None
    assert eng.receive(message(9, 0)) is None
    assert eng.closed == 2
    assert registry.malformed == {0x2A: 3}


def test_refusals_are_logged_once_a_second_for_a_switch(
    eng: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        eng.receive(message(eng.version, 14, bytes(64)))
    assert len(caplog.records) == 1
    assert registry.malformed == {0x2A: 50}


def test_no_input_hangs_an_engine_or_fills_the_memory() -> None:
    assert_withstands("engines", EnginesTarget(), 20_000, accepted=(0.3, 0.9))
