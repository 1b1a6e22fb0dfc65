"""The control loop of SDTCP (sections III.B to III.E), one state machine for each congested port. Pure.

Punish. At an alarm, the policy's first candidate gets the window of equation (3). Candidates are the flows
whose data leaves through the port and that have no clamp. The next candidate is punished only if the port is
alarmed again after 3/2 RTT. The table of the paper's symbols is in ``equations.py``; the policies are in
``policies.py``.

Share. With the last candidate, each flow through the port gets the share of equation (5), and a smaller one
as flows join. Windows of equation (3) would drain the queue, so that no alarm follows, and leave the link
idle (docs/decisions/0112). Flows that the port released count as punished. A port that corrects its allowance
gives its flows what the link needs. There the last candidate is punished like the others, and a further alarm
brings equation (5).

As published, a flow has one clamp, which several ports may want (``clamp_table.py``). It is at the switch
that the flow's ACKs pass first: the last connected switch of its data's path that runs an agent. A port that
corrects its allowance corrects only windows that its own switch sets, so there each port has clamps of its
own. The smallest window that an ACK meets on its way is in force.

Release. Clamps are lifted after BUF_NORMAL, as soon as the burst flows have ended. Burst flows over standing
connections never send a FIN, so clamps are lifted at the latest ``clamp_limit_ns`` after the port's last
alarm. Burst flows are the flows that were not punished and are younger than the punished ones at the time of
BUF_NORMAL. When all flows are punished (equation 5), burst flows look like the others. Then each flow that
ends lets the port lift one clamp, and the limit lifts the others: standing connections that were released at
once would start the next burst with large windows.

One clamp is lifted in 3/2 RTT, the oldest first. A full congestion window waits behind each clamp, so lifting
all clamps at once would fill the queue. In 3/2 RTT the switch checks the queue three times, and an alarm
stops the lifting. The order gives each flow the same time under a clamp.

The RTT of equation (1) is the least handshake RTT of the first candidates. A longer handshake waited in the
queue, which Q(t) already counts. If the alarm holds an allowance, it takes the place of C x RTT.

A clamp also ends with its flow, with its entry in the switch, and ``hard_limit_ns`` after its last entry (the
entry's hard timeout). The flow may then be chosen again. If the switch refuses the entry, the clamp ends and
the flow may be chosen again after ``hard_limit_ns``. No sequence of calls leaves a clamp forever.

All times are of one monotonic clock, in nanoseconds. Not implemented: moving a clamp when its flow is
rerouted.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Protocol

from flowdb.flow import NON_TCP_PERCENT, FiveTuple, Flow, PortKey
from sdtcp_app.clamp_table import Clamp, Clamps
from sdtcp_app.core_types import Alarm, Decision, Equation, Lift, LiftReason, Parameters, Punish, Wanter
from sdtcp_app.equations import (
    average_window_bytes,
    punished_window_bytes,
    settled_queue_bytes,
    shared_window_bytes,
)
from weir_base.window import bdp_bytes

AgeKey = tuple[int, int]

RANKED = 5
"""The number of candidates that a decision records."""

_ALL_PORTS_EVERY_NS = 50_000_000
_LEAST_MSS_BYTES = 88
"""Linux's least MSS: a share that shrinks by fewer bytes loses no segment for any flow."""


class Flows(Protocol):
    """The flows of every port, as FlowIndex keeps them. A flow that is held is not a candidate."""

    def candidates(self, port: PortKey, limit: int) -> list[Flow]: ...
    def newest(self, port: PortKey) -> Flow | None: ...
    def any_active_between(
        self, port: PortKey, after: AgeKey, until: AgeKey, besides: Container[int]
    ) -> bool: ...
    def count(self, port: PortKey) -> int: ...
    def count_candidates(self, port: PortKey) -> int: ...
    def get(self, flow_id: int) -> Flow | None: ...
    def hold(self, flow_id: int) -> None: ...
    def release(self, flow_id: int) -> None: ...


