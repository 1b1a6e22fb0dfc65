"""Flow databases: SQLite, and a private PostgreSQL where this machine has one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flowdb import schema
from flowdb.db import FlowDb
from flowdb.engine import open_engine
from tests.unit.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres() as cluster:
        yield cluster


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """An SQLite file that is not there yet."""
    return f"sqlite:///{tmp_path}/weir/flow.db"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty_url(request: pytest.FixtureRequest, sqlite_url: str) -> str:
    """Each kind of database in turn, without tables."""
    if request.param == "sqlite":
        return sqlite_url
    cluster: Postgres = request.getfixturevalue("postgres")
    cluster.make_database()
    return cluster.url


@pytest.fixture
def url(empty_url: str) -> str:
    """Each kind of database in turn, with Weir's tables and nothing in them."""
    schema.upgrade(open_engine(empty_url), empty_url)
    return empty_url


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
