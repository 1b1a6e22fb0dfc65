"""The parameter types of the commands."""

from __future__ import annotations

import click
import pytest

from mininet_topos.cli.parameters import Bytes


@pytest.mark.parametrize(
    ("text", "number"), [("32000", 32_000), ("32KB", 32_000), ("1.5 mb", 1_500_000), ("7B", 7)]
)
def test_bytes_may_have_a_unit(text: str, number: int) -> None:
    assert Bytes().convert(text, None, None) == number


@pytest.mark.parametrize("text", ["", "KB", "-1", "32KiB", "1e3"])
def test_a_bad_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"want bytes, e\.g\. 32000, 32KB"):
        Bytes().convert(text, None, None)
