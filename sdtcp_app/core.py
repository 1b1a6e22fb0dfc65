"""The loop of SDTCP (sections III.B to III.E), one state machine for each port. Pure.

Alarm: the longest-lived flow whose data leaves by the port and that is not punished yet gets the window of
equation (3); the next one only when alarmed again after 3/2 RTT. When none is left, each gets the share of
equation (5), and a smaller one as flows join. The symbols are in ``equations.py``.

Restore: once BUF_NORMAL came and the burst flows have ended, and at the latest ``clamp_limit_ns`` after the
port's last alarm, for burst flows over standing connections never send a FIN. Burst flows are the port's
flows that were not punished and are younger than the punished ones, at the time of BUF_NORMAL. Once all
are punished (equation 5) the punished are the burst as well, and nothing tells which of them are: then
only the limit ends the episode. Lifted at BUF_NORMAL, standing connections would begin their next burst
with the windows that overran the queue in the last one.
Lifted is one flow in 3/2 RTT, the one punished first: behind each clamp waits a full congestion window, and
all of them at once would fill the queue that was just emptied. In 3/2 RTT the switch looks three times at
the queue, so it can stop the lifting by an alarm; in order, because then all were slowed for as long.

A clamp also ends with its flow, with its entry in the switch, and ``hard_limit_ns`` after its last entry
(the entry's hard timeout: the flow may be chosen anew). No sequence of calls leaves one for ever.

Times are of one monotonic clock, in nanoseconds. Not implemented: the choice of flows by anything but age.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from flowdb.flow import FiveTuple, Flow, PortKey
from sdtcp_app.equations import (
    average_window_bytes,
    punished_window_bytes,
    settled_queue_bytes,
    shared_window_bytes,
)

AgeKey = tuple[int, int]


class Flows(Protocol):
    """The flows of every port, as FlowIndex keeps them: free, or held while they are punished."""

    def oldest(self, port: PortKey) -> Flow | None: ...
    def newest(self, port: PortKey) -> Flow | None: ...
    def any_free_between(self, port: PortKey, after: AgeKey, until: AgeKey) -> bool: ...
    def count(self, port: PortKey) -> int: ...
    def count_free(self, port: PortKey) -> int: ...
    def hold(self, flow_id: int) -> None: ...
    def release(self, flow_id: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Policy:
    """The loop's settings: the RTT of equation (1), alpha of (4), and how long a clamp can last."""

    rtt_us: int = 1000
    k_pkts: int = 20
    alpha: int = 5
    clamp_limit_ns: int = 2_000_000_000
    hard_limit_ns: int = 30_000_000_000

    @property
    def step_ns(self) -> int:
        """3/2 RTT."""
        return self.rtt_us * 1500


@dataclass(frozen=True, slots=True)
class Alarm:
    """BUF_ALARM: the port's queue and rate.

    ``n_i``: the flows that the switch counts, 0: it does not. ``queue_pkts`` 0: not told.
    """

    port: PortKey
    queue_bytes: int
    port_rate_bps: int
    n_i: int = 0
    queue_pkts: int = 0


class Equation(enum.IntEnum):
    """Which equation of the paper gave a window."""

    PUNISHED = 3
    SHARED = 5


@dataclass(frozen=True, slots=True)
class Punish:
    """Clamp a flow: ``window_bytes``, falling by ``alpha`` MSS an ACK (0: steady), and where it comes from.

    ``candidates``: how many flows the one was chosen from.
    """

    flow: Flow
    equation: Equation
    window_bytes: int
    alpha: int
    candidates: int
    capacity_bps: int
    rtt_us: int
    queue_bytes: int
    n: int
    wc_bytes: int
    wr_bytes: int | None


class LiftReason(enum.StrEnum):
    NORMAL = "normal and burst over"
    LIMIT = "limit"
    CLOSED = "flow closed"
    ENTRY_GONE = "entry timed out"
    EXPIRED = "hard limit"
    SWITCH_GONE = "switch gone"