@dataclass(slots=True)
class _Port:
    """One port's episode of congestion.

    ``clamps``: the clamps that the port wants, the oldest first. ``burst``: the range of ages of the burst
    flows. ``lifted``: flows whose clamps the port lifted because a burst was over, so they do not belong to a
    burst.
    ``shared``: the last W_c of equation (5), and the number of the newest clamp at that time.
    ``ended``: flows that ended under equation (5), less the clamps that the port lifted for them.
    """

    last_alarm_ns: int
    up: bool = True
    last_punish_ns: int | None = None
    last_lift_ns: int | None = None
    clamps: dict[int, Clamp] = field(default_factory=dict)
    burst: tuple[AgeKey, AgeKey] | None = None
    lifted: set[int] = field(default_factory=set)
    shared: tuple[int, int] | None = None
    ended: int = 0


class Sdtcp:
    """The controller's decisions for all ports. Each call returns the decisions to carry out, in order."""

    def __init__(self, flows: Flows, parameters: Parameters) -> None:
        self.parameters = parameters
        self._flows = flows
        self._clamps = Clamps(flows)
        self._ports: dict[PortKey, _Port] = {}
        self._lifting: set[PortKey] = set()
        self._all_ports_ns = -_ALL_PORTS_EVERY_NS
        self._switches: set[int] = set()

    @property
    def busy(self) -> bool:
        """Whether ``on_tick`` has work, now or later."""
        return bool(self._ports or self._clamps or self._clamps.refused)

    @property
    def punished(self) -> int:
        """The number of clamped flows."""
        return self._clamps.flows

    def is_punished(self, flow_id: int) -> bool:
        """Whether a flow is clamped."""
        return bool(self._clamps.of_flow(flow_id))

    def is_up(self, port: PortKey) -> bool:
        """Whether a port's last report was an alarm."""
        state = self._ports.get(port)
        return state is not None and state.up

    def on_switch(self, dpid: int, now_ns: int) -> list[Decision]:
        """A switch connected; its earlier clamps are void."""
        decisions = self.on_switch_gone(dpid, now_ns)
        self._switches.add(dpid)
        return decisions

    def on_switch_gone(self, dpid: int, now_ns: int) -> list[Decision]:
        """A switch disconnected: its entries end by their timeouts, and its ports no longer want clamps.

        A switch that runs no agent is like one that is not connected.
        """
        self._switches.discard(dpid)
        decisions: list[Decision] = [
            self._end(clamp, LiftReason.SWITCH_GONE) for clamp in self._clamps.at(dpid)
        ]
        for port in [port for port in self._ports if port.dpid == dpid]:
            for clamp in list(self._ports.pop(port).clamps.values()):
                decisions += self._clamps.drop(clamp, port, LiftReason.SWITCH_GONE, now_ns)
            self._lifting.discard(port)
        return decisions

    def on_alarm(self, alarm: Alarm, now_ns: int) -> list[Decision]:
        """Answers BUF_ALARM. Within 3/2 RTT of the port's last punishment it decides nothing.

        Nor does it if packets that are not TCP fill the queue: a smaller window would not shorten it.
        """
        state = self._alarmed(alarm.port, now_ns)
        if alarm.non_tcp_percent >= NON_TCP_PERCENT:
            return []
        if not _passed(state.last_punish_ns, self.parameters.step_ns, now_ns):
            return []
        ranking = self._candidates(alarm.port)
        share = self._are_all_punished(state, ranking)
        wanted = self._share(alarm, state, ranking) if share else [self._punish(alarm, ranking)]
        return self._want(state, wanted, now_ns)

    def on_reflex(self, punish: Punish, now_ns: int) -> list[Decision]:
        """The data plane activated the entry that was armed as ``punish``: it becomes a clamp."""
        flow = self._flows.get(punish.flow.id)
        if flow is None or self.is_punished(flow.id):
            return []
        return self._want(self._alarmed(punish.port, now_ns), [punish], now_ns)

    def armed(self, alarm: Alarm, ranks: int) -> list[Punish]:
        """The punishments of the next ``ranks`` alarms, if they were like this one."""
        ranking = tuple(self._flows.candidates(alarm.port, ranks))
        return [self._punish(alarm, ranking[place:]) for place in range(len(ranking))]

    def on_normal(self, port: PortKey, now_ns: int) -> list[Decision]:
        """Answers BUF_NORMAL: clamps are lifted as soon as the burst flows have ended."""
        state = self._ports.get(port)
        if state is None:
            return []
        state.up = False
        self._lifting.add(port)
        newest = self._flows.newest(port)
        if newest is not None and state.clamps:
            longest_lived = min(clamp.flow.age_key for clamp in state.clamps.values())
            state.burst = (longest_lived, newest.age_key)
        return self._lift_due(port, state, now_ns)

    def on_tick(self, now_ns: int) -> list[Decision]:
        """Lifts the clamps that are due. Call it about every 3/2 RTT while ``busy``."""
        decisions: list[Decision] = [
            self._end(clamp, LiftReason.EXPIRED)
            for clamp in self._clamps.expired(self.parameters.hard_limit_ns, now_ns)
        ]
        self._clamps.free_refused(now_ns)
        due: Iterable[PortKey] = self._lifting
        if not 0 <= now_ns - self._all_ports_ns < _ALL_PORTS_EVERY_NS:
            self._all_ports_ns, due = now_ns, self._ports
        for port in list(due):
            state = self._ports[port]
            decisions += self._lift_due(port, state, now_ns)
            if not state.clamps and _passed(state.last_punish_ns, self.parameters.step_ns, now_ns):
                del self._ports[port]
                self._lifting.discard(port)
        return decisions

    def on_flow_closed(self, flow: Flow) -> list[Decision]:
        """A flow ended, by FIN or RST."""
        for clamp in self._clamps.of_flow(flow.id):
            for wanter, want in clamp.wants.items():
                if wanter and want.equation is Equation.SHARED and (state := self._ports.get(wanter)):
                    state.ended += 1
        for hop in flow.path:
            if state := self._ports.get(hop.port):
                state.lifted.discard(flow.id)
        self._clamps.refused.pop(flow.id, None)
        return self._end_all(flow.id, LiftReason.CLOSED)

    def on_entry_gone(self, dpid: int, key: FiveTuple) -> list[Decision]:
        """The switch removed a flow's entry after its idle or hard timeout."""
        clamp = self._clamps.of_entry(dpid, key)
        return [self._end(clamp, LiftReason.ENTRY_GONE)] if clamp else []

    def on_refused(self, flow_id: int, dpid: int, now_ns: int) -> list[Decision]:
        """A switch refused the entry of a flow's clamp."""
        clamp = self._clamps.get(flow_id, dpid)
        if clamp is None:
            return []
        self._forget_wants(clamp)
        return [self._clamps.refuse(clamp, now_ns + self.parameters.hard_limit_ns)]

    def release(self, flow_id: int) -> list[Decision]:
        """A person releases a flow."""
        return self._end_all(flow_id, LiftReason.RELEASED)

    def release_all(self) -> list[Decision]:
        """All clamps end, because the settings changed where the controller acts."""
        return [self._end(clamp, LiftReason.SCOPE) for clamp in self._clamps.all()]

    def reaches(self, flow: Flow) -> bool:
        """Whether a switch on a flow's path is connected and runs an agent, so that it can have a clamp."""
        return any(hop.dpid in self._switches for hop in flow.path)

    def punish(self, flow: Flow, window_bytes: int, now_ns: int) -> list[Decision]:
        """A person slows a flow down, until it is released or ``hard_limit_ns`` have passed.

        The path of the flow is known.
        """
        port = flow.path[-1].port
        by_hand = Punish(
            flow=flow,
            port=port,
            switch=self._switch_of(flow, None),
            equation=Equation.BY_HAND,
            window_bytes=max(window_bytes, flow.mss_bytes),
            alpha=0,
            candidates=1,
            ranking=(flow,),
            capacity_bps=0,
            rtt_us=0,
            queue_bytes=0,
            n=self._flows.count(port),
            wc_bytes=0,
            wr_bytes=flow.largest_window_bytes,
            observed=not self._acts_on(flow, port),
        )
        return [*self._clamps.want(by_hand, now_ns)]

    def _alarmed(self, port: PortKey, now_ns: int) -> _Port:
        state = self._ports.setdefault(port, _Port(now_ns))
        state.last_alarm_ns, state.up, state.burst = now_ns, True, None
        self._lifting.discard(port)
        return state

    def _candidates(self, port: PortKey) -> tuple[Flow, ...]:
        """The first candidates of a port. A flow that is only observed for another port is one, too."""
        ranking = tuple(self._flows.candidates(port, RANKED))
        if ranking:
            return ranking
        observed = self._clamps.flows_through(port, only_observed=True)
        return tuple(islice((flow for flow in observed if self._acts_on(flow, port)), RANKED))

    def _acts_on(self, flow: Flow, port: PortKey) -> bool:
        return self.parameters.scope.acts_on(port, flow.key)

    def _punish(self, alarm: Alarm, ranking: tuple[Flow, ...]) -> Punish:
        candidates = self._flows.count_candidates(alarm.port) or len(ranking)
        return self._decide(alarm, ranking[0], Equation.PUNISHED, candidates, ranking[:RANKED])

    def _are_all_punished(self, state: _Port, ranking: tuple[Flow, ...]) -> bool:
        """Whether this alarm punishes the last flow of a port, or all flows were punished before.

        A flow that the port released counts as punished, because its full congestion window raised the alarm.
        Where the port corrects its allowance, no candidate may be left. ``ranking`` holds at most RANKED
        candidates, so a full one may not be all of them.
        """
        if self.parameters.corrects_allowance:
            return not ranking
        never_punished = [flow for flow in ranking if flow.id not in state.lifted]
        return len(ranking) < RANKED and len(never_punished) <= 1

    def _share(self, alarm: Alarm, state: _Port, candidates: tuple[Flow, ...]) -> list[Punish]:
        """Equation (5) for each flow that still lacks it, or whose window is at least a segment larger.

        ``candidates``: flows that get their clamp now. One may have a clamp that is only observed.
        """
        clamped = self._clamps.flows_through(alarm.port)
        flows = list({flow.id: flow for flow in (*clamped, *candidates)}.values())
        if not flows:
            return []
        ranking = tuple(flows[:RANKED])
        first = self._decide(alarm, ranking[0], Equation.SHARED, len(flows), ranking)
        if state.shared is not None and not candidates:
            wc_bytes, newest = state.shared
            if newest == self._clamps.newest and wc_bytes - first.wc_bytes < _LEAST_MSS_BYTES:
                return []
        state.shared = first.wc_bytes, self._clamps.newest
        shares = (self._decide(alarm, flow, Equation.SHARED, len(flows), ranking) for flow in flows)
        return [share for share in shares if self._changes_window(share)]

    def _decide(
        self, alarm: Alarm, flow: Flow, equation: Equation, candidates: int, ranking: tuple[Flow, ...]
    ) -> Punish:
        parameters, shared = self.parameters, equation is Equation.SHARED
        n = alarm.n_i or self._flows.count(alarm.port) or 1
        queue_bytes, rtt_us = alarm.queue_bytes, self._rtt_us(ranking)
        if shared:
            queue_bytes = settled_queue_bytes(queue_bytes, alarm.queue_pkts, parameters.k_pkts)
        allowance_bytes = alarm.allowance_bytes if parameters.corrects_allowance else 0
        link_bytes = allowance_bytes or bdp_bytes(alarm.port_rate_bps, rtt_us)
        wc_bytes = average_window_bytes(link_bytes, queue_bytes, n)
        wr_bytes = flow.largest_window_bytes
        window = shared_window_bytes if shared else punished_window_bytes
        return Punish(
            flow=flow,
            port=alarm.port,
            switch=self._switch_of(flow, alarm.port),
            equation=equation,
            window_bytes=window(wc_bytes, wr_bytes, flow.mss_bytes),
            alpha=0 if shared and not parameters.corrects_allowance else parameters.alpha,
            candidates=candidates,
            ranking=ranking,
            capacity_bps=alarm.port_rate_bps,
            rtt_us=rtt_us,
            queue_bytes=queue_bytes,
            n=n,
            wc_bytes=wc_bytes,
            wr_bytes=wr_bytes,
            observed=not self._acts_on(flow, alarm.port),
            allowance_bytes=allowance_bytes,
        )

    def _rtt_us(self, flows: Iterable[Flow]) -> int:
        measured = (flow.handshake_rtt_us for flow in flows if flow.handshake_rtt_us)
        return min(measured, default=self.parameters.rtt_us)

    def _switch_of(self, flow: Flow, wanter: Wanter) -> int:
        """The switch of the clamp that ``wanter`` wants for a flow.

        A clamp that it already wants stays where it is, and so does a flow's only clamp. A new one is at the
        port's own switch, or at the first connected switch on the path of the flow's ACKs.
        """
        clamps = self._clamps.of_flow(flow.id)
        own = wanter if self.parameters.corrects_allowance else None
        for clamp in clamps:
            if own is None or wanter in clamp.wants:
                return clamp.switch
        if own is not None:
            return own.dpid
        from_the_receiver = (hop.dpid for hop in reversed(flow.path) if hop.dpid in self._switches)
        return next(from_the_receiver, flow.path[-1].dpid)

    def _want(self, state: _Port, wanted: list[Punish], now_ns: int) -> list[Decision]:
        if wanted:
            state.last_punish_ns = now_ns
        decisions: list[Decision] = [
            *chain.from_iterable(self._clamps.want(punish, now_ns) for punish in wanted)
        ]
        for punish in wanted:
            flow_id = punish.flow.id
            state.clamps.pop(flow_id, None)
            state.lifted.discard(flow_id)
            if clamp := self._clamps.get(flow_id, punish.switch):
                state.clamps[flow_id] = clamp
        return decisions

    def _lift_due(self, port: PortKey, state: _Port, now_ns: int) -> list[Decision]:
        """Lifts the port's next clamp if it is due."""
        if not state.clamps or not _passed(state.last_lift_ns, self.parameters.step_ns, now_ns):
            return []
        if now_ns - state.last_alarm_ns >= self.parameters.clamp_limit_ns:
            reason = LiftReason.LIMIT
        elif state.up or not self._burst_is_over(port, state):
            return []
        else:
            reason = LiftReason.NORMAL
            state.ended = max(state.ended - 1, 0)
        state.last_lift_ns = now_ns
        clamp = state.clamps.pop(next(iter(state.clamps)))
        if reason is LiftReason.NORMAL:
            state.lifted.add(clamp.flow.id)
        return [*self._clamps.drop(clamp, port, reason, now_ns)]

    def _burst_is_over(self, port: PortKey, state: _Port) -> bool:
        """Whether no burst flow is left or, under equation (5), more flows ended than clamps were lifted.

        A burst flow has no clamp and is younger than the port's longest-lived punished flow. It ends with its
        FIN, or if it is idle.
        """
        if _shared(port, state):
            return state.ended > 0
        return state.burst is None or not self._flows.any_active_between(port, *state.burst, state.lifted)

    def _changes_window(self, share: Punish) -> bool:
        """Whether a share changes something: it is the port's first one, or at least a segment smaller."""
        clamp = self._clamps.get(share.flow.id, share.switch)
        before = clamp.wants.get(share.port) if clamp else None
        if before is None or before.equation is not Equation.SHARED:
            return True
        return before.window_bytes - share.window_bytes >= share.flow.mss_bytes

    def _end_all(self, flow_id: int, reason: LiftReason) -> list[Decision]:
        return [self._end(clamp, reason) for clamp in self._clamps.of_flow(flow_id)]

    def _end(self, clamp: Clamp, reason: LiftReason) -> Lift:
        self._forget_wants(clamp)
        return self._clamps.end(clamp, reason)

    def _forget_wants(self, clamp: Clamp) -> None:
        for wanter in clamp.wants:
            if wanter and (state := self._ports.get(wanter)):
                state.clamps.pop(clamp.flow.id, None)


def _shared(port: PortKey, state: _Port) -> bool:
    """Whether equation (5) is in force at a port."""
    return any(
        want.equation is Equation.SHARED for clamp in state.clamps.values() if (want := clamp.wants.get(port))
    )


def _passed(since_ns: int | None, duration_ns: int, now_ns: int) -> bool:
    return since_ns is None or now_ns - since_ns >= duration_ns
