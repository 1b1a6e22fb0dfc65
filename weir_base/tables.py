"""Terminal tables that fit the terminal.

A command describes its table as a sequence of Column, the most important column first, and passes rows as
mappings. The columns that do not fit are left out, and a note below the table names them. The width is the
terminal's, ``$COLUMNS`` if that is set, and 80 if the output is piped. Without colour nothing is lost.

A command in full::

    COLUMNS = (Column("name", align="left"), Column("n_i"), Column("queue_pkts"))

    @click.command()
    @tables.options(COLUMNS)
    def ports(columns: tuple[str, ...], sort: str | None) -> None:
        rows = tables.sorted_rows(read(), sort)
        tables.show(COLUMNS, rows, only=columns, choose_with="--columns")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import click
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

Row = Mapping[str, Any]
Command = TypeVar("Command", bound=Callable[..., Any])

_GAP = 2
"""Spaces between two columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    ``name`` is the key of the column's value in a row, and the name that ``--columns`` and ``--sort`` take.
    ``heading`` stands above the column; its default is the name with one word on each line. ``text`` writes
    the cell of a row; its default is ``text_of`` the value. ``fold_at`` is the width in characters down to
    which the column may be narrowed: longer text continues on the next line. 0: the column is never narrowed.
    ``help`` is the column's line in ``described``.
    """

    name: str
    heading: str = ""
    align: Literal["left", "right"] = "right"
    text: Callable[[Row], str] | None = None
    fold_at: int = 0
    help: str = ""

    def heading_lines(self) -> list[str]:
        """The heading, line by line."""
        return (self.heading or self.name.replace("_", "\n")).split("\n")

    def cell(self, row: Row) -> str:
        """The text of the column's cell in ``row``."""
        return self.text(row) if self.text else text_of(row.get(self.name))


def text_of(value: Any) -> str:
    """A value as a cell shows it: ``-`` for None and for an empty list, yes or no, one decimal place."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.1f}"
        case list() | tuple():
            return ", ".join(map(str, value)) or "-"
    return str(value)


# -- choosing columns and order ------------------------------------------------------------------------


def options(columns: Sequence[Column]) -> Callable[[Command], Command]:
    """The options ``--columns`` (parameter ``columns``: a tuple) and ``--sort`` (``sort``: str or None)."""
    known = list(dict.fromkeys(column.name for column in columns))

    def checked(name: str) -> str:
        if name not in known:
            raise click.BadParameter(f"unknown column {name!r}; the columns are: {', '.join(known)}")
        return name

    def names(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
        return tuple(checked(name.strip()) for name in value.split(",") if name.strip())

    def one_name(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
        return value if value is None else checked(value)

    columns_option = click.option(
        "--columns",
        default="",
        callback=names,
        metavar="A,B,C",
        help="Show these columns only, in this order.",
    )
    sort_option = click.option(
        "--sort",
        callback=one_name,
        metavar="COLUMN",
        help="Order rows by COLUMN: largest number first, text A to Z.",
    )
    return lambda command: columns_option(sort_option(command))


def described(columns: Sequence[Column]) -> str:
    """The columns with their help, one on each line, as a paragraph for a click command's help."""
    width = max(len(column.name) for column in columns)
    return "\n".join(["\b", *(f"{column.name:{width}}  {column.help}".rstrip() for column in columns)])


def sorted_rows(rows: Sequence[Row], by: str | None) -> list[Row]:
    """``rows`` ordered by a column: numbers largest first, text A to Z, rows without a value last.

    Rows with equal values keep their order. None: the order stays.
    """
    if by is None:
        return list(rows)

    def key(row: Row) -> tuple[int, float, str]:
        value = row.get(by)
        if isinstance(value, int | float):
            return 0, -value, ""
        return (2, 0, "") if value is None else (1, 0, text_of(value))

    return sorted(rows, key=key)


# -- drawing -------------------------------------------------------------------------------------------


def console() -> Console:
    """The console on which tables are printed. It does not colour numbers that occur in text."""
    return Console(highlight=False)


