"""Flows for the flow database, and its rows as another process reads them."""

from __future__ import annotations

import tempfile
import time
from functools import cache
from pathlib import Path
from typing import TypeVar

from sqlalchemy import create_engine, insert, select
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from flowdb import schema
from flowdb.db import FlowDb
from flowdb.engine import open_engine
from flowdb.flow import NS_PER_S, FiveTuple, Flow, Hop
from flowdb.models import Base, RunRow
from tests.support.waiting import wait_until

Row = TypeVar("Row", bound=Base)
BIG_DPID = 0xFFFF_0000_0000_0001


def rows(database: Path | str, model: type[Row]) -> list[Row]:
    """All rows of a table, ordered by key. ``database`` is an SQLite file or a URL."""
    url = f"sqlite:///{database}" if isinstance(database, Path) else database
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    with Session(engine) as session:
        return list(session.scalars(select(model).order_by(*model.__table__.primary_key)))


@cache
def _tables() -> bytes:
    """An SQLite file with Weir's empty tables, made once: the migrations are slow."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "weir.db"
        engine = open_engine(f"sqlite:///{file}")
        schema.upgrade(engine, str(engine.url))
        engine.dispose()
        return file.read_bytes()


def put_tables(file: Path) -> None:
    """Write an SQLite database with Weir's empty tables to a path."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(_tables())


def put_run_ahead(url: str) -> None:
    """A run of another boot that was killed. Its clock was a year ahead."""
    then_ns = time.time_ns() + 365 * 86_400 * NS_PER_S
    values = {"boot_id": "another", "boot_ns": then_ns, "started_ns": then_ns, "last_seen_ns": then_ns}
    with open_engine(url).begin() as connection:
        connection.execute(insert(RunRow).values(host="another", pid=1, **values))


def new_flow(db: FlowDb, src_port: int = 1000, path: tuple[Hop, ...] = (Hop(BIG_DPID, 1, 2),)) -> Flow:
    """A flow that opens now."""
    key = FiveTuple("10.0.0.1", "10.0.0.2", src_port, 80)
    return Flow(db.next_id(), key, path, db.clock.now_ns(), 1448, 9)


def wait_written(db: FlowDb) -> None:
    """Wait until the writer has written everything that ``db`` was given."""
    wait_until(lambda: db.counters.pending, "all rows are written", lambda pending: pending == 0)
