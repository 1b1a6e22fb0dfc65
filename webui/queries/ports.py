"""Ports with their newest counters, and their counters over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from sqlalchemy import Row, and_, case, func, select
from sqlalchemy.orm import Session, aliased

from flowdb.flow import NS_PER_S, PortKey
from flowdb.models import COUNTER_COLUMNS, AlarmRow, ClampRow, PortRow, PortSampleRow, SwitchRow
from webui.queries.names import dpid_text
from webui.queries.paging import AnySelect
from webui.views import AlarmCounts, Port, PortName, Series
from weir_base.port_counters import PORT_COUNTERS

ALARM_HOLDS_NS = 600 * NS_PER_S
"""An alarm without its BUF_NORMAL counts for this long, because its controller may have died."""
_SAMPLE_TAKES_NS = NS_PER_S
"""A sample may have been made before an alarm that arrived this much earlier."""

ALARMS = func.sum(AlarmRow.repeats + case((AlarmRow.kind == "alarm", 1), else_=0))
"""The number of alarms in rows of alarms.

A row counts the alarms without a decision since the row before it. So the end of an alarm has some too.
"""

BUSIEST = 10
_SAMPLED = (*COUNTER_COLUMNS, "other_counters")
_SHOWN = tuple(name for name in PORT_COUNTERS if name in Port.model_fields)
"""The counters that a Port has as attributes of its own."""

_COLUMNS = (
    *(PortRow.dpid, PortRow.port_no, PortRow.name, PortRow.up, PortRow.rate_bps),
    *(PortSampleRow.at_ns.label("sampled_ns"), *(getattr(PortSampleRow, name) for name in _SAMPLED)),
)
"""Columns instead of ORM objects, whose construction would take as long as the query."""


def ports(session: Session, now_ns: int, dpid: int | None = None) -> list[Port]:
    """All ports, or the ports of one switch, in order."""
    statement = with_newest_sample()
    if dpid is not None:
        statement = statement.where(PortRow.dpid == dpid)
    return _read(session, statement.order_by(PortRow.dpid, PortRow.port_no), now_ns)


def port(session: Session, key: PortKey, now_ns: int) -> Port | None:
    """One port; None if it is unknown."""
    where = and_(PortRow.dpid == key.dpid, PortRow.port_no == key.port_no)
    found = _read(session, with_newest_sample().where(where), now_ns)
    return found[0] if found else None


def busiest(every_port: Sequence[Port], limit: int = BUSIEST) -> list[Port]:
    """The busiest ports: first those with an alarm, then with clamps, then by queue and N_i."""
    busy = [one for one in every_port if one.alarm_up or one.clamps or one.queue_pkts or one.n_i]
    return sorted(busy, key=_urgency, reverse=True)[:limit]


def series(session: Session, port: PortName, since_ns: int, until_ns: int, points: int) -> Series:
    """A port's counters in an interval, in about ``points`` points.

    A point holds the worst values of its time: the longest queue, the most flows, the smallest fair share.
    Counters that only grow are given as increments.
    """
    every_ns = max((until_ns - since_ns) // points, 1)
    place = (PortSampleRow.at_ns // every_ns).label("place")
    peaks = [func.max(getattr(PortSampleRow, name)) for name in ("queue_pkts", "n_i")]
    share = func.min(PortSampleRow.fair_share_bytes)
    counts = [func.max(getattr(PortSampleRow, name)) for name in ("drops", "clamped")]
    rows = session.execute(
        select(place, func.max(PortSampleRow.at_ns), *peaks, share, *counts)
        .where(PortSampleRow.dpid == int(port.dpid, 16), PortSampleRow.port_no == port.port_no)
        .where(PortSampleRow.at_ns.between(since_ns, until_ns))
        .group_by(place)
        .order_by(place)
    ).all()
    _, at_ns, queue_pkts, n_i, shares, drops, clamped = zip(*rows, strict=True) if rows else ((),) * 7
    return Series(
        port=PortName.model_validate(port, from_attributes=True),
        every_ns=every_ns,
        at_ns=at_ns,
        queue_pkts=queue_pkts,
        n_i=n_i,
        fair_share_bytes=shares,
        drops=increments(drops),
        clamped=increments(clamped),
    )


def alarm_counts(session: Session, since_ns: int, until_ns: int, points: int) -> AlarmCounts:
    """The number of alarms in each part of an interval, without the parts that have none."""
    every_ns = max((until_ns - since_ns) // points, 1)
    place = (AlarmRow.received_ns // every_ns).label("place")
    rows = session.execute(
        select(place, ALARMS)
        .where(AlarmRow.received_ns.between(since_ns, until_ns))
        .group_by(place)
        .order_by(place)
    ).all()
    return AlarmCounts(
        every_ns=every_ns,
        at_ns=[int(row[0]) * every_ns for row in rows],
        alarms=[int(row[1]) for row in rows],
    )


def increments(counter: Sequence[int]) -> list[int]:
    """The increments of a counter. It restarts from 0 when the data plane is attached again."""
    return [0, *(later - earlier if later >= earlier else later for earlier, later in pairwise(counter))][
        : len(counter)
    ]


def _urgency(port: Port) -> tuple[bool, int, int, int]:
    return port.alarm_up, port.clamps, port.queue_pkts or 0, port.n_i or 0


def with_newest_sample() -> AnySelect:
    """Each port with its newest sample, which is the last entry of an index."""
    inner = aliased(PortSampleRow)
    newest = (
        select(func.max(inner.at_ns))
        .where(inner.dpid == PortRow.dpid, inner.port_no == PortRow.port_no)
        .correlate(PortRow)
        .scalar_subquery()
    )
    own = and_(PortSampleRow.dpid == PortRow.dpid, PortSampleRow.port_no == PortRow.port_no)
    return select(*_COLUMNS).outerjoin(PortSampleRow, and_(own, PortSampleRow.at_ns == newest))


def _read(session: Session, statement: AnySelect, now_ns: int) -> list[Port]:
    where = session.execute(select(ClampRow.dpid, ClampRow.port_no).where(ClampRow.lifted_ns.is_(None)))
    standing = Counter((dpid, port_no) for dpid, port_no in where)  # GROUP BY in SQL would read every clamp
    alarmed = _alarmed(session, now_ns)
    return [
        _port(row, _lasts(row, alarmed.get((row.dpid, row.port_no))), standing[row.dpid, row.port_no])
        for row in session.execute(statement)
    ]


def _lasts(row: Row[Any], alarmed_ns: int | None) -> bool:
    """Whether the alarm of a port at ``alarmed_ns`` lasts. If its end was lost, a later sample shows that."""
    if alarmed_ns is None:
        return False
    is_later = row.sampled_ns is not None and row.sampled_ns - alarmed_ns > _SAMPLE_TAKES_NS
    return not (is_later and PortSampleRow.alarm_over(row._asdict()))


def _alarmed(session: Session, now_ns: int) -> dict[tuple[int, int], int]:
    """The ports whose newest row of alarms that still count is an alarm, not its end, and its time.

    Ports of a switch that is not connected are left out: the end of their alarm cannot arrive.
    """
    gone = select(SwitchRow.dpid).where(SwitchRow.connected.is_(False))
    counts = and_(AlarmRow.received_ns > now_ns - ALARM_HOLDS_NS, AlarmRow.dpid.not_in(gone))
    of_port = (AlarmRow.dpid, AlarmRow.port_no)
    last = select(*of_port, func.max(AlarmRow.received_ns).label("at_ns")).where(counts).group_by(*of_port)
    newest = last.subquery()
    is_newest = and_(
        AlarmRow.dpid == newest.c.dpid,
        AlarmRow.port_no == newest.c.port_no,
        AlarmRow.received_ns == newest.c.at_ns,
    )
    alarms = select(*of_port, AlarmRow.received_ns).join(newest, is_newest)
    rows = session.execute(alarms.where(counts, AlarmRow.kind == "alarm"))
    return {(dpid, port_no): received_ns for dpid, port_no, received_ns in rows}


def counters_of(row: Row[Any]) -> dict[str, int]:
    """The counters by name in a row of ``with_newest_sample``; none if the port was never sampled."""
    return {} if row.sampled_ns is None else PortSampleRow.join(row._asdict())


def observes(row: Row[Any]) -> bool:
    """Whether the port of such a row counted the packets that it would change, and changed none."""
    return PortSampleRow.observed(row._asdict())


def _port(row: Row[Any], alarm_up: bool, clamps: int) -> Port:
    values, counters = row._asdict(), counters_of(row)
    of_port = {name: values[name] for name in ("port_no", "name", "up", "rate_bps", "sampled_ns")}
    shown = {name: counters.get(name) for name in _SHOWN}
    shown["fair_share_bytes"] = shown["fair_share_bytes"] or None  # 0: the port sets no fair share
    dpid = dpid_text(row.dpid)
    facts = {"alarm_up": alarm_up, "observes": observes(row), "clamps": clamps, "counters": counters}
    return Port(**of_port, **shown, dpid=dpid, **facts)


def unknown_port(place: PortName) -> Port:
    """A port that flows or links refer to, but that no switch reported."""
    unsampled = dict.fromkeys((*_SHOWN, "sampled_ns", "rate_bps"))
    return Port(
        **place.model_dump(), up=True, alarm_up=False, observes=False, clamps=0, counters={}, **unsampled
    )