@dataclass(frozen=True, slots=True)
class Lift:
    """End a flow's clamp."""

    flow: Flow
    reason: LiftReason


Decision: TypeAlias = Punish | Lift


@dataclass(slots=True)
class _Clamp:
    flow: Flow
    equation: Equation
    window_bytes: int
    since_ns: int


@dataclass(slots=True)
class _Port:
    """One port's episode. ``clamps`` is in the order of their entries; ``burst``: the ages that it spans."""

    last_alarm_ns: int
    up: bool = True
    last_punish_ns: int | None = None
    last_lift_ns: int | None = None
    clamps: dict[int, _Clamp] = field(default_factory=dict)
    burst: tuple[AgeKey, AgeKey] | None = None

    @property
    def shared(self) -> bool:
        """Whether equation (5) is in force."""
        return any(clamp.equation is Equation.SHARED for clamp in self.clamps.values())


class Sdtcp:
    """The controller's decisions for all ports; each call returns what to carry out, in order."""

    def __init__(self, flows: Flows, policy: Policy) -> None:
        self._flows = flows
        self._policy = policy
        self._ports: dict[PortKey, _Port] = {}
        self._punished: dict[tuple[int, FiveTuple], Flow] = {}

    @property
    def busy(self) -> bool:
        """Whether ``on_tick`` has anything to do, now or later."""
        return bool(self._ports)

    @property
    def punished(self) -> int:
        """How many flows are clamped."""
        return len(self._punished)

    def on_alarm(self, alarm: Alarm, now_ns: int) -> list[Punish]:
        """BUF_ALARM. Nothing is decided within 3/2 RTT of the last punishment."""
        state = self._ports.setdefault(alarm.port, _Port(now_ns))
        state.last_alarm_ns, state.up, state.burst = now_ns, True, None
        if not _passed(state.last_punish_ns, self._policy.step_ns, now_ns):
            return []
        candidates = self._flows.count_free(alarm.port)
        chosen = self._flows.oldest(alarm.port)
        if chosen is not None:
            decisions = [self._decide(alarm, chosen, Equation.PUNISHED, candidates)]
        else:
            decisions = self._share(alarm, state)
        for decision in decisions:
            self._clamp(state, decision, now_ns)
        return decisions

    def on_normal(self, port: PortKey, now_ns: int) -> list[Lift]:
        """BUF_NORMAL: from now on clamps are lifted, once the burst flows have ended."""
        state = self._ports.get(port)
        if state is None:
            return []
        state.up = False
        newest = self._flows.newest(port)
        if newest is not None and state.clamps:
            youngest_punished = max(clamp.flow.age_key for clamp in state.clamps.values())
            state.burst = (youngest_punished, newest.age_key)
        return self._lift_due(port, state, now_ns)

    def on_tick(self, now_ns: int) -> list[Lift]:
        """What time alone brings. Call it about every 3/2 RTT while ``busy``."""
        lifts: list[Lift] = []
        for port, state in list(self._ports.items()):
            lifts += self._expired(state, now_ns)
            lifts += self._lift_due(port, state, now_ns)
            if not state.clamps and _passed(state.last_punish_ns, self._policy.step_ns, now_ns):
                del self._ports[port]
        return lifts

    def on_flow_closed(self, flow: Flow) -> list[Lift]:
        """A flow ended (its sender's FIN, or RST)."""
        state = self._ports.get(flow.port)
        if state is None or flow.id not in state.clamps:
            return []
        return [self._lift(state, flow, LiftReason.CLOSED)]

    def on_entry_gone(self, dpid: int, key: FiveTuple) -> list[Lift]:
        """The switch removed a flow's entry by itself: it was idle, or the hard timeout came."""
        flow = self._punished.get((dpid, key))
        return [self._lift(self._ports[flow.port], flow, LiftReason.ENTRY_GONE)] if flow else []

    def on_switch_gone(self, dpid: int) -> list[Lift]:
        """A switch's session ended; its entries end by their timeouts."""
        gone = [port for port in self._ports if port.dpid == dpid]
        states = [self._ports.pop(port) for port in gone]
        return [lift for state in states for lift in self._lift_all(state, LiftReason.SWITCH_GONE)]

    def _share(self, alarm: Alarm, state: _Port) -> list[Punish]:
        """Equation (5) for each flow that does not have it yet, or has a whole segment more than it gives."""
        shares = [
            (clamp, self._decide(alarm, clamp.flow, Equation.SHARED, len(state.clamps)))
            for clamp in state.clamps.values()
        ]
        return [
            share
            for clamp, share in shares
            if clamp.equation is Equation.PUNISHED
            or clamp.window_bytes - share.window_bytes >= share.flow.mss_bytes
        ]

    def _decide(self, alarm: Alarm, flow: Flow, equation: Equation, candidates: int) -> Punish:
        policy = self._policy
        n = alarm.n_i or self._flows.count(alarm.port) or 1
        queue_bytes = alarm.queue_bytes
        if equation is Equation.SHARED:
            queue_bytes = settled_queue_bytes(queue_bytes, alarm.queue_pkts, policy.k_pkts)
        wc_bytes = average_window_bytes(alarm.port_rate_bps, policy.rtt_us, queue_bytes, n)
        wr_bytes = flow.largest_window_bytes
        window: Callable[[int, int | None, int], int] = (
            punished_window_bytes if equation is Equation.PUNISHED else shared_window_bytes
        )
        return Punish(
            flow=flow,
            equation=equation,
            window_bytes=window(wc_bytes, wr_bytes, flow.mss_bytes),
            alpha=policy.alpha if equation is Equation.PUNISHED else 0,
            candidates=candidates,
            capacity_bps=alarm.port_rate_bps,
            rtt_us=policy.rtt_us,
            queue_bytes=queue_bytes,
            n=n,
            wc_bytes=wc_bytes,
            wr_bytes=wr_bytes,
        )

    def _clamp(self, state: _Port, decision: Punish, now_ns: int) -> None:
        flow = decision.flow
        self._flows.hold(flow.id)
        state.clamps.pop(flow.id, None)
        state.clamps[flow.id] = _Clamp(flow, decision.equation, decision.window_bytes, now_ns)
        state.last_punish_ns = now_ns
        self._punished[flow.dpid, flow.key] = flow

    def _expired(self, state: _Port, now_ns: int) -> Iterator[Lift]:
        while state.clamps:
            first = next(iter(state.clamps.values()))
            if now_ns - first.since_ns < self._policy.hard_limit_ns:
                return
            yield self._lift(state, first.flow, LiftReason.EXPIRED)

    def _lift_due(self, port: PortKey, state: _Port, now_ns: int) -> list[Lift]:
        """The next clamp to lift, if there is one and its time has come."""
        if not state.clamps or not _passed(state.last_lift_ns, self._policy.step_ns, now_ns):
            return []
        if now_ns - state.last_alarm_ns >= self._policy.clamp_limit_ns:
            reason = LiftReason.LIMIT
        elif state.up or state.shared or (state.burst and self._flows.any_free_between(port, *state.burst)):
            return []
        else:
            reason = LiftReason.NORMAL
        state.last_lift_ns = now_ns
        return [self._lift(state, next(iter(state.clamps.values())).flow, reason)]

    def _lift_all(self, state: _Port, reason: LiftReason) -> list[Lift]:
        return [self._lift(state, clamp.flow, reason) for clamp in list(state.clamps.values())]

    def _lift(self, state: _Port, flow: Flow, reason: LiftReason) -> Lift:
        del state.clamps[flow.id]
        if self._punished.get((flow.dpid, flow.key)) == flow:  # a new flow may have its 5-tuple
            del self._punished[flow.dpid, flow.key]
        self._flows.release(flow.id)
        return Lift(flow, reason)


def _passed(since_ns: int | None, duration_ns: int, now_ns: int) -> bool:
    return since_ns is None or now_ns - since_ns >= duration_ns
