"""Deletes old rows, a limited number at a time, so that no other user of the database waits long."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import CursorResult, Select, delete, select, text, tuple_
from sqlalchemy.engine import Connection

from flowdb.clock import Clock
from flowdb.models import TIMES, AlarmRow, Base, CommandRow, FlowRow, HopRow, PortSampleRow
from flowdb.runs import most_behind_ns

NS_PER_DAY = 86_400_000_000_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How long rows are kept, in days, and how much may be kept. Open flows are always kept.

    ``flows_days``: closed flows with their hops, alarms, decisions, clamps, and commands that are done.
    ``samples_days``: samples of port counters. ``most_bytes``: limit of ``used_bytes``. Above it the oldest
    rows are deleted, whatever their age; None: no limit.
    """

    flows_days: float
    samples_days: float
    most_bytes: int | None = None


_USED_IN_SQLITE = """
SELECT (page_count - freelist_count) * page_size
FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()
"""
_USED_IN_POSTGRESQL = """
SELECT COALESCE(SUM(n_live_tup * (28 + COALESCE(width, 100))
    * (1 + pg_indexes_size(relid)::float / GREATEST(pg_table_size(relid), 8192))), 0)
FROM pg_stat_user_tables LEFT JOIN (
    SELECT schemaname, tablename, SUM(avg_width) AS width FROM pg_stats GROUP BY schemaname, tablename
) AS widths ON widths.schemaname = pg_stat_user_tables.schemaname AND tablename = relname
"""
"""Rows that are not deleted x their mean width with header, and the same for their part of the indexes."""


def used_bytes(connection: Connection) -> int:
    """The bytes that hold rows, without the free space that deleted rows left.

    PostgreSQL does not count them, so they are estimated from its statistics of rows and columns.
    """
    is_sqlite = connection.dialect.name == "sqlite"
    return int(connection.execute(text(_USED_IN_SQLITE if is_sqlite else _USED_IN_POSTGRESQL)).scalar_one())


def prune(connection: Connection, retention: Retention, clock: Clock, limit: int) -> dict[str, int]:
    """Delete at most ``limit`` old rows of each table, oldest first, with the rows that refer to them.

    If a recent run's clock was behind ``clock``, its rows look older than they are. Then all rows are kept
    longer by the difference, as far as the limit of bytes allows. Returns the number of deleted rows by
    table. A sum below ``limit`` means that no row is left to delete.
    """
    now_ns = clock.now_ns()
    longest_ns = int(max(retention.flows_days, retention.samples_days) * NS_PER_DAY)
    aged_ns = now_ns - most_behind_ns(connection, clock, longest_ns)
    deleted = {
        row.__tablename__: _delete(connection, row, oldest.limit(limit))
        for row, oldest in _too_old(retention, aged_ns)
    }
    if retention.most_bytes is None:
        return deleted
    while (left := limit - sum(deleted.values())) > 0 and used_bytes(connection) > retention.most_bytes:
        row, oldest = min(_too_old(Retention(0, 0), now_ns), key=lambda kind: _age(connection, *kind))
        gone = _delete(connection, row, oldest.limit(left))
        deleted[row.__tablename__] += gone
        if not gone:
            break
    return deleted


def _age(connection: Connection, row: type[Base], oldest: Select[*tuple[Any, ...]]) -> float:
    """The time of the oldest row of a table that may be deleted; infinity if there is none."""
    at = getattr(row, TIMES[row.__tablename__])
    found = connection.execute(oldest.with_only_columns(at, maintain_column_froms=True).limit(1)).scalar()
    return math.inf if found is None else float(found)


def _too_old(retention: Retention, now_ns: int) -> Iterator[tuple[type[Base], Select[*tuple[Any, ...]]]]:
    flows_ns = now_ns - int(retention.flows_days * NS_PER_DAY)
    samples_ns = now_ns - int(retention.samples_days * NS_PER_DAY)
    sample = PortSampleRow
    closed = select(FlowRow.id).where(FlowRow.opened_ns < flows_ns, FlowRow.closed_ns < flows_ns)
    yield FlowRow, closed.order_by(FlowRow.opened_ns)
    yield AlarmRow, select(AlarmRow.id).where(AlarmRow.received_ns < flows_ns).order_by(AlarmRow.received_ns)
    done = select(CommandRow.id).where(CommandRow.asked_ns < flows_ns, CommandRow.done_ns.is_not(None))
    yield CommandRow, done.order_by(CommandRow.asked_ns)
    keys = select(sample.dpid, sample.port_no, sample.at_ns).where(sample.at_ns < samples_ns)
    yield sample, keys.order_by(sample.at_ns)


def _delete(connection: Connection, row: type[Base], keys: Select[*tuple[Any, ...]]) -> int:
    if row is FlowRow:
        connection.execute(delete(HopRow).where(HopRow.flow_id.in_(keys)))
    key = list(row.__table__.primary_key)
    is_chosen = key[0].in_(keys) if len(key) == 1 else tuple_(*key).in_(keys)
    result = connection.execute(delete(row).where(is_chosen))
    assert isinstance(result, CursorResult)  # noqa: S101 - the result of a DELETE
    return result.rowcount
