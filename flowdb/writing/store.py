"""The write-behind store: a thread writes rows to SQL in batches, and no caller waits for it.

The store keeps one entry for each changed row and merges later changes into it, so a flow that opens and
closes between two batches costs one INSERT. At most ``max_pending`` entries wait. When that limit is reached,
changes of rows without an entry are refused and counted. No switch can fill these places alone
(``SharedPlaces``). While the database cannot be written, the store
keeps the batch and tries again. A row that the database will never accept (a value out of range, a parent
that was refused) is dropped and counted, so that the other rows can be written.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

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

from flowdb.engine import first_line
from flowdb.native_threads import native_threading
from flowdb.writing.changes import Change, RowKey, in_write_order, write
from weir_base.log_limit import LogLimit, more_held_back
from weir_base.shared_places import SharedPlaces

LOG = logging.getLogger(__name__)

MAX_BATCH = 20_000
"""Limit of the changes in one transaction. It bounds the loss by a crash and the time of the lock.

Rows to which these changes refer come on top.
"""
_LOG_EVERY_S = 10.0
"""The time between two lines about refused changes, of a switch and of all."""

Notice = tuple[int, str]
"""A log line that waits: its level and its text."""


@dataclass(slots=True)
class PeriodicTask:
    """Work of the writer's thread besides writing, every ``every_s``, each time in a transaction.

    ``run`` returns whether work is left; if so it runs again after the next batch. No transaction begins if
    ``has_work`` denies that there is any; it may use the connection of the driver. ``committed`` is called
    after the transaction of ``run`` was committed.
    """

    every_s: float
    run: Callable[[Connection], bool]
    has_work: Callable[[Connection], bool] = lambda _: True
    committed: Callable[[], None] = lambda: None
    due_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StoreCounters:
    """Changes that were written, that wait, and that were lost (refused or dropped); failed transactions.

    ``lag_s``: how long the oldest waiting change has waited; 0 if none waits.
    """

    written: int
    pending: int
    lost: int
    failures: int
    lag_s: float


class Store:
    """The background writer. Call ``put`` from any thread, and ``close`` once.

    The thread is native under every framework (see ``native_threads``), and only it uses ``engine``. It must
    not log, because logging takes locks that a framework may have replaced; the next caller logs its notices.
    """

    def __init__(
        self,
        engine: Engine,
        tasks: Sequence[PeriodicTask] = (),
        max_pending: int = 100_000,
        flush_s: float = 0.2,
    ) -> None:
        threading = native_threading()
        self._engine = engine
        self._tasks = tasks
        self._flush_s = flush_s
        self._lock = threading.Lock()
        self._places = SharedPlaces(max_pending)
        self._pending: dict[RowKey, Change] = {}
        self._batch: list[Change] = []
        self._written = self._lost = self._failures = 0
        self._mark = self._batch_mark = self._written_mark = 0
        self._refusals = LogLimit(_LOG_EVERY_S)
        self._failing = False
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
            oldest = self._batch[0] if self._batch else next(iter(self._pending.values()), None)
            lag_s = time.monotonic() - oldest.since_s if oldest else 0.0
            return StoreCounters(self._written, pending, self._lost, self._failures, lag_s)

    @property
    def written_mark(self) -> int:
        """The last ``mark`` up to which all changes are written or refused; 0: none is."""
        with self._lock:
            return self._written_mark

    def put(self, changes: Iterable[Change], mark: int = 0, since_s: float | None = None) -> None:
        """Queue changes for writing; returns at once. Changes of one row are written in order.

        ``mark``: a number that grows from call to call, for ``written_mark``. ``since_s``: the monotonic time
        since which the changes wait; None: now.
        """
        since_s = time.monotonic() if since_s is None else since_s
        with self._lock:
            for change in changes:
                change.since_s = since_s
                self._put(change)
            self._mark = mark
        log_notices(self._notices)

    def warn(self, text: str) -> None:
        """Let the next caller log a warning."""
        self._notices.append((logging.WARNING, text))

    def close(self, timeout_s: float = 10.0) -> None:
        """Write the waiting changes, then stop. Changes left after ``timeout_s`` are lost and logged."""
        self._stopping.set()
        self._thread.join(timeout_s)
        if left := self.counters.pending:
            self._notices.append((logging.ERROR, f"{left} changes could not be written and are lost"))
        log_notices(self._notices)

    def _put(self, change: Change) -> None:
        key = change.row, change.key
        waiting = self._pending.get(key)
        if waiting is not None:
            waiting.absorb(change)
        elif self._places.has_place(change.dpid):
            self._places.take(change.dpid)
            self._pending[key] = change
        else:
            self._lost += 1
            self._refuse(change)

    def _refuse(self, change: Change) -> None:
        """Let the next caller log that changes are refused, at a bounded rate."""
        is_full = not self._places.has_place(None)
        held_back = self._refusals.passes(None if is_full else change.dpid, time.monotonic())
        if held_back is None:
            return
        if is_full:
            text = f"{self._places.places} changes wait for the database; further ones are refused"
        else:
            text = f"too many changes by switch {change.dpid:016x} wait for the database; it may add no more"
        self._notices.append((logging.ERROR, text + more_held_back(held_back)))

    def _run(self) -> None:
        more = False
        while more or not self._stopping.wait(self._flush_s):
            more = self._write_pending() and bool(self._pending) and not self._stopping.is_set()
            self._do_tasks()
        while self._pending or self._batch:
            if not self._write_pending():
                self._never.wait(self._flush_s)
        self._disconnect()

    def _do_tasks(self) -> None:
        for task in self._tasks:
            if (now_s := time.monotonic()) < task.due_s:
                continue
            try:
                more = task.has_work(self._connected()) and self._do(task)
                task.due_s = 0.0 if more else now_s + task.every_s
                self._succeed()
            except Exception as error:  # no error may stop the writer
                self._fail(error)
                return

    def _do(self, task: PeriodicTask) -> bool:
        with self._connected().begin():
            is_work_left = task.run(self._connected())
        task.committed()
        return is_work_left

    def _write_pending(self) -> bool:
        """Write the next batch; returns whether that succeeded. A failed batch is kept for the next call."""
        if not self._batch:
            self._take_batch()
        if not self._batch:
            self._written_mark = self._batch_mark
            return True
        try:
            dropped = _write_acceptable(self._connected(), self._batch)
        except Exception as error:  # no error may stop the writer
            self._fail(error)
            return False
        with self._lock:
            self._written += len(self._batch) - len(dropped)
            self._lost += len(dropped)
            for change in self._batch:
                self._places.give_back(change.dpid)
            self._batch = []
            self._written_mark = self._batch_mark
            self._notices.extend((logging.ERROR, text) for text in dropped)
        self._succeed()
        return True

    def _take_batch(self) -> None:
        with self._lock:
            keys = list(islice(self._pending, MAX_BATCH))
            if len(keys) == len(self._pending):
                self._batch, self._pending = list(self._pending.values()), {}
                self._batch_mark = self._mark
            else:
                self._batch = [self._pending.pop(key) for key in keys]
                self._take_parents()

    def _take_parents(self) -> None:
        """Take the waiting rows to which the batch refers: a change may refer to a row that came later."""
        for change in self._batch:  # also those that this loop appends
            parents = [self._pending.pop(key, None) for key in change.parents()]
            self._batch.extend(parent for parent in parents if parent is not None)

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
            self._use(self._connection)
        return self._connection

    def _use(self, connection: Connection) -> None:
        """A new connection, before anything is written. An error is handled like one of a write."""

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception as error:
                self._notices.append((logging.DEBUG, f"closing the connection: {first_line(error)}"))


def log_notices(notices: deque[Notice]) -> None:
    """Log the notices that wait, and remove them."""
    while notices:
        level, text = notices.popleft()
        LOG.log(level, "flow database: %s", text)


def _write_acceptable(connection: Connection, changes: list[Change]) -> list[str]:
    """Write all changes that the database accepts; returns a line for each change that it refused."""
    try:
        with connection.begin():
            write(connection, changes, fresh=True)
        return []
    except Exception as error:
        if not _is_the_rows_fault(error):
            raise
    with connection.begin():
        return _write_by_halves(connection, in_write_order(changes))


def _write_by_halves(connection: Connection, changes: list[Change]) -> list[str]:
    try:
        with connection.begin_nested():
            write(connection, changes)
        return []
    except Exception as error:
        if not _is_the_rows_fault(error):
            raise
        if len(changes) == 1:
            (change,) = changes
            return [f"row {change.key} of {change.row.__tablename__} dropped: {first_line(error)}"]
    middle = len(changes) // 2
    return [
        line for half in (changes[:middle], changes[middle:]) for line in _write_by_halves(connection, half)
    ]


def _is_the_rows_fault(error: Exception) -> bool:
    """Whether a row caused the error, and not the database, its schema or the connection."""
    if isinstance(error, psycopg.Error):  # during a COPY
        return isinstance(error, psycopg.DataError | psycopg.IntegrityError)
    if not isinstance(error, DBAPIError):
        return isinstance(error, StatementError | OverflowError | TypeError | ValueError)
    if error.connection_invalidated or str(getattr(error.orig, "sqlstate", None)).startswith("42"):
        return False  # SQLSTATE class 42: a table or a permission is missing
    return isinstance(error, IntegrityError | DataError | InterfaceError | ProgrammingError)
