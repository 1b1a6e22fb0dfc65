"""From a URL to an SQLAlchemy engine, and what can be wrong with either.

FlowDbError             anything that stops the database from being used
  DatabaseUnavailable   it cannot be reached, made, read or written
  SchemaMismatch        its tables are another version's, or missing
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
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from flowdb.priority import share_priority

_LOCKED_S = 5
_CONNECT_S = 5
_PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "cache_size=-65536")
"""Readers never wait for the writer; a commit survives a crash of any process; 64 MiB of cache."""
_KEPT = {"pool_pre_ping": True, "max_overflow": -1}
_NAME_ANOTHER = "name another in [flowdb] url or $WEIR_DB"


class FlowDbError(Exception):
    """The flow database cannot be used; the message says why and what to do."""


class DatabaseUnavailable(FlowDbError):
    """The database cannot be reached, made, read or written."""


class SchemaMismatch(FlowDbError):
    """The database's tables are not the ones that this version uses."""


def open_engine(url: str) -> Engine:
    """An engine to write with; an SQLite file and its folder are made, in WAL mode. Raises FlowDbError.

    An SQLite transaction takes the write lock as it begins, so it fails then or not at all.
    """
    return _engine(url)


def open_reader(url: str, keeps: bool = False) -> Engine:
    """An engine that only reads; nothing is made. Raises FlowDbError.

    ``keeps``: connections to PostgreSQL, each a process there that takes 10 ms to begin, until ``dispose``.
    """
    return _engine(url, read_only=True, keeps=keeps)


def shown(url: str) -> str:
    """A URL as it may be shown: without its password."""
    return make_url(url).render_as_string()


@contextmanager
def said_plainly(url: str, what: str = "open") -> Iterator[None]:
    """Turns a database's own error into one DatabaseUnavailable: cannot ``what`` the database, and why."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        said = first_line(error)
        raise DatabaseUnavailable(
            f"cannot {what} the flow database {shown(url)}: {said}; {_remedy(url, said)}"
        ) from error


def first_line(error: BaseException) -> str:
    """What a driver has to say, in a line."""
    text = str(getattr(error, "orig", error)).strip()
    return text.split("\n", 1)[0] or type(error).__name__


def _engine(url: str, read_only: bool = False, keeps: bool = False) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(parsed, read_only)
        if parsed.get_backend_name() != "postgresql":
            raise ArgumentError("neither SQLite nor PostgreSQL")
        pool: dict[str, Any] = _KEPT if keeps else {"poolclass": NullPool}
        parsed = parsed.set(drivername="postgresql+psycopg")
        engine = create_engine(parsed, connect_args={"connect_timeout": _CONNECT_S}, **pool)
    except ArgumentError as error:
        raise DatabaseUnavailable(
            f"{url!r} is no database that can be used here ({error}); give a path, or a URL such as"
            " sqlite:////var/lib/weir/weir.db or postgresql://weir@host/weir, in [flowdb] url or $WEIR_DB"
        ) from error
    event.listen(engine, "connect", share_priority)
    return engine


def _sqlite(url: URL, read_only: bool) -> Engine:
    if not url.database or url.database == ":memory:":
        raise DatabaseUnavailable(
            "SQLite in memory cannot be shared; name a file in [flowdb] url or $WEIR_DB"
        )
    path = Path(url.database)
    if not read_only:
        _make_file(path)
    elif not path.is_file():
        raise DatabaseUnavailable(f"there is no flow database {path}; `weir db init` makes it")
    mode = "ro" if read_only else "rw"
    url = url.set(database=f"file:{path.resolve()}", query={"mode": mode, "uri": "true"})
    engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": _LOCKED_S})
    event.listen(engine, "connect", _prepare_reader if read_only else _prepare_writer)
    event.listen(engine, "begin", _begin if read_only else partial(_begin_to_write, path))
    return engine


def _make_file(path: Path) -> None:
    """Make an SQLite file for the owner and group alone, and its folder."""
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o640))
    except OSError as error:
        raise DatabaseUnavailable(
            f"cannot write the flow database {path}: {error.strerror}; let this user write it, or"
            f" {_NAME_ANOTHER}"
        ) from error


def _remedy(url: str, said: str) -> str:
    if make_url(url).get_backend_name() != "sqlite":
        first = "start it, let this user in"
    elif "locked" in said:
        first = "try again when whoever holds it is done"
    else:
        first = "let this user write it"
    return f"{first}, or {_NAME_ANOTHER}"


def _prepare_reader(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # _begin begins, not the driver


def _prepare_writer(connection: Any, _record: Any) -> None:
    connection.isolation_level = None
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _begin_to_write(path: Path, connection: Connection) -> None:
    """SQLite would write on into a file that was deleted or replaced. Raises DatabaseUnavailable."""
    try:
        inode = path.stat().st_ino
    except FileNotFoundError:
        inode = None
    if inode is None or connection.info.setdefault("inode", inode) != inode:
        raise DatabaseUnavailable(f"{path} was deleted or replaced; put it back, or {_NAME_ANOTHER}")
    connection.exec_driver_sql("BEGIN IMMEDIATE")
