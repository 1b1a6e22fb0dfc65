"""The write-behind store: rows go to SQL in the background, in batches, and nobody waits for it.

Changes are kept as one entry a row, later ones merged into it, so a flow that opens and closes between
two batches costs one INSERT. At most ``max_pending`` entries wait; past that, changes to rows that do not
wait already are refused and counted. While the database cannot be written the batch is kept and tried
again; a row that the database will never take (a value out of range, a parent that was refused) is
dropped and counted, so that it holds nothing up.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import psycopg
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    ProgrammingError,
    StatementError,
)

from flowdb._native import native_threading
from flowdb.changes import Change, in_order, write
from flowdb.engine import first_line
from flowdb.models import Base

LOG = logging.getLogger(__name__)

MAX_BATCH = 20_000
"""Changes of one transaction: bounds what a crash while catching up can lose, and how long others wait."""

RowKey = tuple[type[Base], tuple[Any, ...]]
Notice = tuple[int, str]
"""What is to be logged: the level and the text."""


@dataclass(slots=True)
class Chore:
    """What the writer's thread does every ``every_s`` beside writing, in a transaction.

    ``do`` says whether there is more of it, to be done after the next batch.
    """

    every_s: float
    do: Callable[[Connection], bool]
    due_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StoreCounters:
    """Changes written, waiting, and lost (refused or dropped), and turns that failed.

    ``lag_s``: how long the change that has waited longest waits, 0 where none does.
    """

    written: int
    pending: int
    lost: int
    failures: int
    lag_s: float


class Store:
    """The background writer; ``put`` from any thread, ``close`` once.

    The thread is a native one under every framework, and it alone uses ``engine``; it does not log (see
    ``_native``), what it has to say is logged by the next caller.
    """

    def __init__(
        self,
        engine: Engine,
        chores: Sequence[Chore] = (),
        max_pending: int = 100_000,
        flush_s: float = 0.2,
    ) -> None:
        threading = native_threading()
        self._engine = engine
        self._chores = chores
        self._max_pending = max_pending
        self._flush_s = flush_s
        self._lock = threading.Lock()
        self._pending: dict[RowKey, Change] = {}
        self._batch: list[Change] = []
        self._waiting_since_s: float | None = None
        self._batch_since_s: float | None = None
        self._written = self._lost = self._failures = 0
        self._full = self._failing = False
        self._notices: deque[Notice] = deque(maxlen=100)
        self._connection: Connection | None = None
        self._stopping = threading.Event()
        self._never = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flowdb-writer", daemon=True)
        self._thread.start()

    @property
    def counters(self) -> StoreCounters:
        with self._lock:
            pending = len(self._pending) + len(self._batch)
            since_s = self._batch_since_s or self._waiting_since_s
            lag_s = time.monotonic() - since_s if since_s is not None else 0.0
            return StoreCounters(self._written, pending, self._lost, self._failures, lag_s)

    def put(self, changes: Iterable[Change]) -> None:
        """Have changes written, in order for each row; returns at once."""
        with self._lock:
            for change in changes:
                self._put(change)
        log_notices(self._notices)

    def warn(self, text: str) -> None:
        """Have the next caller log a warning."""
        self._notices.append((logging.WARNING, text))

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what waits, then stop; what cannot be written within ``timeout_s`` is lost, and logged."""
        self._stopping.set()
        self._thread.join(timeout_s)
        if left := self.counters.pending:
            self._notices.append((logging.ERROR, f"{left} changes could not be written and are lost"))
        log_notices(self._notices)

    def _put(self, change: Change) -> None:
        key = change.row, change.key
        waiting = self._pending.get(key)
        if waiting is not None:
            waiting.then(change)
        elif len(self._pending) + len(self._batch) < self._max_pending:
            self._pending[key] = change
            if self._waiting_since_s is None:
                self._waiting_since_s = time.monotonic()
        else:
            self._lost += 1
            if not self._full:
                self._full = True
                text = f"{self._max_pending} changes wait for the database; further ones are refused"
                self._notices.append((logging.ERROR, text))

    def _run(self) -> None:
        more = False
        while more or not self._stopping.wait(self._flush_s):
            more = self._write_pending() and bool(self._pending) and not self._stopping.is_set()
            self._do_chores()
        while self._pending or self._batch:
            if not self._write_pending():
                self._never.wait(self._flush_s)
        self._disconnect()

    def _do_chores(self) -> None:
        for chore in self._chores:
            if (now_s := time.monotonic()) < chore.due_s:
                continue
            try:
                with self._connected().begin():
                    more = chore.do(self._connected())
                chore.due_s = 0.0 if more else now_s + chore.every_s
                self._succeed()
            except Exception as error:  # whatever it is, the writer lives on
                self._fail(error)
                return

    def _write_pending(self) -> bool:
        """Write the batch that is next; returns whether the database took it. One that it did not is kept."""
        if not self._batch:
            self._take_batch()
        if not self._batch:
            return True
        try:
            dropped = _write_what_is_taken(self._connected(), self._batch)
        except Exception as error:  # whatever it is, the writer lives on
            self._fail(error)
            return False
        with self._lock:
            self._written += len(self._batch) - len(dropped)
            self._lost += len(dropped)
            self._batch, self._batch_since_s = [], None
            self._full = False
            self._notices.extend((logging.ERROR, text) for text in dropped)
        self._succeed()
        return True

    def _take_batch(self) -> None:
        with self._lock:
            keys = list(islice(self._pending, MAX_BATCH))
            if len(keys) == len(self._pending):
                self._batch, self._pending = list(self._pending.values()), {}
            else:
                self._batch = [self._pending.pop(key) for key in keys]
            self._batch_since_s = self._waiting_since_s
            self._waiting_since_s = time.monotonic() if self._pending else None

    def _succeed(self) -> None:
        if self._failing:
            self._failing = False
            self._notices.append((logging.WARNING, "can be written again"))

    def _fail(self, error: Exception) -> None:
        self._disconnect()
        with self._lock:
            self._failures += 1
            if not self._failing:
                self._failing = True
                text = f"cannot be written, trying again: {first_line(error)}"
                self._notices.append((logging.ERROR, text))

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception as error:
                self._notices.append((logging.DEBUG, f"closing: {first_line(error)}"))


