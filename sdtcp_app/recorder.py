"""Alarms, decisions, the switches' answers and clamps as rows of the flow database."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flowdb.db import FlowDb
from flowdb.flow import NON_TCP_PERCENT, NS_PER_S, Flow, PortKey
from flowdb.models import AlarmRow, ClampRow, DecisionRow
from sdtcp_app.clamp_table import Place
from sdtcp_app.core_types import Equation, Lift, LiftReason, Punish, Resume

NOT_PUSHED = "not pushed: another port wants a smaller window"
_RECORDED_AGAIN_NS = 300 * NS_PER_S
"""An alarm that lasts is recorded this often. The dashboard forgets alarms after twice this time."""
_SAME_CLOCK_NS = NS_PER_S
"""An alarm arrives within this time, so a larger difference is one of clocks."""
_POLICIES = {Equation.BY_HAND: "by hand", Equation.SHARED: "equal share"}


@dataclass(slots=True)
class _Clamp:
    """A clamp whose entry is in a switch. ``row_id`` None: the switch is off, so no flow is slowed down."""

    decision: Punish
    decision_id: int
    row_id: int | None = None


class Recorder:
    """Records alarms, decisions, clamps and the switches' answers.

    Alarms without a decision are counted, not recorded one by one. Only the first since the end of a port's
    last alarm has a row, and then one every five minutes. So the rows show which alarms last.

    A switch reports a reflex before the alarm that belongs to it. So the next alarm of the port is recorded
    as the cause of the reflex, unless the alarm ends first: then the cause stays unknown. ``counted`` gives a
    flow as policies see it.

    A switch that is turned off keeps its entries, but they change no packet. So a clamp has a row while its
    entry is in a switch that is on.
    """

    def __init__(self, flowdb: FlowDb, counted: Callable[[Flow], Flow]) -> None:
        self._flowdb = flowdb
        self._counted = counted
        self._repeats: Counter[PortKey] = Counter()
        self._recorded_ns: dict[PortKey, int] = {}
        self._without_tcp: set[PortKey] = set()
        self._without_alarm: defaultdict[PortKey, list[int]] = defaultdict(list)
        self._clamps: dict[Place, _Clamp] = {}
        self._off: set[int] = set()

    def is_off(self, dpid: int) -> bool:
        """Whether a switch is off: its entries change no packet."""
        return dpid in self._off

    def note_off(self, dpid: int, off: bool, now_ns: int) -> None:
        """A switch says whether it is off. If that changed, the rows of its clamps end or begin."""
        if off == self.is_off(dpid):
            return
        (self._off.add if off else self._off.discard)(dpid)
        for (_, switch), clamp in self._clamps.items():
            if switch == dpid and off:
                self._end(clamp, LiftReason.OFF, now_ns)
            elif switch == dpid:
                self._begin(clamp, now_ns)

    def switch_gone(self, dpid: int) -> None:
        """A session with a switch began or ended: its alarms and whether it is off are unknown."""
        self._off.discard(dpid)
        known = {*self._repeats, *self._recorded_ns, *self._without_alarm, *self._without_tcp}
        for port in known:
            if port.dpid == dpid:
                self.port_gone(port)

    def port_gone(self, port: PortKey) -> None:
        """A port was removed: its alarm is unknown."""
        self._repeats.pop(port, None)
        self._recorded_ns.pop(port, None)
        self._without_alarm.pop(port, None)
        self._without_tcp.discard(port)

    def repeated(self, port: PortKey) -> None:
        """Count an alarm without a decision."""
        self._repeats[port] += 1

    def is_due(self, port: PortKey, now_ns: int) -> bool:
        """Whether an alarm without a decision needs a row: nobody would know that it lasts."""
        recorded_ns = self._recorded_ns.get(port)
        return recorded_ns is None or now_ns - recorded_ns > _RECORDED_AGAIN_NS

    def begins_without_tcp(self, port: PortKey, non_tcp_percent: int) -> bool:
        """Whether this is the first alarm of a queue that packets other than TCP fill, since its last end."""
        if non_tcp_percent < NON_TCP_PERCENT or port in self._without_tcp:
            return False
        self._without_tcp.add(port)
        return True

    def awaits_alarm(self, port: PortKey) -> bool:
        """Whether a reflex of this port was recorded without its alarm."""
        return port in self._without_alarm

    def alarm(self, port: PortKey, kind: str, msg: Any, now_ns: int) -> int:
        """Record a BUF_ALARM ("alarm") or BUF_NORMAL ("normal"); returns the id of the row.

        A crossing far from ``now_ns`` is of another clock: the time of arrival replaces it.
        """
        if kind == "normal":
            self._without_tcp.discard(port)
            self._recorded_ns.pop(port, None)
            self._without_alarm.pop(port, None)
        else:
            self._recorded_ns[port] = now_ns
        same_clock = abs(now_ns - msg.crossing_ns) < _SAME_CLOCK_NS
        alarm_id = self._flowdb.insert(
            AlarmRow,
            dpid=port.dpid,
            port_no=port.port_no,
            kind=kind,
            queue_pkts=msg.port_buf_pkts,
            queue_bytes=msg.port_buf_bytes,
            port_rate_bps=msg.port_rate_bps,
            n_i=msg.n_i,
            crossing_ns=msg.crossing_ns if same_clock else now_ns,
            received_ns=now_ns,
            repeats=self._repeats.pop(port, 0),
            non_tcp_percent=msg.non_tcp_percent,
        )
        for decision_id in self._without_alarm.pop(port, ()):
            self._flowdb.update(DecisionRow, id=decision_id, alarm_id=alarm_id)
        return alarm_id

    def punish(
        self,
        decision: Punish,
        policy: str,
        entry: dict[str, Any],
        now_ns: int,
        *,
        alarm_id: int | None = None,
        command_id: int | None = None,
    ) -> int:
        """Record a decision, and its clamp or the new window of the flow's clamp.

        A decision that is only observed has no clamp, and one at a switch that is off has none until the
        switch is turned on. Returns the decision's id. Without an alarm and a command, the decision belongs
        to a reflex.
        """
        flow = decision.flow
        origin = "alarm" if alarm_id else "command" if command_id else "reflex"
        pushed: dict[str, Any] = {"entry": entry}
        if not decision.in_force:
            pushed = {"entry": {}, "answer": NOT_PUSHED, "answered_ns": now_ns}
        decision_id = self._flowdb.insert(
            DecisionRow,
            alarm_id=alarm_id,
            command_id=command_id,
            flow_id=flow.id,
            dpid=decision.port.dpid,
            port_no=decision.port.port_no,
            decided_ns=now_ns,
            origin=origin,
            policy=_POLICIES.get(decision.equation, policy),
            candidates=decision.candidates,
            ranking=[ranking_entry(self._counted(one), now_ns) for one in decision.ranking],
            equation=int(decision.equation),
            capacity_bps=decision.capacity_bps,
            rtt_us=decision.rtt_us,
            queue_bytes=decision.queue_bytes,
            allowance_bytes=decision.allowance_bytes,
            n=decision.n,
            wc_bytes=decision.wc_bytes,
            wr_bytes=decision.wr_bytes,
            mss_bytes=flow.mss_bytes,
            alpha=decision.alpha,
            window_bytes=decision.window_bytes,
            **pushed,
        )
        if origin == "reflex":
            self._without_alarm[decision.port].append(decision_id)
        if decision.in_force and not decision.observed:
            self._clamped(decision, decision_id, now_ns)
        return decision_id

    def resume(self, decision: Resume, now_ns: int) -> None:
        """Record that an earlier window is in force again. If it is only observed, the clamp has ended."""
        if decision.punish.observed:
            self._lifted(_place(decision.punish), LiftReason.SCOPE, now_ns)
        elif clamp := self._clamps.get(_place(decision.punish)):
            self._change(clamp, decision.punish)

    def answered(self, decision_id: int, answer: str, now_ns: int) -> None:
        """Record the switch's answer to a decision's entry."""
        self._flowdb.update(DecisionRow, id=decision_id, answer=answer, answered_ns=now_ns)

    def lift(self, decision: Lift, now_ns: int) -> None:
        """Record the end of a clamp."""
        self._lifted(_place(decision), decision.reason, now_ns)

    def _lifted(self, place: Place, reason: LiftReason, now_ns: int) -> None:
        if clamp := self._clamps.pop(place, None):
            self._end(clamp, reason, now_ns)

    def _clamped(self, decision: Punish, decision_id: int, now_ns: int) -> None:
        place = _place(decision)
        if clamp := self._clamps.get(place):
            self._change(clamp, decision)
            return
        clamp = self._clamps[place] = _Clamp(decision, decision_id)
        if not self.is_off(decision.switch):
            self._begin(clamp, now_ns)

    def _begin(self, clamp: _Clamp, now_ns: int) -> None:
        decision = clamp.decision
        clamp.row_id = self._flowdb.insert(
            ClampRow,
            decision_id=clamp.decision_id,
            flow_id=decision.flow.id,
            dpid=decision.port.dpid,
            port_no=decision.port.port_no,
            window_bytes=decision.window_bytes,
            pushed_ns=now_ns,
        )

    def _change(self, clamp: _Clamp, decision: Punish) -> None:
        clamp.decision = decision
        if clamp.row_id is not None:
            self._flowdb.update(ClampRow, id=clamp.row_id, window_bytes=decision.window_bytes)

    def _end(self, clamp: _Clamp, reason: LiftReason, now_ns: int) -> None:
        if clamp.row_id is not None:
            self._flowdb.update(ClampRow, id=clamp.row_id, lifted_ns=now_ns, lift_reason=str(reason))
            clamp.row_id = None


def _place(decision: Punish | Lift) -> Place:
    return decision.flow.id, decision.switch


def ranking_entry(flow: Flow, now_ns: int) -> dict[str, Any]:
    """A candidate, with the values that policies rank by, as the flow database holds it."""
    return {
        "flow_id": flow.id,
        "flow": str(flow.key),
        "age_s": round((now_ns - flow.opened_ns) / NS_PER_S, 3),
        "sent_bytes": flow.sent_bytes,
        "rate_bps": flow.rate_bps,
        "state": flow.state.value,
    }
