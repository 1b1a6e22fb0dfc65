"""Changes of rows, and what order a batch of them is written in.

Written twice, a batch leaves what it left the first time: a commit whose answer was lost can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Table
from sqlalchemy.engine import Connection

from flowdb.models import Base
from flowdb.statements import Verb, execute

_VERB_ORDER: dict[Verb, int] = {"merge": 0, "insert": 1, "update": 2}


Packed = tuple[Any, ...]
"""Plain values, the first of which says of what: a table's name, or what is more than a row."""


class _Columns(NamedTuple):
    table: Table
    order: int
    key: tuple[str, ...]
    all: frozenset[str]
    required: frozenset[str]


@cache
def _columns(row: type[Base]) -> _Columns:
    table = Base.metadata.tables[row.__tablename__]
    required = (column.name for column in table.columns if not column.nullable)
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

    def parts(self) -> Iterable[Change]:
        """The changes of single rows that it consists of."""
        return (self,)

    def packed(self) -> Packed:
        """As plain values, for another process."""
        return self.row.__tablename__, self.verb, self.values

    def then(self, later: Change) -> None:
        """Take a later change of the same row in."""
        if later.verb == "delete":
            self.verb, self.values = "delete", later.values
        elif self.verb == "delete":
            if later.verb != "update":
                blank = dict.fromkeys(_columns(self.row).all - _columns(self.row).required)
                self.verb, self.values = "merge", blank | later.values
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


def unpacked(packed: Packed) -> Change:
    """The change that was packed so."""
    name, verb, values = packed
    return make_change(_rows()[name], verb, values)


@cache
def _rows() -> dict[str, type[Base]]:
    return {mapper.class_.__tablename__: mapper.class_ for mapper in Base.registry.mappers}


def in_order(changes: Iterable[Change]) -> list[Change]:
    """Parents before children; what is deleted last, children before parents."""
    return sorted(changes, key=lambda change: _place(change.row, change.verb))


def write(connection: Connection, changes: Iterable[Change], fresh: bool = False) -> None:
    """Write changes of as many rows, whatever their order.

    ``fresh``: they have not been written before; if they have, PostgreSQL refuses them all.
    """
    alike: dict[tuple[type[Base], Verb, tuple[str, ...]], list[dict[str, Any]]] = {}
    for change in chain.from_iterable(change.parts() for change in changes):
        alike.setdefault((change.row, change.verb, tuple(change.values)), []).append(change.values)
    for row, verb, names in sorted(alike, key=lambda kind: _place(kind[0], kind[1])):
        execute(connection, _columns(row).table, verb, names, alike[row, verb, names], fresh)


def _place(row: type[Base], verb: Verb) -> tuple[int, int, int]:
    order = _columns(row).order
    return (1, -order, 0) if verb == "delete" else (0, order, _VERB_ORDER[verb])
