"""All that is known of a flow, and the sentence that answers "why is it slow?"."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from flowdb.flow import NS_PER_S, PortKey
from flowdb.models import CommandRow, HopRow
from webui.queries.events import clamps, decisions
from webui.queries.flows import read
from webui.queries.names import PortNames
from webui.queries.ports import port, unknown_port
from webui.views import Clamp, Command, Decision, Flow, FlowStory, Hop, Port

MOST_EVENTS = 100
COMMANDS_LOOKED_AT = 500
LONG_QUEUE_PKTS = 20
"""A queue from which on waiting in it is worth a word: SDTCP's K for 1 Gbit/s."""


def story(session: Session, flow_id: int, now_ns: int) -> FlowStory | None:
    """A flow's whole story, newest first; None where there is no such flow."""
    found = read(session, [flow_id])
    if not found:
        return None
    (flow,) = found
    path = _path(session, flow_id, now_ns)
    decided = decisions(session, flow_id=flow_id, limit=MOST_EVENTS).items
    clamped = clamps(session, flow_id=flow_id, limit=MOST_EVENTS).items
    state, verdict = judge(flow, path, decided, clamped)
    return FlowStory(
        flow=flow,
        path=path,
        decisions=decided,
        clamps=clamped,
        commands=_commands(session, flow_id),
        verdict=verdict,
        state=state,
    )


def judge(
    flow: Flow, path: Sequence[Hop], decided: Sequence[Decision], clamped: Sequence[Clamp]
) -> tuple[str, str]:
    """What slows a flow, as a state and a sentence. Both lists are newest first."""
    standing = next((clamp for clamp in clamped if clamp.lifted_ns is None), None)
    if standing is not None:
        return "punished", _why(standing, decided)
    if flow.closed_ns is not None:
        held = sum((clamp.lifted_ns or 0) - clamp.pushed_ns for clamp in clamped)
        slowed = (
            f"It was slowed down {_times(len(clamped))}, for {_span(held)} in all."
            if clamped
            else "Weir never slowed it down."
        )
        return "closed", f"This flow is over ({flow.close_reason or 'no reason noted'}). {slowed}"
    full = _fullest(path)
    if full is not None:
        return "queue ahead", (
            f"Weir does not slow this flow, but its data waits in the queue of {full.name}: "
            f"{full.queue_pkts} packets, shared by {full.n_i or 'unknown'} flows."
        )
    if clamped:
        last = clamped[0]
        return "was punished", (
            f"Not slowed down now. It was, {_times(len(clamped))}, last for "
            f"{_span((last.lifted_ns or 0) - last.pushed_ns)}; lifted because: {last.lift_reason}."
        )
    return "free", (
        "Neither Weir nor a queue on its path slows this flow. What limits it is at its ends:"
        " the application, the receiver's window, or the sender."
    )


def _why(clamp: Clamp, decided: Sequence[Decision]) -> str:
    latest = next((one for one in decided if one.port == clamp.port), None)
    if latest is None:
        return (
            f"Slowed down on purpose at {clamp.port.name}: its window is held at {clamp.window_bytes} bytes."
        )
    if latest.equation == 0:
        return (
            f"Slowed down by hand at {clamp.port.name}: its window is held at {clamp.window_bytes} bytes"
            " until it is released or the clamp's time is over."
        )
    queue = f"{latest.alarm.queue_pkts} packets" if latest.alarm else f"{latest.queue_bytes} bytes"
    cause = f"Slowed down on purpose: the queue of {clamp.port.name} grew to {queue}"
    chosen = (
        f"this flow was chosen from {latest.candidates} as the {latest.policy} one"
        if latest.equation == 3
        else f"all {latest.n} flows there got an equal share"
    )
    return f"{cause}, and {chosen}. Its window is held at {clamp.window_bytes} bytes until the burst is over."


def _fullest(path: Sequence[Hop]) -> Port | None:
    """The port on the way whose queue is the longest, if it is long or alarmed."""
    long = [hop.port for hop in path if hop.port.alarm_up or (hop.port.queue_pkts or 0) >= LONG_QUEUE_PKTS]
    return max(long, key=lambda port: port.queue_pkts or 0, default=None)


def _path(session: Session, flow_id: int, now_ns: int) -> list[Hop]:
    names = PortNames(session)
    rows = session.scalars(select(HopRow).where(HopRow.flow_id == flow_id).order_by(HopRow.position))
    path = []
    for row in rows:
        known = port(session, PortKey(row.dpid, row.out_port), now_ns)
        there = known or unknown_port(names(row.dpid, row.out_port))
        path.append(Hop(position=row.position, in_port=row.in_port, port=there))
    return path


def _commands(session: Session, flow_id: int) -> list[Command]:
    """What was asked about a flow lately: commands are few, and only people write them."""
    newest = select(CommandRow).order_by(CommandRow.asked_ns.desc()).limit(COMMANDS_LOOKED_AT)
    return [
        Command.model_validate(row, from_attributes=True)
        for row in session.scalars(newest)
        if row.arguments.get("flow") == flow_id
    ]


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _span(ns: int) -> str:
    return f"{ns / NS_PER_S:.1f} s" if ns >= NS_PER_S else f"{ns / 1e6:.0f} ms"
