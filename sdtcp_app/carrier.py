"""Carries decisions out: to the switches at once, then into the record, and takes the switches' answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flowdb.flow import PortKey
from sdtcp_app import entries
from sdtcp_app.answers import DONE, LOST, Answers
from sdtcp_app.config import SdtcpSettings
from sdtcp_app.decisions import Decision, Lift, Punish, Resume
from sdtcp_app.metrics import Metrics
from sdtcp_app.record import Recorder
from sdtcp_app.reflex import Arm, AskCapacity, Request

Sent = list[tuple[Decision, int | None]]
"""Decisions with the xid of their FLOW_MOD; None: nothing was pushed."""

MOST_UNNOTED = 1000


class Carrier:
    """The switches that are here, and all that is sent to them. ``policy_of``: the policy at a port.

    Alarms that come close together are answered first and noted later, before anything else is.
    """

    def __init__(
        self,
        settings: SdtcpSettings,
        recorder: Recorder,
        metrics: Metrics,
        now_ns: Callable[[], int],
        policy_of: Callable[[PortKey], str],
    ) -> None:
        self.settings = settings
        self.datapaths: dict[int, Any] = {}
        self._recorder = recorder
        self._metrics = metrics
        self._now_ns = now_ns
        self._policy_of = policy_of
        self._answers = Answers()
        self._armed: dict[PortKey, int] = {}
        self._unnoted: deque[tuple[PortKey, Any, Sent, int]] = deque()

    def switch_up(self, datapath: Any) -> None:
        """A switch came: an earlier controller's clamps go, and every port raises alarms."""
        self.switch_gone(datapath.id)
        self.datapaths[datapath.id] = datapath
        datapath.send_msg(entries.forget_clamps(datapath))
        self.watch_ports(datapath)

    def switch_gone(self, dpid: int) -> None:
        self.datapaths.pop(dpid, None)
        self.catch_up()
        for decision_id in self._answers.gone(dpid):
            self._answered(decision_id, "lost", LOST)

    def watch_ports(self, datapath: Any) -> None:
        """Send the settings of the alarm."""
        datapath.send_msg(entries.watch_ports(datapath, self.settings))

    def carry_out(self, decisions: Sequence[Decision], command_id: int | None = None) -> None:
        """Send decisions and note them."""
        sent = self.send(decisions)
        self.catch_up()
        self._note(sent, self._now_ns(), command_id=command_id)

    def send(self, decisions: Iterable[Decision]) -> Sent:
        """Send decisions, which are to be noted afterwards, for an alarm waits for nothing."""
        return [(decision, self._send(decision)) for decision in decisions]

    def note_alarm(self, port: PortKey, msg: Any, sent: Sent) -> None:
        """Have an alarm noted, and the decisions that it led to, when ``catch_up`` is called."""
        self._unnoted.append((port, msg, sent, self._now_ns()))
        if len(self._unnoted) >= MOST_UNNOTED:
            self.catch_up()

    def catch_up(self) -> None:
        """Note the alarms that are not noted yet."""
        while self._unnoted:
            port, msg, sent, now_ns = self._unnoted.popleft()
            if sent or self._recorder.awaits_alarm(port):
                self._note(sent, now_ns, alarm_id=self._recorder.alarm(port, "alarm", msg, now_ns))
            else:
                self._recorder.repeated(port)

    def _note(
        self, sent: Sent, now_ns: int, *, alarm_id: int | None = None, command_id: int | None = None
    ) -> None:
        """Note what was sent, and which alarm or command led to it."""
        for decision, xid in sent:
            self._metrics.decided(decision)
            match decision:
                case Punish():
                    entry = entries.described(decision, self.settings) if xid else {}
                    policy = self._policy_of(decision.port)
                    why = {"alarm_id": alarm_id, "command_id": command_id}
                    decision_id = self._recorder.punish(decision, policy, entry, now_ns, **why)
                    if xid:
                        self._answers.pushed(decision.switch, xid, decision_id)
                case Resume():
                    self._recorder.resume(decision)
                case Lift():
                    self._recorder.lift(decision, now_ns)

    def request(self, requests: Iterable[Request]) -> None:
        """Send what arms ports."""
        for request in requests:
            if datapath := self.datapaths.get(request.port.dpid):
                match request:
                    case AskCapacity(port):
                        datapath.send_msg(entries.ask_capacity(datapath, port.port_no))
                    case Arm(port, clamps):
                        arm = entries.arm(datapath, port.port_no, clamps, self.settings)
                        datapath.send_msg(arm)
                        self._armed[port] = arm.xid

    def ask_answers(self) -> None:
        """One barrier to each switch that has something to answer and is not asked yet."""
        self.catch_up()
        for dpid in self._answers.to_ask():
            barrier = entries.barrier(self.datapaths[dpid])
            self.datapaths[dpid].send_msg(barrier)
            self._answers.asked(dpid, barrier.xid)

    def on_barrier(self, dpid: int, xid: int) -> None:
        for decision_id in self._answers.on_barrier(dpid, xid):
            self._answered(decision_id, "done", DONE)

    def on_error(self, dpid: int, xid: int, error: str) -> PortKey | None:
        """A switch refused a message; returns the port if that was to arm it."""
        self.catch_up()
        if decision_id := self._answers.on_error(dpid, xid):
            self._answered(decision_id, "refused", f"refused: {error}")
        return next((port for port, sent in self._armed.items() if port.dpid == dpid and sent == xid), None)

    def _send(self, decision: Decision) -> int | None:
        punish = decision.punish if isinstance(decision, Resume) else decision
        if isinstance(punish, Punish) and not punish.in_force:
            return None
        datapath = self.datapaths.get(punish.switch)
        if datapath is None:
            return None
        if isinstance(punish, Lift):
            mod = entries.lift(datapath, punish.flow)
        else:
            mod = entries.clamp(datapath, punish, self.settings)
        datapath.send_msg(mod)
        return int(mod.xid)

    def _answered(self, decision_id: int, outcome: str, answer: str) -> None:
        self._metrics.answers.labels(outcome).inc()
        self._recorder.answered(decision_id, answer, self._now_ns())
