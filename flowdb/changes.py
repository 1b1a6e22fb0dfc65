"""Changes of rows, and how a batch of them is written: one statement for all that are alike.

Written twice, a batch leaves what it left the first time: a commit whose answer was lost can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any, Literal, NamedTuple

from sqlalchemy import Table, and_, bindparam, delete, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.sql import Executable

from flowdb.models import Base

Verb = Literal["insert", "update", "merge", "delete"]
_INSERT: dict[str, Any] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
_VERB_ORDER: dict[Verb, int] = {"merge": 0, "insert": 1, "update": 2}


class _Columns(NamedTuple):
    table: Table
    order: int
    key: tuple[str, ...]
    all: frozenset[str]
    required: frozenset[str]


@cache
def _columns(row: type[Base]) -> _Columns:
    table = Base.metadata.tables[row.__tablename__]
    required = (column.name for column in table.columns if not column.nullable and column.default is None)
    return _Columns(
        table,
        Base.metadata.sorted_tables.index(table),
        tuple(column.name for column in table.primary_key),
        frozenset(table.columns.keys()),
        frozenset(required),
    )


@dataclass(slots=True)
class Change:
    """What is to happen to one row: ``values`` holds its key and the columns to set."""

    row: type[Base]
    key: tuple[Any, ...]
    verb: Verb
    values: dict[str, Any]

    def then(self, later: Change) -> None:
        """Take a later change of the same row in."""
        if later.verb == "delete":
            self.verb, self.values = "delete", later.values
        elif self.verb == "delete":
            if later.verb != "update":
                self.verb, self.values = "merge", later.values
        else:
            self.values |= later.values
            if self.verb == "update":
                self.verb = later.verb


def make_change(row: type[Base], verb: Verb, values: dict[str, Any]) -> Change:
    """A checked change. Raises TypeError where a column is unknown or one that is needed is missing.

    The key is needed always, to insert and to merge also every column that may not be NULL.
    """
    columns = _columns(row)
    if not values.keys() <= columns.all:
        unknown = ", ".join(sorted(values.keys() - columns.all))
        raise TypeError(f"{row.__tablename__} has no column {unknown}")
    needed = columns.required if verb in ("insert", "merge") else columns.key
    if missing := [name for name in needed if name not in values]:
        raise TypeError(f"{row.__tablename__} needs {', '.join(sorted(missing))}")
    return Change(row, tuple(values[name] for name in columns.key), verb, values)


def in_order(changes: Iterable[Change]) -> list[Change]:
    """Parents before children; what is deleted last, children before parents."""
    return sorted(changes, key=_place)


def write(connection: Connection, changes: Iterable[Change]) -> None:
    """Write changes of as many rows, given in order."""
    for (row, verb, names), some in groupby(changes, key=lambda c: (c.row, c.verb, tuple(c.values))):
        values = [change.values for change in some]
        if verb in ("update", "delete"):
            values = [{f"its_{name}": value for name, value in one.items()} for one in values]
        connection.execute(_statement(row, verb, names, connection.dialect.name), values)


def _place(change: Change) -> tuple[int, int, int]:
    order = _columns(change.row).order
    return (1, -order, 0) if change.verb == "delete" else (0, order, _VERB_ORDER[change.verb])


@cache
def _statement(row: type[Base], verb: Verb, names: tuple[str, ...], dialect: str) -> Executable:
    columns = _columns(row)
    table, key = columns.table, columns.key
    if verb in ("update", "delete"):
        where = and_(*(table.c[name] == bindparam(f"its_{name}") for name in key))
        if verb == "delete":
            return delete(table).where(where)
        changed: dict[str, Any] = {name: bindparam(f"its_{name}") for name in names if name not in key}
        return update(table).where(where).values(changed)
    there = _INSERT[dialect](table)
    excluded = {name: there.excluded[name] for name in names if name not in key}
    if verb == "insert" or not excluded:
        statement: Executable = there.on_conflict_do_nothing()
    else:
        statement = there.on_conflict_do_update(index_elements=key, set_=excluded)
    return statement
