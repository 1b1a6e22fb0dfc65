"""The hex examples of docs/wire-format.md are the golden bytes of every message, action and field."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

import pytest

from openflow_ext import wire
from weir_base.paths import PROJECT

PAGE = PROJECT / "docs" / "wire-format.md"
EXAMPLE = re.compile(r"^## ([^\n]+)\n.*?```hex\n(.*?)```\n+```python\n(.*?)```", re.M | re.S)

OTHER_MESSAGES = (wire.PortCountersRequest, wire.PortCountersReply, wire.ExperimenterError)
NAMES = vars(ipaddress) | vars(wire)


def examples() -> list[tuple[str, bytes, Any]]:
    found = []
    for title, hex_lines, expression in EXAMPLE.findall(PAGE.read_text()):
        data = bytes.fromhex("".join(line.split("#")[0] for line in hex_lines.splitlines()))
        found.append((title, data, eval(expression, NAMES.copy())))  # noqa: S307 - our own page
    return found


EXAMPLES = examples()
CASES = [pytest.param(data, value, id=title) for title, data, value in EXAMPLES]
MESSAGES = [case for case in CASES if isinstance(case.values[1], wire.Message)]


def decode(data: bytes, value: Any) -> Any:
    """Decode ``data`` with the decoder for values of the type of ``value``."""
    if isinstance(value, wire.Field):
        return wire.decode_field(data)
    is_action = isinstance(value, wire.ACTIONS)
    return wire.decode_action(data) if is_action else wire.decode_message(data)


def encode(value: Any, data: bytes) -> bytes:
    """Encode ``value`` with the version, framing and xid of ``data``."""
    if isinstance(value, wire.Field):
        return wire.encode_field(value)
    if isinstance(value, wire.ACTIONS):
        return wire.encode_action(value)
    header = wire.decode_header(data)
    framing: wire.Framing = "native" if wire.is_native_message(data) else "experimenter"
    return wire.encode_message(value, header.version, header.xid, framing=framing)


def test_every_message_action_and_field_has_an_example() -> None:
    kinds = {*wire.EXPERIMENTER_MESSAGES, *OTHER_MESSAGES, *wire.ACTIONS, wire.Field}
    assert {type(value) for _, _, value in EXAMPLES} == kinds


@pytest.mark.parametrize(("data", "value"), CASES)
def test_example_decodes_to_its_value(data: bytes, value: Any) -> None:
    assert decode(data, value) == value


@pytest.mark.parametrize(("data", "value"), CASES)
def test_value_encodes_to_its_example(data: bytes, value: Any) -> None:
    assert encode(value, data) == data


@pytest.mark.parametrize(("data", "value"), CASES)
def test_example_cut_at_every_length_is_truncated(data: bytes, value: Any) -> None:
    for size in range(len(data)):
        with pytest.raises(wire.Truncated):
            decode(data[:size], value)


@pytest.mark.parametrize(("data", "value"), MESSAGES)
def test_version_15_differs_only_in_the_port(data: bytes, value: Any) -> None:
    if isinstance(value, wire.BufAlarm | wire.BufNormal):
        assert data[0] == wire.OFP15 or wire.encode_message(value, wire.OFP15)[1:] != data[1:]
    else:
        in_15 = bytes([wire.OFP15]) + data[1:]
        assert encode(value, in_15) == in_15
        assert wire.decode_message(in_15) == value


def test_the_offsets_in_the_page_are_correct() -> None:
    for _, hex_lines, _ in EXAMPLE.findall(PAGE.read_text()):
        offset = 0
        for line in hex_lines.splitlines():
            octets, _, comment = line.partition("#")
            assert not comment or int(comment.split()[0]) == offset
            offset += len(bytes.fromhex(octets))
