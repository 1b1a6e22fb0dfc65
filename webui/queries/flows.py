"""Lists of flows: filtered, sorted, in pages.

Each filter reads its rows in order from an index. A filter that needs several index ranges ("either end has
this address") reads a page from each and merges them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from sqlalchemy import ColumnElement, and_, exists, or_, select
from sqlalchemy.orm import Session, aliased

from flowdb.flow import FlowState, PortKey
from flowdb.models import ClampRow, DecisionRow, FlowRow, HopRow, PortRow
from webui.queries.paging import AnySelect, Cursor, Order, cut
from webui.views import Flow, Flows

State = Literal["any", "live", "active", "idle", "closed", "punished", "slowed"]
Sort = Literal["newest", "oldest", "rate", "volume"]
Place = tuple[int, int]

_LIVE: dict[str, tuple[FlowState, ...]] = {
    "live": (FlowState.ACTIVE, FlowState.IDLE),
    "active": (FlowState.ACTIVE,),
    "idle": (FlowState.IDLE,),
}
_OF_ROW = tuple(name for name in Flow.model_fields if name != "window_bytes")


class FlowFilter(BaseModel):
    """A choice of flows. ``address`` and ``port`` match either end. "slowed": punished at any time.

    Sorting by rate or volume returns live flows only.
    """

    model_config = ConfigDict(frozen=True)
    address: str | None = None
    port: int | None = None
    src: str | None = None
    dst: str | None = None
    src_port: int | None = None
    dst_port: int | None = None
    dpid: int | None = None
    switch_port: int | None = None
    state: State = "any"
    policy: str | None = None
    sort: Sort = "newest"


def flows(session: Session, wanted: FlowFilter, cursor: Cursor | None = None, limit: int = 50) -> Flows:
    """One page of the wanted flows."""
    places: set[Place] = set()
    order, branches = _branches(session, wanted)
    for branch in branches:
        places |= {(row[0], row[1]) for row in session.execute(order.of(branch, cursor, limit))}
    descending = order.descending ^ bool(cursor and cursor.backwards)
    wanted_places = sorted(places, reverse=descending)[: limit + 1]
    kept, page = cut(wanted_places, cursor, limit, lambda place: place)
    return Flows(items=read(session, _flow_ids(session, order, kept)), page=page)


def through(session: Session, key: PortKey, limit: int = 10) -> list[Flow]:
    """The live flows that leave by a port, the longest-lived first."""
    wanted = FlowFilter(dpid=key.dpid, switch_port=key.port_no, state="live", sort="oldest")
    return flows(session, wanted, limit=limit).items


def read(session: Session, ids: Sequence[int]) -> list[Flow]:
    """Flows by their ids, in the same order, without unknown ids."""
    rows = {row.id: row for row in session.scalars(select(FlowRow).where(FlowRow.id.in_(ids)))}
    standing = select(ClampRow.flow_id, ClampRow.window_bytes).where(
        ClampRow.flow_id.in_(ids), ClampRow.lifted_ns.is_(None)
    )
    windows: dict[int, int] = {}
    for flow_id, window_bytes in session.execute(standing):  # a flow has a clamp at each congested port
        windows[flow_id] = min(window_bytes, windows.get(flow_id, window_bytes))
    return [flow_view(rows[row_id], windows.get(row_id)) for row_id in ids if row_id in rows]


def flow_view(row: Any, window_bytes: int | None) -> Flow:
    """A flow's row, or its values, with the smallest window of its standing clamps, as pages show it."""
    return Flow(window_bytes=window_bytes, **{name: getattr(row, name) for name in _OF_ROW})


def _branches(session: Session, wanted: FlowFilter) -> tuple[Order, Iterable[AnySelect]]:
    """The order of the rows, and the statements that read them, each from an index."""
    if wanted.state in ("punished", "slowed") or wanted.policy is not None:
        return _by_clamps(wanted)
    if wanted.sort in ("rate", "volume"):
        column = FlowRow.rate_bps if wanted.sort == "rate" else FlowRow.sent_bytes
        return Order(column, FlowRow.id), _live(wanted, column)
    descending = wanted.sort != "oldest"
    by_age = Order(FlowRow.opened_ns, FlowRow.id, descending)
    if wanted.state in _LIVE:
        return by_age, _live(wanted, FlowRow.opened_ns)
    if wanted.dpid is not None and not _restricts_an_end(wanted):
        return Order(HopRow.flow_id, HopRow.flow_id, descending), _by_hops(session, wanted)
    return by_age, _by_ends(wanted)


def _restricts_an_end(wanted: FlowFilter) -> bool:
    ends = (wanted.address, wanted.port, wanted.src, wanted.dst, wanted.src_port, wanted.dst_port)
    return any(value is not None for value in ends)


