"""SQLAlchemy engines for the flow database, and its errors.

FlowDbError             the database cannot be used
  DatabaseUnavailable   it cannot be reached, created, read or written
    DatabaseDown        it does not answer now, but may later: a stopped server, a lock
  SchemaMismatch        its tables are missing, or belong to another version
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from flowdb.database_url import UnusableUrl, hide_password, parsed, without_password
from flowdb.postgres_priority import share_priority

_LOCKED_S = 5
_CONNECT_S = 5
_PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "cache_size=-65536")
"""Readers never wait for the writer; a commit survives a crash of any process; the cache has 64 MiB."""
_POOL = {"pool_pre_ping": True, "max_overflow": -1}
_OTHER_DATABASE = "name another in [flowdb] url or $WEIR_DB"


class FlowDbError(Exception):
    """The flow database cannot be used; the message says why and what to do."""


class DatabaseUnavailable(FlowDbError):
    """The database cannot be reached, created, read or written."""


class DatabaseDown(DatabaseUnavailable):
    """The database does not answer now. It may later, without a change of the configuration."""


class SchemaMismatch(FlowDbError):
    """The database's tables are missing, or belong to another version of Weir."""


def open_engine(url: str) -> Engine:
    """An engine that writes. Creates an SQLite file, in WAL mode, and its folder. Raises FlowDbError.

    An SQLite transaction takes the write lock when it begins, so a lock can fail it only there.
    """
    return _engine(url)


def open_reader(url: str, pooled: bool = False) -> Engine:
    """An engine that only reads, and creates nothing. Raises FlowDbError.

    ``pooled``: keep connections to PostgreSQL until ``dispose``; each is a process that takes time to start.
    """
    return _engine(url, read_only=True, pooled=pooled)


@contextmanager
def reporting_errors(url: str, action: str = "open") -> Iterator[None]:
    """Turn a database error into DatabaseUnavailable: "cannot ``action`` the flow database", and why."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        reason = hide_password(first_line(error), url)
        kind = DatabaseDown if _may_pass(url, error, reason) else DatabaseUnavailable
        raise kind(
            f"cannot {action} the flow database {without_password(url)}: {reason}; {_remedy(url, reason)}"
        ) from error


def first_line(error: BaseException) -> str:
    """The first line of a driver's message."""
    text = str(getattr(error, "orig", error)).strip()
    return text.split("\n", 1)[0] or type(error).__name__


def _engine(url: str, read_only: bool = False, pooled: bool = False) -> Engine:
    try:
        place = parsed(url)
        if place.get_backend_name() == "sqlite":
            return _sqlite(place, read_only)
        if place.get_backend_name() != "postgresql":
            raise UnusableUrl("neither SQLite nor PostgreSQL")
        pool: dict[str, Any] = _POOL if pooled else {"poolclass": NullPool}
        place = place.set(drivername="postgresql+psycopg")
        engine = create_engine(place, connect_args={"connect_timeout": _CONNECT_S}, **pool)
    except (UnusableUrl, ArgumentError) as error:
        why = hide_password(str(error), url)
        raise DatabaseUnavailable(
            f"{without_password(url)!r} is not a usable database ({why}); give a path, or a URL such as"
            " sqlite:////var/lib/weir/weir.db or postgresql://weir@host/weir, in [flowdb] url or $WEIR_DB"
        ) from error
    event.listen(engine, "connect", share_priority)
    return engine


def _sqlite(url: URL, read_only: bool) -> Engine:
    if not url.database or url.database == ":memory:":
        raise DatabaseUnavailable(
            "an SQLite database in memory cannot be shared; name a file in [flowdb] url or $WEIR_DB"
        )
    path = Path(url.database)
    if not read_only:
        _make_file(path)
    elif not path.is_file():
        raise DatabaseUnavailable(f"there is no flow database {path}; create it: `weir db init`")
    mode = "ro" if read_only else "rw"
    url = url.set(database=f"file:{path.resolve()}", query={"mode": mode, "uri": "true"})
    engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": _LOCKED_S})
    event.listen(engine, "connect", _prepare_reader if read_only else _prepare_writer)
    event.listen(engine, "begin", _begin if read_only else partial(_begin_to_write, path))
    return engine


def _make_file(path: Path) -> None:
    """Create an SQLite file that only its owner and group may read, and its folder."""
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o640))
    except OSError as error:
        raise DatabaseUnavailable(
            f"cannot write the flow database {path}: {error.strerror}; give this user write access, or"
            f" {_OTHER_DATABASE}"
        ) from error


def _may_pass(url: str, error: Exception, reason: str) -> bool:
    """Whether an error may pass without a change of the configuration."""
    if parsed(url).get_backend_name() == "sqlite":
        return "locked" in reason
    return isinstance(error, OperationalError)


def _remedy(url: str, reason: str) -> str:
    if parsed(url).get_backend_name() != "sqlite":
        first = "start the server, give this user access"
    elif "locked" in reason:
        first = "try again when the other program has finished"
    else:
        first = "give this user write access"
    return f"{first}, or {_OTHER_DATABASE}"


def _prepare_reader(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # _begin starts transactions, not the driver


def _prepare_writer(connection: Any, _record: Any) -> None:
    connection.isolation_level = None
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _begin_to_write(path: Path, connection: Connection) -> None:
    """Raises DatabaseUnavailable if the file was deleted or replaced: SQLite would write to the old one."""
    try:
        inode = path.stat().st_ino
    except FileNotFoundError:
        inode = None
    if inode is None or connection.info.setdefault("inode", inode) != inode:
        raise DatabaseUnavailable(f"{path} was deleted or replaced; put it back, or {_OTHER_DATABASE}")
    connection.exec_driver_sql("BEGIN IMMEDIATE")
