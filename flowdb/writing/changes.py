"""Changes of rows, and the order in which a batch of them is written.

A batch may be written twice with the same result, so a commit whose answer was lost can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Table
from sqlalchemy.engine import Connection

from flowdb.models import Base
from flowdb.writing.statements import Verb, execute

_VERB_ORDER: dict[Verb, int] = {"merge": 0, "insert": 1, "update": 2}


RowKey = tuple[type[Base], tuple[Any, ...]]
Packed = tuple[Any, ...]
"""A change as plain values. The first names the table, or a change of several rows (``flow_changes``)."""


class _Columns(NamedTuple):
    table: Table
    order: int
    key: tuple[str, ...]
    all: frozenset[str]
    required: frozenset[str]
    references: tuple[tuple[str, type[Base]], ...]


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
        tuple(
            (column.name, _rows()[key.column.table.name])
            for column in table.columns
            for key in column.foreign_keys
        ),
    )


@dataclass(slots=True)
class Change:
    """A change of one row. ``values`` holds the row's key and the columns to set.

    ``dpid``: the switch whose message caused it; None: the controller did. ``since_s``: the monotonic time
    since which it waits to be written.
    """

    row: type[Base]
    key: tuple[Any, ...]
    verb: Verb
    values: dict[str, Any]
    dpid: int | None = None
    since_s: float = field(default=0.0, compare=False)

    def single_rows(self) -> Iterable[Change]:
        """The changes of single rows that this change consists of."""
        return (self,)

    def parents(self) -> list[RowKey]:
        """The rows to which this change's values refer by foreign keys."""
        references = ((row, self.values.get(name)) for name, row in _columns(self.row).references)
        return [(row, (key,)) for row, key in references if key is not None]

    def packed(self) -> Packed:
        """This change as plain values, for another process."""
        return self.row.__tablename__, self.verb, self.values, self.dpid

    def absorb(self, later: Change) -> None:
        """Merge a later change of the same row into this one."""
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


def make_change(row: type[Base], verb: Verb, values: dict[str, Any], dpid: int | None = None) -> Change:
    """A checked change. Raises TypeError if a column is unknown, or if a required column is missing.

    The key is always required. To insert or merge, every column that may not be NULL is required too.
    """
    columns = _columns(row)
    if not values.keys() <= columns.all:
        unknown = ", ".join(sorted(values.keys() - columns.all))
        raise TypeError(f"{row.__tablename__} has no column {unknown}")
    needed = columns.required if verb in ("insert", "merge") else columns.key
    if missing := [name for name in needed if name not in values]:
        raise TypeError(f"{row.__tablename__} needs {', '.join(sorted(missing))}")
    return Change(row, tuple(values[name] for name in columns.key), verb, values, dpid)


def unpacked(packed: Packed) -> Change:
    """The change of which ``packed`` are the plain values."""
    name, verb, values, dpid = packed
    return make_change(_rows()[name], verb, values, dpid)


@cache
def _rows() -> dict[str, type[Base]]:
    return {mapper.class_.__tablename__: mapper.class_ for mapper in Base.registry.mappers}


def in_write_order(changes: Iterable[Change]) -> list[Change]:
    """Parents before children, then deletions, children before parents."""
    return sorted(changes, key=lambda change: _write_order(change.row, change.verb))


def write(connection: Connection, changes: Iterable[Change], fresh: bool = False) -> None:
    """Write changes, given in any order, each of another row.

    ``fresh``: none of them was written before. If one was, PostgreSQL refuses them all.
    """
    groups: dict[tuple[type[Base], Verb, tuple[str, ...]], list[dict[str, Any]]] = {}
    for change in chain.from_iterable(change.single_rows() for change in changes):
        groups.setdefault((change.row, change.verb, tuple(change.values)), []).append(change.values)
    for row, verb, names in sorted(groups, key=lambda kind: _write_order(kind[0], kind[1])):
        execute(connection, _columns(row).table, verb, names, groups[row, verb, names], fresh)


def _write_order(row: type[Base], verb: Verb) -> tuple[int, int, int]:
    order = _columns(row).order
    return (1, -order, 0) if verb == "delete" else (0, order, _VERB_ORDER[verb])
