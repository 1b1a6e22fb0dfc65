"""How many rows are written by few statements, in SQLite and in PostgreSQL.

Few, because each hands the interpreter's lock over and back: beside a busy controller a statement a row would
be a few hundred rows a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal

from sqlalchemy import ColumnElement, Table, and_, bindparam, column, delete, func, select, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect
from sqlalchemy.engine import Connection
from sqlalchemy.sql import Executable

Verb = Literal["insert", "update", "merge", "delete"]
_MOST_PARAMETERS = 32_766
"""SQLITE_MAX_VARIABLE_NUMBER, as SQLite is built by default since 3.32."""


def execute(
    connection: Connection,
    table: Table,
    verb: Verb,
    names: tuple[str, ...],
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """Insert, merge, update or delete rows that all have the columns ``names``, their key among them."""
    if verb == "update" and not _others(table, names):
        return
    if connection.dialect.name == "postgresql":
        columns = {f"its_{name}": [row[name] for row in rows] for name in names}
        connection.execute(_for_postgresql(table, verb, names), columns)
        return
    at_once = _MOST_PARAMETERS // len(names)
    for start in range(0, len(rows), at_once):
        some = rows[start : start + at_once]
        connection.exec_driver_sql(
            _for_sqlite(table, verb, names, len(some)), tuple(_flat(table, names, some))
        )


@cache
def _for_postgresql(table: Table, verb: Verb, names: tuple[str, ...]) -> Executable:
    """Takes each column as an array, all rows in one statement."""
    types = {name: table.c[name].type for name in names}
    arrays = [
        bindparam(f"its_{name}", type_=postgresql.ARRAY(kind, dimensions=1)) for name, kind in types.items()
    ]
    rows = func.unnest(*arrays).table_valued(*(column(name, kind) for name, kind in types.items()))
    given: dict[str, ColumnElement[Any]] = dict(rows.render_derived().c.items())
    key, others = _key(table), _others(table, names)
    where = and_(*(table.c[name] == given[name] for name in key))
    if verb == "delete":
        return delete(table).where(where)
    if verb == "update":
        return update(table).where(where).values({name: given[name] for name in others})
    put = postgresql.insert(table).from_select(names, select(*given.values()))
    if verb == "insert" or not others:
        return put.on_conflict_do_nothing()
    return put.on_conflict_do_update(index_elements=key, set_={name: put.excluded[name] for name in others})


def _for_sqlite(table: Table, verb: Verb, names: tuple[str, ...], count: int) -> str:
    """Takes the rows one after the other as parameters of one statement. Names are the models', no input."""
    row = f"({', '.join('?' * len(names))})"
    rows = f"VALUES {', '.join([row] * count)}"
    key, others = _key(table), _others(table, names)
    place = {name: f"given.column{number}" for number, name in enumerate(names, 1)}
    where = " AND ".join(f"{table.name}.{name} = {place[name]}" for name in key)
    if verb == "delete":
        return f"DELETE FROM {table.name} WHERE ({', '.join(names)}) IN ({rows})"  # noqa: S608
    if verb == "update":
        changes = ", ".join(f"{name} = {place[name]}" for name in others)
        return f"UPDATE {table.name} SET {changes} FROM ({rows}) AS given WHERE {where}"  # noqa: S608
    insert = f"INSERT INTO {table.name} ({', '.join(names)}) {rows} ON CONFLICT"
    if verb == "insert" or not others:
        return f"{insert} DO NOTHING"
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    return f"{insert} ({', '.join(key)}) DO UPDATE SET {changes}"


def _flat(table: Table, names: tuple[str, ...], rows: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """The rows' values as the driver takes them."""
    processors = _processors(table, names)
    for row in rows:
        for name, process in zip(names, processors, strict=True):
            value = row[name]
            yield value if process is None else process(value)


@cache
def _processors(table: Table, names: tuple[str, ...]) -> list[Callable[[Any], Any] | None]:
    dialect = sqlite_dialect()
    return [table.c[name].type.dialect_impl(dialect).bind_processor(dialect) for name in names]


def _key(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.primary_key)


def _others(table: Table, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if name not in table.primary_key.columns]
