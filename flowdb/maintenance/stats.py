"""How much is in the database, of what time, and who writes to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.engine import Connection

from flowdb.clock import Clock
from flowdb.flow import NS_PER_S
from flowdb.models import TIMES, Base, RunRow
from flowdb.runs import ALIVE_FOR_S, is_ahead, silent_ns


@dataclass(frozen=True, slots=True)
class TableStats:
    """The number of a table's rows, and the times of the oldest and the newest (None if there are none)."""

    name: str
    rows: int
    first_ns: int | None
    last_ns: int | None


@dataclass(frozen=True, slots=True)
class Running:
    """A controller that writes to the database now."""

    host: str
    pid: int
    seen_s_ago: float


@dataclass(frozen=True, slots=True)
class Stats:
    """``size_bytes``: the size on disk, including free pages."""

    size_bytes: int
    tables: tuple[TableStats, ...]
    running: tuple[Running, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def stats(connection: Connection, clock: Clock) -> Stats:
    """Count the rows of every table. This reads the whole database."""
    running = connection.execute(select(RunRow).where(RunRow.ended_ns.is_(None))).all()
    seen = ((run, silent_ns(run, clock) / NS_PER_S) for run in running if not is_ahead(run, clock))
    return Stats(
        size_bytes=_size_bytes(connection),
        tables=tuple(_table(connection, name) for name in sorted(Base.metadata.tables)),
        running=tuple(Running(run.host, run.pid, ago_s) for run, ago_s in seen if ago_s < ALIVE_FOR_S),
    )


def _table(connection: Connection, name: str) -> TableStats:
    table = Base.metadata.tables[name]
    rows = connection.execute(select(func.count()).select_from(table)).scalar_one()
    if name not in TIMES:
        return TableStats(name, rows, None, None)
    # Two queries: each is one step in the index. One query for both would read every row.
    at = table.c[TIMES[name]]
    first_ns, last_ns = (connection.execute(select(edge(at))).scalar() for edge in (func.min, func.max))
    return TableStats(name, rows, first_ns, last_ns)


def _size_bytes(connection: Connection) -> int:
    if connection.dialect.name == "sqlite":
        size = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    else:
        size = "SELECT pg_database_size(current_database())"
    return int(connection.execute(text(size)).scalar_one())
