"""Terminal tables: which columns fit, what the notes say, how rows are ordered, which options are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console

from weir_base import tables
from weir_base.tables import Column

COLUMNS = (
    Column("name", align="left"),
    Column("n_i", heading="N_i"),
    Column("queue_pkts"),
    *(Column(f"counter_{letter}") for letter in "abcdefghijkl"),
)
LAST = "counter_l"


def port(number: int, **values: Any) -> dict[str, Any]:
    counters = {column.name: 1_000_000_000 + number for column in COLUMNS[3:]}
    return {"name": f"s1-eth{number}", "n_i": number, "queue_pkts": number % 7, **counters, **values}


def lines(rows: Sequence[tables.Row], width: int = 80, **options: Any) -> list[str]:
    """The table as a terminal of ``width`` columns without colour prints it."""
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(tables.render(COLUMNS, rows, width, **options))
    return capture.get().splitlines()


@pytest.mark.parametrize("ports", [1, 13, 120])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_is_never_wider_than_the_terminal_and_shows_whole_cells(ports: int, width: int) -> None:
    found = lines([port(number) for number in range(ports)], width)
    assert all(cell_len(line) <= width for line in found)
    for number in range(ports):
        (line,) = [line for line in found if line.startswith(f"s1-eth{number} ")]
        assert line.split()[1:3] == [str(number), str(number % 7)]
        assert all(cell == str(1_000_000_000 + number) for cell in line.split()[3:])


def test_the_last_columns_are_left_out_and_named() -> None:
    note = " ".join(lines([port(1)], choose_with="--columns"))
    assert "Not shown in 80 columns: counter_f, counter_g" in note
    assert f"{LAST}; choose columns with --columns, or widen the terminal." in note
    assert "Not shown" not in " ".join(lines([port(1)], width=300))


def test_chosen_columns_are_shown_in_the_order_asked_for() -> None:
    found = lines([port(5)], only=("counter_l", "name"))
    assert [line.split() for line in found] == [["counter"], ["l", "name"], ["1000000005", "s1-eth5"]]


def test_a_folding_column_is_narrowed_before_others_are_left_out() -> None:
    columns = (Column("match", align="left", fold_at=10), Column("packets"))
    console = Console(width=30, color_system=None)
    with console.capture() as capture:
        console.print(tables.render(columns, [{"match": "word " * 12, "packets": 7}], 30))
    assert "packets" in capture.get()
    assert capture.get().count("word") == 12


@pytest.mark.parametrize("width", range(56, 130))
def test_folding_columns_lose_no_character(width: int) -> None:
    texts = ("a word or two or three of this text", "Long flows alone, RTT 30 ms: what the schemes cost")
    columns = (
        Column("name"),
        Column("left", align="left", fold_at=16),
        Column("right", align="left", fold_at=24),
    )
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(tables.render(columns, [{"name": 8 * "n", "left": texts[0], "right": texts[1]}], width))
    found = capture.get().splitlines()
    assert max(map(cell_len, found)) <= width
    assert sorted("".join(found).split()) == sorted(
        ["name", "left", "right", 8 * "n", *" ".join(texts).split()]
    )


def test_brackets_in_a_cell_are_text_and_not_markup() -> None:
    assert any(line.startswith("[bold]x") for line in lines([port(1, name="[bold]x")]))


def test_rows_beyond_the_limit_are_counted() -> None:
    found = lines([port(number) for number in range(120)], max_rows=20)
    assert "100 more rows do not fit the terminal." in found
    assert sum(line.startswith("s1-eth") for line in found) == 20


def test_a_table_without_rows_says_so() -> None:
    assert lines([], title="Ports", empty="no port") == ["Ports", "no port"]


def test_remembered_widths_keep_columns_in_place() -> None:
    widths: dict[str, int] = {}
    before = lines([port(1, name="a-long-name")], width=300, widths=widths)
    after = lines([port(1, name="a")], width=300, widths=widths)
    assert before[-1].index("1000000001") == after[-1].index("1000000001")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (True, "yes"), (False, "no"), (1.25, "1.2"), ([], "-"), (["a", "b"], "a, b"), (7, "7")],
)
def test_values_are_written_as_cells(value: Any, text: str) -> None:
    assert tables.text_of(value) == text


@pytest.mark.parametrize(
    ("by", "order"),
    [(None, [1, 2, 3]), ("queue_pkts", [2, 1, 3]), ("name", [3, 1, 2])],
)
def test_rows_are_sorted_numbers_largest_first_and_text_alphabetically(
    by: str | None, order: list[int]
) -> None:
    rows = [
        port(1, name="b", queue_pkts=5),
        port(2, name="c", queue_pkts=9),
        port(3, name="a", queue_pkts=None),
    ]
    assert [row["n_i"] for row in tables.sorted_rows(rows, by)] == order


@click.command()
@tables.options(COLUMNS)
def command(columns: tuple[str, ...], sort: str | None) -> None:
    rows = tables.sorted_rows([port(1), port(2)], sort)
    tables.show(COLUMNS, rows, only=columns, choose_with="--columns")


def test_the_options_choose_and_sort() -> None:
    result = CliRunner().invoke(command, ["--columns", "n_i, name", "--sort", "n_i"])
    assert result.output.splitlines() == ["N_i  name   ", "  2  s1-eth2", "  1  s1-eth1"]


@pytest.mark.parametrize("option", ["--columns", "--sort"])
def test_an_unknown_column_is_refused_with_the_known_ones(option: str) -> None:
    result = CliRunner().invoke(command, [option, "nme"])
    assert result.exit_code == 2
    assert "unknown column 'nme'" in result.output
    assert "name, n_i, queue_pkts" in result.output


def test_piped_output_is_80_columns_of_plain_text() -> None:
    output = CliRunner().invoke(command, [], env={"COLUMNS": ""}).output
    assert max(map(cell_len, output.splitlines())) <= 80
    assert "\x1b" not in output
