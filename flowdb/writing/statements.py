"""Writes many rows by few statements, in SQLite and in PostgreSQL.

Each statement releases Python's interpreter lock and has to get it back, which takes long beside a busy
controller. One statement for each row would therefore be slow. But a driver holds the lock while it takes a
statement's parameters, so the parameters of one statement are limited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, Literal

from sqlalchemy import ColumnElement, Table, and_, bindparam, column, delete, func, select, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.sql import Executable

Verb = Literal["insert", "update", "merge", "delete"]
_MOST_PARAMETERS = 4_000
"""Of one statement in SQLite: bounds how long the driver holds the interpreter lock."""


def execute(
    connection: Connection,
    table: Table,
    verb: Verb,
    names: tuple[str, ...],
    rows: Sequence[Mapping[str, Any]],
    fresh: bool,
) -> None:
    """Insert, merge, update or delete rows that all have the columns ``names``, which include the key.

    ``fresh``: no row to be inserted exists. If one does, PostgreSQL refuses them all.
    """
    if verb == "update" and not _others(table, names):
        return
    if connection.dialect.name == "postgresql":
        if fresh and verb == "insert":
            _copy(connection, table, names, rows)
            return
        columns = {f"{name}_values": [row[name] for row in rows] for name in names}
        connection.execute(_for_postgresql(table, verb, names), columns)
        return
    at_once = _MOST_PARAMETERS // len(names)
    for start in range(0, len(rows), at_once):
        some = rows[start : start + at_once]
        values = chain.from_iterable(_bound(table, names, some, connection.dialect))
        connection.exec_driver_sql(_for_sqlite(table, verb, names, len(some)), tuple(values))


def _copy(connection: Connection, table: Table, names: tuple[str, ...], rows: Sequence[Any]) -> None:
    """Insert by COPY, which costs PostgreSQL and the writer less than INSERT. Raises psycopg's errors."""
    driver: Any = connection.connection.driver_connection
    command = f"COPY {table.name} ({', '.join(names)}) FROM STDIN"
    with driver.cursor() as cursor, cursor.copy(command) as copy:
        for row in _bound(table, names, rows, connection.dialect):
            copy.write_row(row)


@cache
def _for_postgresql(table: Table, verb: Verb, names: tuple[str, ...]) -> Executable:
    """One statement for all rows. Its parameters are arrays, one for each column."""
    types = {name: table.c[name].type for name in names}
    arrays = [
        bindparam(f"{name}_values", type_=postgresql.ARRAY(kind, dimensions=1))
        for name, kind in types.items()
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
    """One statement whose parameters are the rows' values. Names come from the models, never from input."""
    row = f"({', '.join('?' * len(names))})"
    rows = f"VALUES {', '.join([row] * count)}"
    key, others = _key(table), _others(table, names)
    place = {name: f"given.column{number}" for number, name in enumerate(names, 1)}
    where = " AND ".join(f"{table.name}.{name} = {place[name]}" for name in key)
    if verb == "delete":
        return f"DELETE FROM {table.name} WHERE ({', '.join(names)}) IN ({rows})"  # noqa: S608 - our names
    if verb == "update":
        changes = ", ".join(f"{name} = {place[name]}" for name in others)
        return f"UPDATE {table.name} SET {changes} FROM ({rows}) AS given WHERE {where}"  # noqa: S608 - ours
    insert = f"INSERT INTO {table.name} ({', '.join(names)}) {rows} ON CONFLICT"
    if verb == "insert" or not others:
        return f"{insert} DO NOTHING"
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    return f"{insert} ({', '.join(key)}) DO UPDATE SET {changes}"


def _bound(
    table: Table, names: tuple[str, ...], rows: Sequence[Mapping[str, Any]], dialect: Dialect
) -> Iterator[list[Any]]:
    """The rows' values in the types of the database driver."""
    kinds = (table.c[name].type.dialect_impl(dialect) for name in names)
    bind = [(name, kind.bind_processor(dialect)) for name, kind in zip(names, kinds, strict=True)]
    for row in rows:
        yield [row[name] if process is None else process(row[name]) for name, process in bind]


def _key(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.primary_key)


def _others(table: Table, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if name not in table.primary_key.columns]
