"""Flow databases: SQLite, and a private PostgreSQL server if this machine has PostgreSQL."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flowdb import schema
from flowdb.db import FlowDb
from flowdb.engine import open_engine
from tests.support.database.postgres import Postgres
from tests.support.database.rows import put_tables

KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
WITH_TABLES = "tables"


@pytest.fixture(scope="package")
def postgres() -> Iterator[Postgres]:
    """A cluster that keeps a database with Weir's tables. It ends with the unit tests."""
    with Postgres() as cluster:
        engine = open_engine(cluster.url)
        schema.upgrade(engine, cluster.url)
        engine.dispose()
        cluster.keep(WITH_TABLES)
        yield cluster


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of an SQLite file that does not exist."""
    return f"sqlite:///{tmp_path}/weir/flow.db"


@pytest.fixture(params=KINDS)
def empty_url(request: pytest.FixtureRequest, sqlite_url: str) -> str:
    """Each kind of database in turn, without tables."""
    if request.param == "sqlite":
        return sqlite_url
    cluster: Postgres = request.getfixturevalue("postgres")
    cluster.make_database()
    return cluster.url


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, sqlite_url: str) -> str:
    """Each kind of database in turn, with Weir's tables and nothing in them."""
    if request.param == "sqlite":
        put_tables(Path(sqlite_url.removeprefix("sqlite:///")))
        return sqlite_url
    cluster: Postgres = request.getfixturevalue("postgres")
    cluster.make_database(like=WITH_TABLES)
    return cluster.url


@pytest.fixture
def open_db() -> Iterator[Callable[..., FlowDb]]:
    """Opens FlowDbs, and closes them at the end."""
    opened = []

    def open_one(*args: Any, **kwargs: Any) -> FlowDb:
        opened.append(FlowDb(*args, **kwargs))
        return opened[-1]

    yield open_one
    for db in opened:
        db.close()
