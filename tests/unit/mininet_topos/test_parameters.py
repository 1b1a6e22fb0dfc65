"""The parameter types of the commands."""

from __future__ import annotations

from typing import Any

import click
import pytest

from mininet_topos.cli.parameters import Bytes, Change


@pytest.mark.parametrize(
    ("text", "number"), [("32000", 32_000), ("32KB", 32_000), ("1.5 mb", 1_500_000), ("7B", 7)]
)
def test_bytes_may_have_a_unit(text: str, number: int) -> None:
    assert Bytes().convert(text, None, None) == number


@pytest.mark.parametrize("text", ["", "KB", "-1", "32KiB", "1e3"])
def test_a_bad_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"want bytes, e\.g\. 32000, 32KB"):
        Bytes().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("delay_ms=5", ("delay_ms", 5)),
        ("delay_ms = 2.5", ("delay_ms", 2.5)),
        ("congestion_control=bbr", ("congestion_control", "bbr")),
        ("topology='dumbbell,40,3'", ("topology", "dumbbell,40,3")),
        ("pinned=false", ("pinned", False)),
        ("schemes=['plain', 'sccp-auto']", ("schemes", ["plain", "sccp-auto"])),
        ("rates_mbps={trunk=1000}", ("rates_mbps", {"trunk": 1000})),
    ],
)
def test_a_change_is_a_key_and_a_value_in_toml_or_a_word(text: str, change: tuple[str, Any]) -> None:
    assert Change().convert(text, None, None) == change


@pytest.mark.parametrize("text", ["", "delay_ms", "delay_ms=", "=5", "a=[", "a=5 6", "a=1\nb=2"])
def test_a_bad_change_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"want KEY=VALUE|is not TOML|want one value"):
        Change().convert(text, None, None)
