"""A flow's page: its explanation with names and current queues, and the sentence that says why it is slow."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from flowdb.explanation import ClampTotals, FlowExplanation, explain_flow, limiting_clamp
from flowdb.flow import NS_PER_S, PortKey
from webui.queries.events import clamp_view, command_view, decision_views
from webui.queries.flows import flow_view
from webui.queries.names import PortNames, flow_name
from webui.queries.ports import port, unknown_port
from webui.views import Clamp, Decision, Flow, FlowStory, Hop, Port

LONG_QUEUE_PKTS = 20
"""The shortest queue that the verdict mentions: SDTCP's K for 1 Gbit/s."""
SAMPLE_HOLDS_NS = 30 * NS_PER_S
"""An older sample says nothing of a queue now: a port that is sampled has a row at least every 10 s."""


def flow_story(session: Session, flow_id: int, now_ns: int) -> FlowStory | None:
    """Everything that is known of a flow, newest first; None if the id is unknown."""
    found = explain_flow(session, flow_id)
    if found is None:
        return None
    ports, names = PortNames(session), {flow_id: flow_name(found.flow)}
    path = _path(session, found, ports, now_ns)
    decisions = decision_views(((one.decision, one.alarm) for one in found.decisions), ports, names)
    clamps = [clamp_view(clamp, ports, names) for clamp in found.clamps]
    limiting = found.standing_clamp
    flow = flow_view(found.flow, None if limiting is None else limiting.window_bytes)
    state, sentence = verdict(flow, path, decisions, clamps, found.totals, now_ns)
    return FlowStory(
        now_ns=now_ns,
        flow=flow,
        path=path,
        decisions=decisions,
        clamps=clamps,
        commands=[command_view(command) for command in found.commands],
        verdict=sentence,
        state=state,
    )


def verdict(
    flow: Flow,
    path: Sequence[Hop],
    decisions: Sequence[Decision],
    clamps: Sequence[Clamp],
    totals: ClampTotals,
    now_ns: int,
) -> tuple[str, str]:
    """What slows a flow down, as a state and a sentence.

    Decisions and clamps are the newest ones, newest first; ``totals`` are of all clamps of the flow.
    """
    limiting = limiting_clamp(clamps)
    if limiting is not None:
        return "punished", _reason(limiting, decisions)
    if flow.closed_ns is not None:
        slowed = (
            f"SDTCP slowed it down {_times(totals.count)}, for {_duration(totals.lifted_after_ns)} in all."
            if clamps
            else "No clamp of SDTCP is recorded."
        )
        return "closed", f"This flow is closed ({flow.close_reason or 'no reason recorded'}). {slowed}"
    longest = _longest_queue(path, now_ns)
    if longest is not None:
        return "queue ahead", (
            f"SDTCP does not slow this flow down, but its data waits in the queue of {longest.name}: "
            f"{longest.queue_pkts} packets, shared by {longest.n_i or 'an unknown number of'} flows."
        )
    if clamps:
        last = clamps[0]
        return "was punished", (
            f"SDTCP does not slow this flow down now. It slowed it down {_times(totals.count)}, the last"
            f" time for {_duration((last.lifted_ns or 0) - last.pushed_ns)}. Reason for the lift:"
            f" {last.lift_reason}."
        )
    if decisions and decisions[0].entry.get("observed"):
        return "free", (
            f"SDTCP does not slow this flow down: it observes. It would have given the flow a window of"
            f" {decisions[0].window_bytes} bytes at {decisions[0].port.name}."
        )
    return "free", (
        "Neither a clamp of SDTCP nor a queue on its path slows this flow down. SCCP's share at a port may"
        " limit it."
        " Otherwise the limit is at one of its ends: the application, the receiver's window, or the sender."
    )


def _reason(clamp: Clamp, decisions: Sequence[Decision]) -> str:
    window = f"Its window is held at {clamp.window_bytes} bytes"
    latest = next((one for one in decisions if one.port == clamp.port), None)
    if latest is None:
        return f"Slowed down on purpose at {clamp.port.name}. {window}."
    if latest.equation == 0:
        return (
            f"Slowed down by hand at {clamp.port.name}. {window} until somebody releases the flow or the"
            " clamp expires."
        )
    if latest.alpha:
        window = (
            f"Its window began at {clamp.window_bytes} bytes. Each ACK lowers it, down to one MSS, or to the"
            " flow's part of the allowance if the port corrects it,"
        )
    queue = f"{latest.alarm.queue_pkts} packets" if latest.alarm else f"{latest.queue_bytes} bytes"
    chosen = (
        f"the policy {latest.policy} chose this flow from {latest.candidates} candidates"
        if latest.equation == 3
        else f"all {latest.n} flows at the port got an equal share"
    )
    return (
        f"Slowed down on purpose: the queue of {clamp.port.name} grew to {queue}, and {chosen}."
        f" {window} until the burst is over."
    )


def _longest_queue(path: Sequence[Hop], now_ns: int) -> Port | None:
    """The port on the path with the longest queue, if that queue is long or its alarm is up.

    Ports whose sample is too old are left out.
    """
    sampled = (hop.port for hop in path if hop.port.sampled_ns is not None)
    known = (port for port in sampled if now_ns - (port.sampled_ns or 0) <= SAMPLE_HOLDS_NS)
    long = [port for port in known if port.alarm_up or (port.queue_pkts or 0) >= LONG_QUEUE_PKTS]
    return max(long, key=lambda port: port.queue_pkts or 0, default=None)


def _path(session: Session, found: FlowExplanation, names: PortNames, now_ns: int) -> list[Hop]:
    path = []
    for hop in found.path:
        known = port(session, PortKey(hop.dpid, hop.out_port), now_ns)
        output = known or unknown_port(names(hop.dpid, hop.out_port))
        path.append(Hop(position=hop.position, in_port=hop.in_port, port=output))
    return path


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _duration(ns: int) -> str:
    return f"{ns / NS_PER_S:.1f} s" if ns >= NS_PER_S else f"{ns / 1e6:.0f} ms"
