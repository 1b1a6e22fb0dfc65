"""Exports tables of any size to CSV and Parquet files, one block of rows at a time."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import JSON, BigInteger, Boolean, Column, Table, select
from sqlalchemy.engine import Connection, Engine, Row

from flowdb.engine import FlowDbError
from flowdb.models import TIMES, TIMES_FROM, Base

BLOCK = 20_000
Format = Literal["csv", "parquet"]


class CannotExport(FlowDbError):
    """The file cannot be written; the message says why."""


class _Sink(Protocol):
    def write(self, rows: Sequence[Row[Any]]) -> None: ...


def export(
    engine: Engine, table: str, path: Path, kind: Format, since_ns: int | None, until_ns: int | None
) -> int:
    """Write a table's rows in key order; with limits, only rows from ``since_ns`` and before ``until_ns``.

    The file appears complete or not at all. Returns the number of rows. Raises CannotExport.
    """
    source = Base.metadata.tables[table]
    rows = 0
    try:
        with _complete(path) as part, _SINKS[kind](part, source) as sink, engine.connect() as connection:
            for block in _blocks(connection, source, since_ns, until_ns):
                sink.write(block)
                rows += len(block)
    except OSError as error:
        raise CannotExport(
            f"{path}: {error.strerror or error}; nothing was written, name another file"
        ) from error
    return rows


def _blocks(
    connection: Connection, source: Table, since_ns: int | None, until_ns: int | None
) -> Iterator[Sequence[Row[Any]]]:
    query = select(source).order_by(*source.primary_key)
    at = source
    if source.name in TIMES_FROM:
        key, parent = TIMES_FROM[source.name]
        at = Base.metadata.tables[parent]
        query = query.join(at, at.c.id == source.c[key])
    time = at.c[TIMES[at.name]]
    if since_ns is not None:
        query = query.where(time >= since_ns)
    if until_ns is not None:
        query = query.where(time < until_ns)
    result = connection.execution_options(yield_per=BLOCK).execute(query)
    yield from result.partitions()


@contextmanager
def _complete(path: Path) -> Iterator[Path]:
    """A temporary file beside ``path`` that replaces it at the end, and is deleted after an error."""
    if path.exists():
        raise CannotExport(f"{path} already exists; name another file or move it away")
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    try:
        yield part
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)


class _Csv:
    def __init__(self, file: IO[str], source: Table) -> None:
        self._writer = csv.writer(file)
        self._json = [place for place, column in enumerate(source.columns) if isinstance(column.type, JSON)]
        self._writer.writerow(source.columns.keys())

    def write(self, rows: Sequence[Row[Any]]) -> None:
        self._writer.writerows(_as_text(row, self._json) for row in rows)


class _Parquet:
    def __init__(self, writer: pq.ParquetWriter, schema: pa.Schema, source: Table) -> None:
        self._writer = writer
        self._schema = schema
        self._json = [place for place, column in enumerate(source.columns) if isinstance(column.type, JSON)]

    def write(self, rows: Sequence[Row[Any]]) -> None:
        columns = list(zip(*(_as_text(row, self._json) for row in rows), strict=True))
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))


@contextmanager
def _csv(path: Path, source: Table) -> Iterator[_Sink]:
    with path.open("w", newline="", encoding="utf-8") as file:
        yield _Csv(file, source)


@contextmanager
def _parquet(path: Path, source: Table) -> Iterator[_Sink]:
    schema = pa.schema([pa.field(column.name, _arrow(column)) for column in source.columns])
    with pq.ParquetWriter(path, schema) as writer:
        yield _Parquet(writer, schema, source)


_SINKS: dict[Format, Any] = {"csv": _csv, "parquet": _parquet}


def _as_text(row: Row[Any], places: list[int]) -> Sequence[Any]:
    """A row with its JSON columns as text."""
    if not places:
        return row
    values = list(row)
    for place in places:
        values[place] = json.dumps(values[place])
    return values


def _arrow(column: Column[Any]) -> pa.DataType:
    """Datapath ids are the only integers that need an unsigned type of 64 bits."""
    if isinstance(column.type, Boolean):
        return pa.bool_()
    if isinstance(column.type, BigInteger):
        return pa.int64()
    return pa.uint64() if column.name.endswith("dpid") else pa.string()