def _by_clamps(wanted: FlowFilter) -> tuple[Order, Iterable[AnySelect]]:
    """Punished flows by the time of their first punishment."""
    statement = (
        select(ClampRow.pushed_ns, ClampRow.id)
        .join(FlowRow, FlowRow.id == ClampRow.flow_id)
        .where(*_conditions(wanted), ~exists().where(*_earlier_clamp(wanted)))
    )
    if wanted.state == "punished":
        statement = statement.where(ClampRow.lifted_ns.is_(None))
    elif wanted.state in _LIVE:
        statement = statement.where(_is_live(_LIVE[wanted.state]))
    elif wanted.state == "closed":
        statement = statement.where(FlowRow.closed_ns.is_not(None))
    if wanted.policy is not None:
        statement = statement.join(DecisionRow, DecisionRow.id == ClampRow.decision_id)
        statement = statement.where(DecisionRow.policy == wanted.policy)
    return Order(ClampRow.pushed_ns, ClampRow.id, wanted.sort != "oldest"), [statement]


def _earlier_clamp(wanted: FlowFilter) -> Iterator[ColumnElement[bool]]:
    earlier = aliased(ClampRow)
    yield earlier.flow_id == ClampRow.flow_id
    yield or_(
        earlier.pushed_ns < ClampRow.pushed_ns,
        and_(earlier.pushed_ns == ClampRow.pushed_ns, earlier.id < ClampRow.id),
    )
    if wanted.state == "punished":
        yield earlier.lifted_ns.is_(None)
    if wanted.policy is not None:
        its = aliased(DecisionRow)
        yield exists().where(its.id == earlier.decision_id, its.policy == wanted.policy)


def _is_live(states: tuple[FlowState, ...]) -> ColumnElement[bool]:
    return and_(FlowRow.closed_ns.is_(None), FlowRow.state.in_(states))


def _live(wanted: FlowFilter, column: Any) -> Iterator[AnySelect]:
    for state in _LIVE.get(wanted.state, _LIVE["live"]):
        is_live = (FlowRow.closed_ns.is_(None), FlowRow.state == state)
        yield select(column, FlowRow.id).where(*is_live, *_conditions(wanted))


def _by_hops(session: Session, wanted: FlowFilter) -> Iterator[AnySelect]:
    """Flows through a switch: one statement for each port, because the index is ordered by port."""
    numbers: Iterable[int] = [] if wanted.switch_port is None else [wanted.switch_port]
    if wanted.switch_port is None:
        numbers = session.scalars(select(PortRow.port_no).where(PortRow.dpid == wanted.dpid)).all()
    for port_no in numbers:
        statement = select(HopRow.flow_id, HopRow.flow_id)
        statement = statement.where(HopRow.dpid == wanted.dpid, HopRow.out_port == port_no)
        if wanted.state == "closed":
            statement = statement.join(FlowRow, FlowRow.id == HopRow.flow_id)
            statement = statement.where(FlowRow.closed_ns.is_not(None))
        yield statement


def _by_ends(wanted: FlowFilter) -> Iterator[AnySelect]:
    """Flows by age or by an end. An address or port of either end needs one statement for each end."""
    statement = select(FlowRow.opened_ns, FlowRow.id).where(*_conditions(wanted, either=False))
    if wanted.state == "closed":
        statement = statement.where(FlowRow.closed_ns.is_not(None))
    for ends in _either_end(wanted):
        yield statement.where(*ends)


def _conditions(wanted: FlowFilter, either: bool = True) -> Iterator[ColumnElement[bool]]:
    """The conditions for a flow; ``either``: including conditions that either end may meet."""
    for name in ("src", "dst", "src_port", "dst_port"):
        if (value := getattr(wanted, name)) is not None:
            yield getattr(FlowRow, name) == value
    if wanted.dpid is not None:
        at_port = [] if wanted.switch_port is None else [HopRow.out_port == wanted.switch_port]
        yield exists().where(HopRow.flow_id == FlowRow.id, HopRow.dpid == wanted.dpid, *at_port)
    if either and (choices := [and_(*ends) for ends in _either_end(wanted) if ends]):
        yield or_(*choices)


def _either_end(wanted: FlowFilter) -> list[list[ColumnElement[bool]]]:
    """The conditions for each end that may match; one empty list if neither end is restricted."""
    if wanted.address is None and wanted.port is None:
        return [[]]
    return [
        [
            *([address == wanted.address] if wanted.address is not None else []),
            *([port == wanted.port] if wanted.port is not None else []),
        ]
        for address, port in ((FlowRow.src, FlowRow.src_port), (FlowRow.dst, FlowRow.dst_port))
    ]


def _flow_ids(session: Session, order: Order, places: Sequence[Place]) -> list[int]:
    ids = [row_id for _, row_id in places]
    if order.id is not ClampRow.id:
        return ids
    pairs = session.execute(select(ClampRow.id, ClampRow.flow_id).where(ClampRow.id.in_(ids)))
    flow_of = dict(pairs.all())
    return [flow_of[clamp_id] for clamp_id in ids]
