"""Alarms, decisions, the switches' answers and clamps as rows of the flow database."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from flowdb.db import FlowDb
from flowdb.flow import NS_PER_S, Flow, PortKey
from flowdb.models import AlarmRow, ClampRow, DecisionRow
from sdtcp_app.decisions import Equation, Lift, Punish, Resume

NOT_PUSHED = "not pushed: another port wants a smaller window"
_POLICIES = {Equation.BY_HAND: "by hand", Equation.SHARED: "equal share"}


class Recorder:
    """Writes what was decided and what came of it.

    Alarms that led to nothing are counted, not written one by one. A reflex is told before the alarm that
    it belongs to; the next alarm of its port is noted as its.
    """

    def __init__(self, flowdb: FlowDb) -> None:
        self._flowdb = flowdb
        self._repeats: Counter[PortKey] = Counter()
        self._without_alarm: defaultdict[PortKey, list[int]] = defaultdict(list)
        self._clamps: dict[int, int] = {}

    def repeated(self, port: PortKey) -> None:
        """An alarm that led to no decision."""
        self._repeats[port] += 1

    def awaits_alarm(self, port: PortKey) -> bool:
        """Whether a reflex of this port was recorded without its alarm."""
        return port in self._without_alarm

    def alarm(self, port: PortKey, kind: str, msg: Any, now_ns: int) -> int:
        """A BUF_ALARM ("alarm") with a decision, or a BUF_NORMAL ("normal"); returns the row's id."""
        alarm_id = self._flowdb.insert(
            AlarmRow,
            dpid=port.dpid,
            port_no=port.port_no,
            kind=kind,
            queue_pkts=msg.port_buf_pkts,
            queue_bytes=msg.port_buf_bytes,
            port_rate_bps=msg.port_rate_bps,
            n_i=msg.n_i,
            crossing_ns=msg.crossing_ns,
            received_ns=now_ns,
            repeats=self._repeats.pop(port, 0),
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
        """A decision, and its clamp: a new one, or the new window of the one that the flow has.

        Returns the decision's id. Neither an alarm's nor a command's, it is a reflex's.
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
            ranking=[_ranked(one, now_ns) for one in decision.ranking],
            equation=int(decision.equation),
            capacity_bps=decision.capacity_bps,
            rtt_us=decision.rtt_us,
            queue_bytes=decision.queue_bytes,
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
        if decision.in_force:
            self._clamped(decision, decision_id, now_ns)
        return decision_id

    def resume(self, decision: Resume) -> None:
        """A window decided before is in force again."""
        self._window(decision.punish)

    def answered(self, decision_id: int, answer: str, now_ns: int) -> None:
        """What the switch said to a decision's entry."""
        self._flowdb.update(DecisionRow, id=decision_id, answer=answer, answered_ns=now_ns)

    def lift(self, decision: Lift, now_ns: int) -> None:
        """The end of a clamp."""
        if clamp_id := self._clamps.pop(decision.flow.id, None):
            reason = str(decision.reason)
            self._flowdb.update(ClampRow, id=clamp_id, lifted_ns=now_ns, lift_reason=reason)

    def _clamped(self, decision: Punish, decision_id: int, now_ns: int) -> None:
        flow_id = decision.flow.id
        if flow_id in self._clamps:
            self._window(decision)
            return
        self._clamps[flow_id] = self._flowdb.insert(
            ClampRow,
            decision_id=decision_id,
            flow_id=flow_id,
            dpid=decision.port.dpid,
            port_no=decision.port.port_no,
            window_bytes=decision.window_bytes,
            pushed_ns=now_ns,
        )

    def _window(self, decision: Punish) -> None:
        if clamp_id := self._clamps.get(decision.flow.id):
            self._flowdb.update(ClampRow, id=clamp_id, window_bytes=decision.window_bytes)


def _ranked(flow: Flow, now_ns: int) -> dict[str, Any]:
    """A candidate as the policy saw it."""
    return {
        "flow_id": flow.id,
        "flow": str(flow.key),
        "age_s": round((now_ns - flow.opened_ns) / NS_PER_S, 3),
        "sent_bytes": flow.sent_bytes,
        "rate_bps": flow.rate_bps,
        "state": flow.state.value,
    }
