"""Deletes old rows, a limited number at a time, so that no other user of the database waits long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import CursorResult, Select, delete, select, tuple_
from sqlalchemy.engine import Connection

from flowdb.models import AlarmRow, Base, CommandRow, FlowRow, HopRow, PortSampleRow

NS_PER_DAY = 86_400_000_000_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How long rows are kept, in days. Open flows are always kept.

    ``flows_days``: closed flows with their hops, alarms, decisions, clamps, and commands that are done.
    ``samples_days``: samples of port counters.
    """

    flows_days: float
    samples_days: float


def prune(connection: Connection, retention: Retention, now_ns: int, limit: int) -> dict[str, int]:
    """Delete at most ``limit`` old rows of each table, oldest first, with the rows that refer to them.

    Returns the number of deleted rows by table. Less than ``limit`` means that no old row is left.
    """
    deleted = {}
    for row, oldest in _too_old(retention, now_ns):
        keys = oldest.limit(limit)
        if row is FlowRow:
            connection.execute(delete(HopRow).where(HopRow.flow_id.in_(keys)))
        deleted[row.__tablename__] = _delete(connection, row, keys)
    return deleted


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
    key = list(row.__table__.primary_key)
    is_chosen = key[0].in_(keys) if len(key) == 1 else tuple_(*key).in_(keys)
    result = connection.execute(delete(row).where(is_chosen))
    assert isinstance(result, CursorResult)  # noqa: S101 - the result of a DELETE
    return result.rowcount
