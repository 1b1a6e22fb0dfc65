"""The start of a controller's run, and the flows that it adopts from earlier runs."""

from __future__ import annotations

import os
import secrets
import socket
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, delete, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from flowdb.clock import Clock, boot_id
from flowdb.flow import NS_PER_S, FiveTuple, Flow, FlowState, Hop
from flowdb.models import ClampRow, FlowRow, HopRow, HostRow, LinkRow, PortRow, RunRow, SwitchRow

HEARTBEAT_S = 5.0
"""A controller updates its row this often."""

ALIVE_FOR_S = 4 * HEARTBEAT_S
"""A controller counts as alive for this long after its last heartbeat."""

_NEWEST_RUNS = 20
RUN_SHIFT = 32
"""A row's id is ``run_id << RUN_SHIFT | counter``."""
_LEAST_SHIFT_NS = NS_PER_S
"""A smaller difference of two clocks is not corrected: NTP steers each clock all the time."""


@dataclass(frozen=True, slots=True)
class Start:
    """A run that has started: its id, and the flows that it adopts."""

    run_id: int
    adopted: tuple[Flow, ...]


_FIRST_OWN_ID, _OWN_IDS = 1 << 20, 1 << 19
"""Run ids that a controller chooses itself. The database numbers runs from 1.

Ids must be below 2**21: then the ids of rows are below 2**53, and exact as numbers of JSON.
"""


def own_run_id() -> int:
    """A run id for a controller that starts while its database is down: random, from a range of its own."""
    return _FIRST_OWN_ID + secrets.randbelow(_OWN_IDS)


def start_run(session: Session, clock: Clock, adopt_within_s: float) -> Start:
    """Record a new run, and settle the flows and clamps that earlier runs left open.

    If any run was alive at most ``adopt_within_s`` ago, its open flows are adopted, because their handshakes
    will not be seen again. Otherwise open flows are closed as "lost". Open clamps are recorded as lifted,
    because the controller removes their entries when the switches connect. No switch, link or host is known
    until this run sees it.
    """
    now_ns = clock.now_ns()
    earlier = (run for run in session.scalars(select(RunRow)) if not is_ahead(run, clock))
    silent = min((silent_ns(run, clock) for run in earlier), default=None)
    _shift_open_flows(session, clock, now_ns)
    adopted: tuple[Flow, ...] = ()
    if silent is not None and silent <= adopt_within_s * NS_PER_S:
        adopted = tuple(_open_flows(session))
    else:
        _end_open_flows(session, now_ns)
    _end_earlier_runs(session, now_ns)
    run = _run_row(clock, os.getpid(), now_ns)
    session.add(run)
    session.flush()
    return Start(run.id, adopted)


def record_own_run(session: Session, clock: Clock, run_id: int, pid: int, started_ns: int) -> None:
    """Record a run that started while the database was down, before any of its rows.

    What earlier runs left open ends as in ``start_run``, but no flow is adopted: the run has learnt the live
    flows from the switches. Nothing happens if the run is recorded already.
    """
    if session.get(RunRow, run_id) is None:
        _shift_open_flows(session, clock, started_ns)
        _end_open_flows(session, started_ns)
        _end_earlier_runs(session, started_ns)
        run = _run_row(clock, pid, started_ns)
        run.id = run_id
        session.add(run)


def _shift_open_flows(session: Session, clock: Clock, now_ns: int) -> None:
    """Put the times of open flows into ``clock``, so that ages are correct if the system's clock was set.

    Each start does this. So the times of this boot's flows are by the clock of the run that started last.
    Times of another boot stay, but none is after ``now_ns``.
    """
    is_open, this_boot = FlowRow.closed_ns.is_(None), RunRow.boot_id == boot_id()
    since_boot_ns = RunRow.started_ns - RunRow.boot_ns
    last = session.scalars(select(RunRow).where(this_boot).order_by(since_boot_ns.desc()).limit(1)).first()
    shift_ns = 0 if last is None else _shift_ns(last, clock)
    if abs(shift_ns) >= _LEAST_SHIFT_NS:
        run_id = FlowRow.id // (1 << RUN_SHIFT)
        flows = update(FlowRow).where(is_open, run_id.in_(select(RunRow.id).where(this_boot)))
        times = (FlowRow.opened_ns, FlowRow.last_active_ns)
        shifted = flows.values({at: at + shift_ns for at in times})
        session.execute(shifted, execution_options={"synchronize_session": False})
    for at in (FlowRow.opened_ns, FlowRow.last_active_ns):
        session.execute(update(FlowRow).where(is_open, at > now_ns).values({at: now_ns}))


