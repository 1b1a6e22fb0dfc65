"""The dashboard's access to the flow database: reads with a time limit; commands are the only writes.

TooSlow   a query took longer than the limit
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session

from flowdb import schema
from flowdb.clock import Clock
from flowdb.commands import Kind, request_command
from flowdb.engine import FlowDbError, open_engine, open_reader, reporting_errors
from flowdb.runs import now_of_runs

SCHEMA_CHECK_S = 10.0
_STEPS_PER_CHECK = 20_000
_PG_CANCELED = "57014"


class TooSlow(FlowDbError):
    """A query took longer than the limit."""


class Database:
    """Sessions on the database at ``url``. It is opened at first use, so that a page can report errors."""

    def __init__(self, url: str, limit_s: float = 5.0) -> None:
        self.url = url
        self._limit_s = limit_s
        self._clock = Clock()
        self._reader: Engine | None = None
        self._checked_until = 0.0
        self._lock = Lock()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session that sees a consistent state of the database. Raises FlowDbError."""
        engine = self._engine()
        try:
            with reporting_errors(self.url, "read"), engine.connect() as connection:
                self._check(connection)
                with Session(connection) as session:
                    yield session
        except FlowDbError as error:
            self._checked_until = 0.0
            if _was_stopped(error.__cause__):
                raise TooSlow(
                    f"the query took longer than {self._limit_s:g} s and was stopped; narrow the filter"
                ) from error
            raise

    def now_ns(self, session: Session) -> int:
        """The present time by the controllers' clock: ages do not follow this machine's clock."""
        return now_of_runs(session, self._clock)

    def ask(self, kind: Kind, arguments: Mapping[str, Any], asked_by: str) -> int:
        """Insert a command for the controllers; returns its id. Raises FlowDbError."""
        with self.reading():
            pass  # raises if the database does not exist; opening it for writing would create it
        with reporting_errors(self.url, "write"), open_engine(self.url).begin() as connection:
            return request_command(connection, kind, arguments, asked_by)

    def _engine(self) -> Engine:
        with self._lock:
            if self._reader is None:
                engine = open_reader(self.url, pooled=True)
                atexit.register(engine.dispose)
                event.listen(engine, "begin", self._limit)
                self._reader = engine
            return self._reader

    def _check(self, connection: Connection) -> None:
        if time.monotonic() >= self._checked_until:
            schema.require_newest(connection, self.url)
            self._checked_until = time.monotonic() + SCHEMA_CHECK_S

    def _limit(self, connection: Connection) -> None:
        """Let the database stop a query after the limit."""
        if connection.dialect.name == "postgresql":
            limit_ms = int(self._limit_s * 1000)
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {limit_ms}")
            return
        ends_s = time.monotonic() + self._limit_s
        raw: Any = connection.connection.driver_connection
        raw.set_progress_handler(lambda: time.monotonic() > ends_s, _STEPS_PER_CHECK)


def _was_stopped(error: BaseException | None) -> bool:
    if not isinstance(error, DBAPIError):
        return False
    stopped_sqlite = isinstance(error, OperationalError) and "interrupted" in str(error.orig)
    return stopped_sqlite or getattr(error.orig, "sqlstate", None) == _PG_CANCELED