def log_notices(notices: deque[Notice]) -> None:
    """Log what waits there."""
    while notices:
        level, text = notices.popleft()
        LOG.log(level, "flow database: %s", text)


def _write_what_is_taken(connection: Connection, changes: list[Change]) -> list[str]:
    """Write all changes, or else those that the database takes; returns a line for each of the others."""
    try:
        with connection.begin():
            write(connection, changes, fresh=True)
        return []
    except Exception as error:
        if not _is_of_the_row(error):
            raise
    with connection.begin():
        return _write_by_halves(connection, in_order(changes))


def _write_by_halves(connection: Connection, changes: list[Change]) -> list[str]:
    try:
        with connection.begin_nested():
            write(connection, changes)
        return []
    except Exception as error:
        if not _is_of_the_row(error):
            raise
        if len(changes) == 1:
            (change,) = changes
            return [f"row {change.key} of {change.row.__tablename__} dropped: {first_line(error)}"]
    middle = len(changes) // 2
    return [
        line for half in (changes[:middle], changes[middle:]) for line in _write_by_halves(connection, half)
    ]


def _is_of_the_row(error: Exception) -> bool:
    """Whether a row is to blame, and not the database, its schema or the way there."""
    if isinstance(error, psycopg.Error):  # of a COPY
        return isinstance(error, psycopg.DataError | psycopg.IntegrityError)
    if not isinstance(error, DBAPIError):
        return isinstance(error, StatementError | OverflowError | TypeError | ValueError)
    if error.connection_invalidated or str(getattr(error.orig, "sqlstate", None)).startswith("42"):
        return False  # SQLSTATE class 42: a table or a right is missing
    return isinstance(error, IntegrityError | DataError | InterfaceError | ProgrammingError)