def _end_open_flows(session: Session, now_ns: int) -> None:
    lost = {"closed_ns": now_ns, "close_reason": "lost", "state": FlowState.CLOSED}
    session.execute(update(FlowRow).where(FlowRow.closed_ns.is_(None)).values(lost))


def _end_earlier_runs(session: Session, now_ns: int) -> None:
    """End all but the flows. What happened to the network while no controller ran, none recorded."""
    open_clamps = update(ClampRow).where(ClampRow.lifted_ns.is_(None))
    session.execute(open_clamps.values(lifted_ns=now_ns, lift_reason="controller restarted"))
    session.execute(update(SwitchRow).values(connected=False))
    session.execute(update(LinkRow).values(up=False))
    session.execute(update(PortRow).values(up=False))
    session.execute(delete(HostRow))


def _run_row(clock: Clock, pid: int, started_ns: int) -> RunRow:
    return RunRow(
        host=socket.gethostname(),
        pid=pid,
        boot_id=boot_id(),
        boot_ns=clock.boot_ns,
        started_ns=started_ns,
        last_seen_ns=clock.now_ns(),
    )


def now_of_runs(session: Session, clock: Clock) -> int:
    """The present time by the clock of the run that was seen last, which the times of rows follow.

    On the machine of that run it does not depend on the system's clock, which may have been set since. For a
    run on another machine, and if there is none, it is the time of ``clock``.
    """
    newest = select(RunRow).order_by(RunRow.ended_ns.is_not(None), RunRow.id.desc()).limit(_NEWEST_RUNS)
    seen = (run for run in session.scalars(newest) if not is_ahead(run, clock))
    last = min(seen, key=lambda run: silent_ns(run, clock), default=None)
    return clock.now_ns() - (0 if last is None else _shift_ns(last, clock))


def silent_ns(run: RunRow | Row[Any], clock: Clock) -> int:
    """The time since a run was last seen, even if the system's clock was set since then."""
    last_seen_ns: int = run.last_seen_ns + _shift_ns(run, clock)
    return clock.now_ns() - last_seen_ns


def is_ahead(run: RunRow | Row[Any], clock: Clock) -> bool:
    """Whether a run was last seen in the future: its clock, of another boot, was ahead of ``clock``.

    The time since it was last seen is unknown.
    """
    return silent_ns(run, clock) < -ALIVE_FOR_S * NS_PER_S


def is_gone(run: RunRow | Row[Any], clock: Clock) -> bool:
    """Whether a run has ended, or was not seen for longer than a live one stays silent."""
    return run.ended_ns is not None or silent_ns(run, clock) > ALIVE_FOR_S * NS_PER_S


def most_behind_ns(connection: Connection, clock: Clock, within_ns: int) -> int:
    """How far the clock of a run of this boot was behind ``clock`` at most; 0 if none was.

    Only runs that were seen in the last ``within_ns`` count.
    """
    runs = connection.execute(select(RunRow).where(RunRow.boot_id == boot_id())).all()
    shifts_ns = (_shift_ns(run, clock) for run in runs if silent_ns(run, clock) <= within_ns)
    return max((0, *shifts_ns))


def _shift_ns(run: RunRow | Row[Any], clock: Clock) -> int:
    """How far a run's clock is behind ``clock``; 0 if the two belong to different boots."""
    boot_ns: int = run.boot_ns if run.boot_id == boot_id() else clock.boot_ns
    return clock.boot_ns - boot_ns


def _open_flows(session: Session) -> Iterator[Flow]:
    """Read as plain rows instead of ORM objects, because there may be very many."""
    is_open = FlowRow.closed_ns.is_(None)
    hops = select(HopRow.flow_id, HopRow.dpid, HopRow.in_port, HopRow.out_port)
    hops = hops.join(FlowRow, FlowRow.id == HopRow.flow_id).where(is_open)
    paths: defaultdict[int, list[Hop]] = defaultdict(list)
    for flow_id, dpid, in_port, out_port in session.execute(hops.order_by(HopRow.flow_id, HopRow.position)):
        paths[flow_id].append(Hop(dpid, in_port, out_port))
    for row in session.execute(select(*FlowRow.__table__.columns).where(is_open)):
        yield Flow(
            id=row.id,
            key=FiveTuple(row.src, row.dst, row.src_port, row.dst_port),
            path=tuple(paths[row.id]),
            opened_ns=row.opened_ns,
            mss_bytes=row.mss_bytes,
            receiver_wscale=row.receiver_wscale,
            sender_wscale=row.sender_wscale,
            handshake_rtt_us=row.handshake_rtt_us,
            sent_bytes=row.sent_bytes,
            rate_bps=row.rate_bps,
            last_active_ns=row.last_active_ns,
            state=FlowState(row.state),
        )
