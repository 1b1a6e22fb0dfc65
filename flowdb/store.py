"""The write-behind store: rows go to SQL in the background, in batches, and nobody waits for it.

Changes are kept as one entry a row, later ones merged into it, so a flow that opens and closes between
two batches costs one INSERT. At most ``max_pending`` rows wait; past that, changes to rows that do not
wait already are refused and counted. While the database cannot be written the batch is kept and tried
again; a row that the database will never take (a value out of range, a parent that was refused) is
dropped and counted, so that it holds nothing up.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import and_, insert, update
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DataError, IntegrityError, InterfaceError, ProgrammingError
from sqlalchemy.orm import Session

from flowdb._native import native_threading
from flowdb.models import Base

LOG = logging.getLogger(__name__)

Verb = Literal["insert", "update", "merge"]
RowKey = tuple[type[Base], tuple[Any, ...]]
_VERB_ORDER: dict[Verb, int] = {"merge": 0, "insert": 1, "update": 2}
_TABLE_ORDER = {table: number for number, table in enumerate(Base.metadata.sorted_tables)}
_BAD_ROW = (IntegrityError, DataError, InterfaceError, ProgrammingError, OverflowError, TypeError, ValueError)


@dataclass(slots=True)
class Change:
    """What is to happen to one row: ``values`` holds its key and the columns to set."""

    row: type[Base]
    key: tuple[Any, ...]
    verb: Verb
    values: dict[str, Any]

    def then(self, later: Change) -> None:
        """Take a later change of the same row in."""
        self.values |= later.values
        if later.verb == "merge" and self.verb == "update":
            self.verb = "merge"


def make_change(row: type[Base], verb: Verb, values: dict[str, Any]) -> Change:
    """A checked change. Raises TypeError where a column is unknown or a key column is missing."""
    if unknown := values.keys() - row.__table__.columns.keys():
        raise TypeError(f"{row.__tablename__} has no column {', '.join(sorted(unknown))}")
    names = [column.name for column in row.__table__.primary_key]
    if missing := [name for name in names if name not in values]:
        raise TypeError(f"{row.__tablename__} needs its key {', '.join(missing)}")
    return Change(row, tuple(values[name] for name in names), verb, values)


@dataclass(frozen=True, slots=True)
class StoreCounters:
    """Rows written, rows waiting, changes lost (refused or dropped), and batches that failed."""

    written: int
    pending: int
    lost: int
    failures: int


class Store:
    """The background writer; ``put`` from any thread, ``close`` once.

    ``heartbeat`` gives the change that is written at least every ``heartbeat_s`` seconds, so that others
    see that this process lives. The thread is a native one under every framework, and it alone uses
    ``engine``; it does not log (see ``_native``), what it has to say is logged by the next caller.
    """

    def __init__(
        self,
        engine: Engine,
        heartbeat: Callable[[], Change],
        max_pending: int = 100_000,
        flush_s: float = 0.2,
        heartbeat_s: float = 5.0,
    ) -> None:
        threading = native_threading()
        self._engine = engine
        self._heartbeat = heartbeat
        self._heartbeat_s = heartbeat_s
        self._max_pending = max_pending
        self._flush_s = flush_s
        self._lock = threading.Lock()
        self._pending: dict[RowKey, Change] = {}
        self._in_flight = 0
        self._written = self._lost = self._failures = 0
        self._full = self._failing = False
        self._notices: deque[tuple[int, str]] = deque(maxlen=100)
        self._connection: Connection | None = None
        self._stopping = threading.Event()
        self._never = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flowdb-writer", daemon=True)
        self._thread.start()

    @property
    def counters(self) -> StoreCounters:
        with self._lock:
            pending = len(self._pending) + self._in_flight
            return StoreCounters(self._written, pending, self._lost, self._failures)

    def put(self, changes: Iterable[Change]) -> None:
        """Have changes written, in order for each row; returns at once."""
        with self._lock:
            for change in changes:
                self._put(change)
        self._log_notices()

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what waits, then stop; what cannot be written within ``timeout_s`` is lost, and logged."""
        self._stopping.set()
        self._thread.join(timeout_s)
        if left := self.counters.pending:
            self._notices.append((logging.ERROR, f"{left} rows could not be written and are lost"))
        self._log_notices()

    def _put(self, change: Change) -> None:
        waiting = self._pending.get((change.row, change.key))
        if waiting is not None:
            waiting.then(change)
        elif len(self._pending) + self._in_flight < self._max_pending:
            self._pending[change.row, change.key] = change
        else:
            self._lost += 1
            if not self._full:
                self._full = True
                text = f"{self._max_pending} rows wait for the database; further ones are refused"
                self._notices.append((logging.ERROR, text))

    def _log_notices(self) -> None:
        while self._notices:
            level, text = self._notices.popleft()
            LOG.log(level, "flow database: %s", text)

    def _run(self) -> None:
        next_heartbeat = time.monotonic() + self._heartbeat_s
        while not self._stopping.wait(self._flush_s):
            if time.monotonic() >= next_heartbeat:
                next_heartbeat = time.monotonic() + self._heartbeat_s
                self._put_quietly(self._heartbeat())
            self._write_pending()
        while self._pending:
            if not self._write_pending():
                self._never.wait(self._flush_s)
        self._disconnect()

    def _put_quietly(self, change: Change) -> None:
        with self._lock:
            self._put(change)

    def _write_pending(self) -> bool:
        with self._lock:
            batch, self._pending = self._pending, {}
            self._in_flight = len(batch)
        if not batch:
            return True
        dropped: list[str] = []
        try:
            self._write(_ordered(batch.values()), dropped)
        except Exception as error:  # whatever it is, the writer lives on
            self._keep(batch, error)
            return False
        with self._lock:
            self._in_flight = 0
            self._written += len(batch) - len(dropped)
            self._lost += len(dropped)
            self._full = False
            if self._failing:
                self._failing = False
                self._notices.append((logging.WARNING, "can be written again"))
            self._notices.extend((logging.ERROR, text) for text in dropped)
        return True

    def _keep(self, batch: dict[RowKey, Change], error: Exception) -> None:
        self._disconnect()
        with self._lock:
            later, self._pending = self._pending, batch
            self._in_flight = 0
            for change in later.values():
                self._put(change)
            self._failures += 1
            if not self._failing:
                self._failing = True
                text = f"cannot be written, trying again: {_first_line(error)}"
                self._notices.append((logging.ERROR, text))

    def _write(self, changes: list[Change], dropped: list[str]) -> None:
        if self._connection is None:
            self._connection = self._engine.connect()
        try:
            with Session(self._connection) as session, session.begin():
                _write_batch(session, changes)
        except _BAD_ROW:
            with Session(self._connection) as session, session.begin():
                dropped.extend(_write_singly(session, changes))

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception as error:
                self._notices.append((logging.DEBUG, f"closing: {_first_line(error)}"))


