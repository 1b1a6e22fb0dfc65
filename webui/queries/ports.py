"""Ports with their newest counters, and their figures over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from sqlalchemy import Row, and_, func, select
from sqlalchemy.orm import Session, aliased

from flowdb.flow import NS_PER_S, PortKey
from flowdb.models import AlarmRow, ClampRow, PortRow, PortSampleRow
from webui.paging import AnySelect
from webui.queries.names import dpid_text
from webui.views import AlarmCounts, Port, PortName, Series

ALARM_HOLDS_NS = 600 * NS_PER_S
"""An alarm without its BUF_NORMAL counts for so long: its controller may have died."""

BUSIEST = 10
_SAMPLED = (
    *("queue_pkts", "queue_bytes", "queue_max_pkts", "n_i", "fair_share_bytes", "capacity_bps", "drops"),
)
_COLUMNS = (
    *(PortRow.dpid, PortRow.port_no, PortRow.name, PortRow.up, PortRow.rate_bps),
    *(PortSampleRow.at_ns.label("sampled_ns"), *(getattr(PortSampleRow, name) for name in _SAMPLED)),
)
"""Not the rows whole: to make objects of them takes as long as the question."""


def ports(session: Session, now_ns: int, dpid: int | None = None) -> list[Port]:
    """All ports, or a switch's, in order."""
    statement = _with_newest()
    if dpid is not None:
        statement = statement.where(PortRow.dpid == dpid)
    return _read(session, statement.order_by(PortRow.dpid, PortRow.port_no), now_ns)


def port(session: Session, key: PortKey, now_ns: int) -> Port | None:
    """One port; None where it is not known."""
    where = and_(PortRow.dpid == key.dpid, PortRow.port_no == key.port_no)
    found = _read(session, _with_newest().where(where), now_ns)
    return found[0] if found else None


def busiest(known: Sequence[Port], limit: int = BUSIEST) -> list[Port]:
    """The ports that matter most now: alarmed, then punishing, then by their queue and flows."""
    busy = [one for one in known if one.alarm_up or one.clamps or one.queue_pkts or one.n_i]
    return sorted(busy, key=_busyness, reverse=True)[:limit]


def series(session: Session, port: PortName, since_ns: int, until_ns: int, points: int) -> Series:
    """A port's figures in a span of time, in about ``points`` points; counters as what they grew by.

    A point is the worst of its span: the longest queue, the most flows, the smallest fair share.
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
        drops=grown(drops),
        clamped=grown(clamped),
    )


def alarm_counts(session: Session, since_ns: int, until_ns: int, points: int) -> AlarmCounts:
    """How many alarms came in each span of an interval; those without any are left out."""
    every_ns = max((until_ns - since_ns) // points, 1)
    place = (AlarmRow.received_ns // every_ns).label("place")
    rows = session.execute(
        select(place, func.sum(1 + AlarmRow.repeats))
        .where(AlarmRow.received_ns.between(since_ns, until_ns), AlarmRow.kind == "alarm")
        .group_by(place)
        .order_by(place)
    ).all()
    return AlarmCounts(
        every_ns=every_ns,
        at_ns=[int(row[0]) * every_ns for row in rows],
        alarms=[int(row[1]) for row in rows],
    )


def grown(counter: Sequence[int]) -> list[int]:
    """What a counter grew by at each point; it begins anew when the switch's agent does."""
    return [0, *(later - earlier if later >= earlier else later for earlier, later in pairwise(counter))][
        : len(counter)
    ]


def _busyness(port: Port) -> tuple[bool, int, int, int]:
    return port.alarm_up, port.clamps, port.queue_pkts or 0, port.n_i or 0


def _with_newest() -> AnySelect:
    """Each port with its newest sample, found at the end of an index."""
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
    standing = Counter((dpid, port_no) for dpid, port_no in where)  # SQL would group by reading them all
    alarmed = _alarmed(session, now_ns)
    return [
        _port(row, (row.dpid, row.port_no) in alarmed, standing[row.dpid, row.port_no])
        for row in session.execute(statement)
    ]


def _alarmed(session: Session, now_ns: int) -> set[tuple[int, int]]:
    """The ports whose newest alarm row, of those that still count, says that their queue is too long."""
    counts = AlarmRow.received_ns > now_ns - ALARM_HOLDS_NS
    of_port = (AlarmRow.dpid, AlarmRow.port_no)
    last = select(*of_port, func.max(AlarmRow.received_ns).label("at_ns")).where(counts).group_by(*of_port)
    newest = last.subquery()
    is_newest = and_(
        AlarmRow.dpid == newest.c.dpid,
        AlarmRow.port_no == newest.c.port_no,
        AlarmRow.received_ns == newest.c.at_ns,
    )
    rows = session.execute(select(*of_port).join(newest, is_newest).where(counts, AlarmRow.kind == "alarm"))
    return {(dpid, port_no) for dpid, port_no in rows}


def _port(row: Row[Any], alarm_up: bool, clamps: int) -> Port:
    values = row._asdict() | {"dpid": dpid_text(row.dpid)}
    values["fair_share_bytes"] = row.fair_share_bytes or None  # 0: the port gives none
    return Port(**values, alarm_up=alarm_up, clamps=clamps)


def unknown_port(place: PortName) -> Port:
    """A port that flows or links name and no switch told of."""
    unsampled = dict.fromkeys((*_SAMPLED, "sampled_ns", "rate_bps"))
    return Port(**place.model_dump(), up=True, alarm_up=False, clamps=0, **unsampled)
