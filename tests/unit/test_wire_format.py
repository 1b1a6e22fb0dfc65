"""docs/wire-format.md is true: its hex examples are the golden bytes of every message and action."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from openflow_ext import wire

PAGE = Path(__file__).parents[2] / "docs" / "wire-format.md"
EXAMPLE = re.compile(r"^## ([^\n]+)\n.*?```hex\n(.*?)```\n+```python\n(.*?)```", re.M | re.S)


def examples() -> list[tuple[str, bytes, Any]]:
    found = []
    for title, hex_lines, expression in EXAMPLE.findall(PAGE.read_text()):
        data = bytes.fromhex("".join(line.split("#")[0] for line in hex_lines.splitlines()))
        found.append((title, data, eval(expression, vars(wire).copy())))  # noqa: S307 - our own page
    return found


EXAMPLES = examples()
CASES = [pytest.param(data, value, id=title) for title, data, value in EXAMPLES]


def is_action(value: Any) -> bool:
    return isinstance(value, get_args(wire.Action))


def test_every_message_and_action_has_an_example() -> None:
    assert {type(value) for _, _, value in EXAMPLES} == {*get_args(wire.Message), *get_args(wire.Action)}


@pytest.mark.parametrize(("data", "value"), CASES)
def test_example_decodes_to_its_value(data: bytes, value: Any) -> None:
    decode = wire.decode_action if is_action(value) else wire.decode_message
    assert decode(data) == value


@pytest.mark.parametrize(("data", "value"), CASES)
def test_value_encodes_to_its_example(data: bytes, value: Any) -> None:
    if is_action(value):
        assert wire.encode_action(value) == data
    else:
        assert wire.encode_message(value, xid=wire.decode_header(data).xid) == data


def test_offsets_in_the_page_are_right() -> None:
    for _, hex_lines, _ in EXAMPLE.findall(PAGE.read_text()):
        offset = 0
        for line in hex_lines.splitlines():
            octets, _, comment = line.partition("#")
            assert not comment or int(comment.split()[0]) == offset
            offset += len(bytes.fromhex(octets))