def _ordered(changes: Iterable[Change]) -> list[Change]:
    """Merges, then inserts with parents before children, then updates."""
    return sorted(changes, key=lambda c: (_VERB_ORDER[c.verb], _TABLE_ORDER[c.row.__table__]))  # type: ignore[index]


def _write_batch(session: Session, changes: list[Change]) -> None:
    rows: dict[type[Base], list[dict[str, Any]]] = {}
    for change in changes:
        if change.verb == "insert":
            rows.setdefault(change.row, []).append(change.values)
    for change in changes:
        if change.verb == "merge":
            session.merge(change.row(**change.values))
    session.flush()
    for row, values in rows.items():
        session.execute(insert(row), values)
    for change in changes:
        if change.verb == "update":
            _update(session, change)


def _write_singly(session: Session, changes: list[Change]) -> list[str]:
    """Write each row alone; returns a line for each that the database does not take."""
    dropped = []
    for change in changes:
        try:
            with session.begin_nested():
                _write_batch(session, [change])
        except _BAD_ROW as error:
            dropped.append(f"row {change.key} of {change.row.__tablename__} dropped: {_first_line(error)}")
    return dropped


def _update(session: Session, change: Change) -> None:
    columns = list(change.row.__table__.primary_key)
    where = and_(*(column == value for column, value in zip(columns, change.key, strict=True)))
    names = {column.name for column in columns}
    values = {name: value for name, value in change.values.items() if name not in names}
    session.execute(update(change.row).where(where).values(values))


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", error)).split("\n", 1)[0] or type(error).__name__
