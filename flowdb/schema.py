"""The version of the database's tables, compared with Alembic's revisions in ``migrations``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import inspect
from sqlalchemy.engine import Connection, Engine

from flowdb.database_url import without_password
from flowdb.engine import SchemaMismatch, reporting_errors
from flowdb.models import Base

BEFORE_VERSIONS = "0001"
"""The revision of tables that were created before databases recorded a version."""


def newest() -> str:
    """The revision that this version of Weir uses."""
    head = _scripts().get_current_head()
    assert head is not None  # noqa: S101 - the folder has revisions
    return head


def version(connection: Connection) -> str | None:
    """The database's revision; None for an empty one."""
    if (revision := MigrationContext.configure(connection).get_current_revision()) is not None:
        return revision
    return BEFORE_VERSIONS if inspect(connection).has_table("runs") else None


def require_newest(connection: Connection, url: str) -> None:
    """Raises SchemaMismatch, with the remedy, if the database does not have the newest revision."""
    there, wanted = version(connection), newest()
    database = f"the flow database {without_password(url)}"
    if there == wanted:
        return
    if there is None:
        raise SchemaMismatch(f"{database} has none of Weir's tables; create them: `weir db init`")
    if _is_known(there):
        raise SchemaMismatch(
            f"{database} has an older version ({there}, not {wanted}); stop its"
            " controllers, then run `weir db upgrade`"
        )
    raise SchemaMismatch(
        f"{database} has a newer version ({there}, not {wanted}); update Weir, or name"
        " another in [flowdb] url or $WEIR_DB"
    )


def prepare(engine: Engine, url: str) -> None:
    """Create the tables of an empty SQLite database. Raises SchemaMismatch if others are not the newest."""
    with engine.begin() as connection:
        is_empty = not inspect(connection).get_table_names()
        if not is_empty or engine.dialect.name != "sqlite":
            require_newest(connection, url)
            return
    upgrade(engine, url)


def upgrade(engine: Engine, url: str) -> tuple[str | None, str]:
    """Bring the database to the newest revision, or create its tables, in one transaction.

    Returns the revision before and after. Raises FlowDbError.
    """
    with reporting_errors(url, "upgrade"), _without_foreign_keys(engine) as connection, connection.begin():
        before = version(connection)
        if before is not None and not _is_known(before):
            require_newest(connection, url)
        config = _config(connection)
        if before == BEFORE_VERSIONS:
            command.stamp(config, BEFORE_VERSIONS)
        command.upgrade(config, "head")
        return before, newest()


@contextmanager
def _without_foreign_keys(engine: Engine) -> Iterator[Connection]:
    """SQLite changes a table by replacing it. Rows that refer to the old table must not be deleted."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.connection.cursor().execute("PRAGMA foreign_keys=OFF")
        yield connection


def _is_known(revision: str) -> bool:
    try:
        return _scripts().get_revision(revision) is not None
    except CommandError:
        return False


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config(None))


def _config(connection: Connection | None) -> Config:
    config = Config(attributes={"connection": connection, "target_metadata": Base.metadata})
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config
