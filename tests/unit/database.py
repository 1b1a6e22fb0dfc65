"""Flows to put into the flow database, and its rows as anybody else reads them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from flowdb import schema
from flowdb.db import FlowDb
from flowdb.engine import open_engine
from flowdb.flow import FiveTuple, Flow, Hop
from flowdb.models import Base

Row = TypeVar("Row", bound=Base)
BIG_DPID = 0xFFFF_0000_0000_0001


def rows(database: Path | str, model: type[Row]) -> list[Row]:
    """All rows of a table, by their keys; ``database``: an SQLite file, or a URL."""
    url = f"sqlite:///{database}" if isinstance(database, Path) else database
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    with Session(engine) as session:
        return list(session.scalars(select(model).order_by(*model.__table__.primary_key)))


@cache
def _tables() -> bytes:
    """An SQLite file with Weir's tables and nothing in them; to make one takes a quarter of a second."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "weir.db"
        engine = open_engine(f"sqlite:///{file}")
        schema.upgrade(engine, str(engine.url))
        engine.dispose()
        return file.read_bytes()


def put_tables(file: Path) -> None:
    """Put an SQLite database with Weir's tables at a place."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(_tables())


def new_flow(db: FlowDb, src_port: int = 1000, path: tuple[Hop, ...] = (Hop(BIG_DPID, 1, 2),)) -> Flow:
    """A flow that opens now."""
    key = FiveTuple("10.0.0.1", "10.0.0.2", src_port, 80)
    return Flow(db.next_id(), key, path, db.clock.now_ns(), 1448, 9)


def wait_for(condition: Callable[[], object], timeout_s: float = 20) -> None:
    """Wait until ``condition`` holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)
