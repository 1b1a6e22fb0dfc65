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
from typing import Any

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DataError, IntegrityError, InterfaceError, ProgrammingError

from flowdb._native import native_threading
from flowdb.changes import Change, in_order, write
from flowdb.engine import first_line
from flowdb.models import Base

LOG = logging.getLogger(__name__)

RowKey = tuple[type[Base], tuple[Any, ...]]
_BAD_ROW = (IntegrityError, DataError, InterfaceError, ProgrammingError, OverflowError, TypeError, ValueError)


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
            self._write(in_order(batch.values()), dropped)
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
                text = f"cannot be written, trying again: {first_line(error)}"
                self._notices.append((logging.ERROR, text))

    def _write(self, changes: list[Change], dropped: list[str]) -> None:
        if self._connection is None:
            self._connection = self._engine.connect()
        with self._connection.begin():
            _write_what_is_taken(self._connection, changes, dropped)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception as error:
                self._notices.append((logging.DEBUG, f"closing: {first_line(error)}"))


def _write_what_is_taken(connection: Connection, changes: list[Change], dropped: list[str]) -> None:
    """Write all changes, or by halves what the database takes; ``dropped`` gets a line for each other."""
    try:
        with connection.begin_nested():
            write(connection, changes)
    except _BAD_ROW as error:
        if len(changes) == 1:
            (change,) = changes
            dropped.append(f"row {change.key} of {change.row.__tablename__} dropped: {first_line(error)}")
            return
        middle = len(changes) // 2
        for half in (changes[:middle], changes[middle:]):
            _write_what_is_taken(connection, half, dropped)
