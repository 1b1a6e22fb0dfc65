"""Alarms, decisions and clamps as rows of the flow database."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from flowdb.db import FlowDb
from flowdb.flow import PortKey
from flowdb.models import AlarmRow, ClampRow, DecisionRow
from sdtcp_app.core import Equation, Lift, Punish

POLICIES = {Equation.PUNISHED: "longest-lived", Equation.SHARED: "equal share"}
_INPUTS = ("capacity_bps", "rtt_us", "queue_bytes", "n", "wc_bytes", "wr_bytes")


class Recorder:
    """Writes what the core decided. Alarms that led to nothing are counted, not written one by one."""

    def __init__(self, flowdb: FlowDb) -> None:
        self._flowdb = flowdb
        self._repeats: Counter[PortKey] = Counter()
        self._clamps: dict[int, int] = {}

    def repeated(self, port: PortKey) -> None:
        """An alarm that led to no decision."""
        self._repeats[port] += 1

    def alarm(self, port: PortKey, kind: str, msg: Any, now_ns: int) -> int:
        """A BUF_ALARM ("alarm") with a decision, or a BUF_NORMAL ("normal"); returns the row's id."""
        return self._flowdb.insert(
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

    def punish(self, decision: Punish, alarm_id: int, now_ns: int) -> None:
        """A decision, and its clamp: a new one, or the new window of the one that the flow has."""
        flow, values = decision.flow, asdict(decision)
        decision_id = self._flowdb.insert(
            DecisionRow,
            alarm_id=alarm_id,
            flow_id=flow.id,
            decided_ns=now_ns,
            policy=POLICIES[decision.equation],
            candidates=decision.candidates,
            equation=int(decision.equation),
            mss_bytes=flow.mss_bytes,
            alpha=decision.alpha,
            window_bytes=decision.window_bytes,
            **{name: values[name] for name in _INPUTS},
        )
        if clamp_id := self._clamps.get(flow.id):
            self._flowdb.update(ClampRow, clamp_id, window_bytes=decision.window_bytes)
            return
        self._clamps[flow.id] = self._flowdb.insert(
            ClampRow,
            decision_id=decision_id,
            flow_id=flow.id,
            dpid=flow.dpid,
            port_no=flow.out_port,
            window_bytes=decision.window_bytes,
            pushed_ns=now_ns,
        )

    def lift(self, decision: Lift, now_ns: int) -> None:
        """The end of a clamp."""
        if clamp_id := self._clamps.pop(decision.flow.id, None):
            reason = str(decision.reason)
            self._flowdb.update(ClampRow, clamp_id, lifted_ns=now_ns, lift_reason=reason)
