"""Changes of rows, and how a batch of them is written: one statement for all that are alike.

Written twice, a batch leaves what it left the first time: a commit whose answer was lost can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Table, and_, bindparam, column, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.sql import Executable

from flowdb.models import Base

Verb = Literal["insert", "update", "merge", "delete"]
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
    return sorted(changes, key=lambda change: _place(change.row, change.verb))


def write(connection: Connection, changes: Iterable[Change]) -> None:
    """Write changes of as many rows, whatever their order."""
    dialect = connection.dialect.name
    alike: dict[tuple[type[Base], Verb, tuple[str, ...]], list[dict[str, Any]]] = {}
    for change in changes:
        alike.setdefault((change.row, change.verb, tuple(change.values)), []).append(change.values)
    for row, verb, names in sorted(alike, key=lambda kind: _place(kind[0], kind[1])):
        values = alike[row, verb, names]
        if dialect == "postgresql":
            parameters: Any = {f"its_{name}": [one[name] for one in values] for name in names}
        else:
            parameters = [{f"its_{name}": value for name, value in one.items()} for one in values]
        connection.execute(_statement(row, verb, names, dialect), parameters)


def _place(row: type[Base], verb: Verb) -> tuple[int, int, int]:
    order = _columns(row).order
    return (1, -order, 0) if verb == "delete" else (0, order, _VERB_ORDER[verb])


@cache
def _statement(row: type[Base], verb: Verb, names: tuple[str, ...], dialect: str) -> Executable:
    """Writes all rows of a table whose changes are alike: SQLite's a row a time, PostgreSQL's all at once."""
    table, _, key, *_ = _columns(row)
    given: Mapping[str, ColumnElement[Any]]
    if dialect == "postgresql":
        given = _unnested(table, names)
    else:
        given = {name: bindparam(f"its_{name}", type_=table.c[name].type) for name in names}
    where = and_(*(table.c[name] == given[name] for name in key))
    others = [name for name in names if name not in key]
    if verb == "delete":
        return delete(table).where(where)
    if verb == "update":
        return update(table).where(where).values({name: given[name] for name in others})
    if dialect == "postgresql":
        put: Any = postgresql.insert(table).from_select(names, select(*given.values()))
    else:
        put = sqlite.insert(table).values(given)
    if verb == "insert" or not others:
        statement: Executable = put.on_conflict_do_nothing()
    else:
        excluded = {name: put.excluded[name] for name in others}
        statement = put.on_conflict_do_update(index_elements=key, set_=excluded)
    return statement


def _unnested(table: Table, names: tuple[str, ...]) -> Mapping[str, ColumnElement[Any]]:
    """Parameters that are each a whole column, as a table."""
    types = {name: table.c[name].type for name in names}
    arrays = [
        bindparam(f"its_{name}", type_=postgresql.ARRAY(kind, dimensions=1)) for name, kind in types.items()
    ]
    rows = func.unnest(*arrays).table_valued(*(column(name, kind) for name, kind in types.items()))
    return dict(rows.render_derived().c.items())