def show(
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    title: str = "",
    empty: str = "none",
    only: Sequence[str] = (),
    choose_with: str = "",
) -> None:
    """Print a table on standard output. See ``render`` for the arguments."""
    out = console()
    out.print(
        render(columns, rows, out.width, title=title, empty=empty, only=only, choose_with=choose_with),
    )


def render(
    columns: Sequence[Column],
    rows: Sequence[Row],
    width: int,
    *,
    title: str = "",
    empty: str = "none",
    only: Sequence[str] = (),
    choose_with: str = "",
    max_rows: int | None = None,
    choose_rows_with: str = "",
    widths: dict[str, int] | None = None,
) -> RenderableType:
    """A table of ``rows`` that is at most ``width`` characters wide.

    ``empty`` replaces a table without rows. ``only`` names the columns to show; none: all that fit.
    ``choose_with`` is the option by which the user chooses columns; the note about missing columns names it.
    ``max_rows`` limits the rows; a note states how many are missing, and names ``choose_rows_with``, the
    options by which the user chooses and orders rows. ``widths`` remembers the widest cell of
    each column between calls, so that the columns of a table that is redrawn keep their places.
    """
    asked = [column for name in only for column in columns if column.name == name] if only else list(columns)
    parts: list[RenderableType] = [Text(title, style="bold")] if title else []
    if not rows:
        return Group(*parts, Text(empty))
    shown_rows = rows[:max_rows]
    natural = _natural_widths(asked, shown_rows, {} if widths is None else widths)
    fitting = _fitting(asked, natural, width)
    parts.append(_drawn(fitting, shown_rows, _widths(fitting, natural, width)))
    if missing := [column.name for column in asked if column not in fitting]:
        remedy = f"choose columns with {choose_with}, or widen" if choose_with else "widen"
        parts.append(Text(f"Not shown in {width} columns: {', '.join(missing)}; {remedy} the terminal."))
    if len(shown_rows) < len(rows):
        remedy = f"; choose rows with {choose_rows_with}" if choose_rows_with else ""
        parts.append(Text(f"{len(rows) - len(shown_rows)} more rows do not fit the terminal{remedy}."))
    return Group(*parts)


def _natural_widths(columns: Sequence[Column], rows: Sequence[Row], seen: dict[str, int]) -> dict[str, int]:
    """The width that each column needs so that no text is folded; never less than in ``seen``."""
    for column in columns:
        texts = [*column.heading_lines(), *(column.cell(row) for row in rows)]
        seen[column.name] = max(seen.get(column.name, 0), *map(cell_len, texts))
    return seen


def _fitting(columns: Sequence[Column], natural: Mapping[str, int], width: int) -> list[Column]:
    """The first columns that fit beside each other, at least one."""
    fitting: list[Column] = []
    used = -_GAP
    for column in columns:
        used += _GAP + _least_width(column, natural)
        if fitting and used > width:
            break
        fitting.append(column)
    return fitting


def _least_width(column: Column, natural: Mapping[str, int]) -> int:
    return min(natural[column.name], column.fold_at or natural[column.name])


def _widths(columns: Sequence[Column], natural: Mapping[str, int], width: int) -> dict[str, int]:
    """The width of each column: its least width and an equal part of the rest, up to its natural width.

    rich would make columns that fold too narrow, widen them to their least width again, and then cut off the
    right end of the table.
    """
    widths = {column.name: _least_width(column, natural) for column in columns}
    left_over = width - sum(widths.values()) - _GAP * (len(columns) - 1)
    while left_over > 0 and (folded := [name for name, now in widths.items() if now < natural[name]]):
        for name in folded[:left_over]:
            widths[name] += 1
        left_over -= min(len(folded), left_over)
    return widths


def _drawn(columns: Sequence[Column], rows: Sequence[Row], widths: Mapping[str, int]) -> Table:
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    height = max(len(column.heading_lines()) for column in columns)
    for column in columns:
        lines = column.heading_lines()
        table.add_column(
            Text("\n" * (height - len(lines)) + "\n".join(lines)),
            justify=column.align,
            overflow="fold",
            width=widths[column.name],
        )
    for row in rows:
        table.add_row(*(Text(column.cell(row)) for column in columns))
    return table
