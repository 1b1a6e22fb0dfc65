"""The parameter types of the commands."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from weir.cli import weir
from weir_base.parameters import FiniteRange


def test_a_number_in_the_range_is_taken() -> None:
    assert FiniteRange(min=0.1).convert("1e3", None, None) == 1000.0


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "0.05", "x"])
def test_what_is_no_number_of_the_range_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        FiniteRange(min=0.1).convert(text, None, None)


@pytest.mark.parametrize("option", ["--rate-mbps", "--link-mbps", "--seconds"])
@pytest.mark.parametrize("text", ["nan", "inf", "1e300"])
def test_dcudp_refuses_absurd_numbers_in_a_line(option: str, text: str) -> None:
    done = CliRunner().invoke(weir, ["dcudp", "bench", option, text])
    assert done.exit_code == 2
    assert f"Error: Invalid value for '{option}': " in done.output
