"""FlowDb: the index in memory and the SQL behind it.

FlowDbError             anything that stops the database from being opened
  DatabaseUnavailable   it cannot be reached, made or written
  SchemaMismatch        its tables are another version's
"""

from __future__ import annotations

import atexit
import itertools
import os
import socket
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event, func, inspect, select, update
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from flowdb.flow import FiveTuple, Flow
from flowdb.index import FlowIndex
from flowdb.models import Base, ClampRow, FlowRow, HopRow, RunRow
from flowdb.store import Store, StoreCounters, make_change

NS_PER_S = 1_000_000_000
_LOCKED_S = 5


class FlowDbError(Exception):
    """The flow database cannot be used; the message says why and what to do."""


class DatabaseUnavailable(FlowDbError):
    """The database cannot be reached, made or written."""


class SchemaMismatch(FlowDbError):
    """The database's tables are not the ones that this version writes."""


class FlowDb:
    """The global flow database of one controller process.

    Reads on the hot path go to ``index``. Writes (``insert``, ``update``, ``merge``) return at once and
    reach SQL in the background; ``close`` writes what is left. Flows that a predecessor left open, alive
    at most ``adopt_within_s`` ago, are taken over into the index: their handshakes will not come again.
    Older ones are closed as ``lost``, and clamps that it left as lifted.

    Raises FlowDbError when the database cannot be opened.
    """

    def __init__(self, url: str, adopt_within_s: float = 60.0, max_pending: int = 100_000) -> None:
        self.index = FlowIndex()
        engine = open_engine(url)
        self._run_id = _opened(url, engine, self._start_run, adopt_within_s)
        self._counter = itertools.count(1)
        self._store = Store(engine, self._heartbeat, max_pending)
        self._closed = False
        atexit.register(self.close)

    @property
    def counters(self) -> StoreCounters:
        return self._store.counters

    def next_id(self) -> int:
        """A row id that no other row of the same table has or will have."""
        return self._run_id << 32 | next(self._counter)

    def insert(self, row: type[Base], **values: Any) -> int:
        """Have a row inserted; returns the id that it gets."""
        row_id = self.next_id()
        self._store.put([make_change(row, "insert", {"id": row_id} | values)])
        return row_id

    def update(self, row: type[Base], row_id: int, **values: Any) -> None:
        """Have columns of a row set. A row that is not there stays so."""
        self._store.put([make_change(row, "update", {"id": row_id} | values)])

    def merge(self, row: type[Base], **values: Any) -> None:
        """Have a row inserted, or the columns given set where its key is there already."""
        self._store.put([make_change(row, "merge", values)])

    def flow_opened(self, flow: Flow) -> None:
        """Put a flow into the index and the database."""
        self.index.add(flow)
        values = {
            "id": flow.id,
            "src": flow.key.src,
            "dst": flow.key.dst,
            "src_port": flow.key.src_port,
            "dst_port": flow.key.dst_port,
            "opened_ns": flow.opened_ns,
            "mss_bytes": flow.mss_bytes,
            "receiver_wscale": flow.receiver_wscale,
        }
        hop = {"flow_id": flow.id, "dpid": flow.dpid, "in_port": flow.in_port, "out_port": flow.out_port}
        self._store.put([make_change(FlowRow, "insert", values), make_change(HopRow, "insert", hop)])

    def flow_closed(self, flow: Flow, closed_ns: int, reason: str) -> None:
        """Take a flow out of the index and mark its row."""
        self.index.remove(flow.id)
        self.update(FlowRow, flow.id, closed_ns=closed_ns, close_reason=reason)

    def close(self) -> None:
        """Write what waits and stop; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        now_ns = time.time_ns()
        self.update(RunRow, self._run_id, last_seen_ns=now_ns, ended_ns=now_ns)
        self._store.close()

    def _heartbeat(self) -> Any:
        return make_change(RunRow, "update", {"id": self._run_id, "last_seen_ns": time.time_ns()})

    def _start_run(self, session: Session, adopt_within_s: float) -> int:
        now_ns = time.time_ns()
        last_seen_ns = session.scalar(select(func.max(RunRow.last_seen_ns)))
        run = RunRow(host=socket.gethostname(), pid=os.getpid(), started_ns=now_ns, last_seen_ns=now_ns)
        session.add(run)
        if last_seen_ns is not None and now_ns - last_seen_ns <= adopt_within_s * NS_PER_S:
            for flow in _open_flows(session):
                self.index.add(flow)
        else:
            lost = update(FlowRow).where(FlowRow.closed_ns.is_(None))
            session.execute(lost.values(closed_ns=now_ns, close_reason="lost"))
        left = update(ClampRow).where(ClampRow.lifted_ns.is_(None))
        session.execute(left.values(lifted_ns=now_ns, lift_reason="controller restarted"))
        session.flush()
        return run.id


def open_engine(url: str) -> Engine:
    """An engine for ``url``; an SQLite file and its folder are made, in WAL mode. Raises FlowDbError."""
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() != "sqlite":
            return create_engine(parsed, poolclass=NullPool)
        _make_file(parsed)
        engine = create_engine(parsed, poolclass=NullPool, connect_args={"timeout": _LOCKED_S})
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise DatabaseUnavailable(
            f"{url!r} is no database that can be used here ({error}); give a path, or a URL such as"
            " sqlite:////var/lib/weir/weir.db, in [flowdb] url or $WEIR_DB"
        ) from error
    event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _opened(url: str, engine: Engine, start: Any, adopt_within_s: float) -> int:
    """Make or check the tables and start the run, in one transaction."""
    try:
        with engine.begin() as connection:
            Base.metadata.create_all(connection)
            _check_schema(url, connection)
            with Session(connection) as session:
                run_id: int = start(session, adopt_within_s)
                session.commit()
                return run_id
    except (SQLAlchemyError, sqlite3.Error) as error:
        reason = str(getattr(error, "orig", error)).split("\n", 1)[0]
        raise DatabaseUnavailable(
            f"cannot open the flow database {make_url(url).render_as_string()}: {reason}; let this user"
            " write it, or name another in [flowdb] url or $WEIR_DB"
        ) from error


def _check_schema(url: str, connection: Any) -> None:
    tables = inspect(connection)
    for table in Base.metadata.sorted_tables:
        there = {column["name"] for column in tables.get_columns(table.name)}
        if missing := {column.name for column in table.columns} - there:
            raise SchemaMismatch(
                f"the flow database {make_url(url).render_as_string()} is another version's: its table"
                f" {table.name} lacks {', '.join(sorted(missing))}; move it away or name another in $WEIR_DB"
            )


def _make_file(url: URL) -> None:
    """Make an SQLite file for the owner and group alone, and its folder."""
    if not url.database or url.database == ":memory:":
        raise DatabaseUnavailable(
            "SQLite in memory cannot be shared; name a file in [flowdb] url or $WEIR_DB"
        )
    path = Path(url.database)
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o640))
    except OSError as error:
        raise DatabaseUnavailable(
            f"cannot write the flow database {path}: {error.strerror}; let this user write it, or name"
            " another in [flowdb] url or $WEIR_DB"
        ) from error


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _open_flows(session: Session) -> list[Flow]:
    rows = session.execute(
        select(FlowRow, HopRow).join(HopRow, HopRow.flow_id == FlowRow.id).where(FlowRow.closed_ns.is_(None))
    )
    return [
        Flow(
            id=row.id,
            key=FiveTuple(row.src, row.dst, row.src_port, row.dst_port),
            dpid=hop.dpid,
            in_port=hop.in_port,
            out_port=hop.out_port,
            opened_ns=row.opened_ns,
            mss_bytes=row.mss_bytes,
            receiver_wscale=row.receiver_wscale,
        )
        for row, hop in rows
    ]
