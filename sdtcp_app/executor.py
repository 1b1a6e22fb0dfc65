"""Carries decisions out: sends them to the switches, records them, and takes the switches' confirmations."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app_base.messages import barrier, delete_entries
from app_base.metrics import AppMetrics
from flowdb.flow import PortKey
from sdtcp_app import messages
from sdtcp_app.arming import Arm, AskCapacity, Request
from sdtcp_app.config import SdtcpSettings
from sdtcp_app.confirmations import DONE, LOST, Confirmations, Entry
from sdtcp_app.core_types import Decision, Lift, Punish, Resume
from sdtcp_app.recorder import Recorder
from sdtcp_app.stage import STAGE

Sent = list[tuple[Decision, int | None]]
"""Decisions with the xid of their FLOW_MOD; None if nothing was sent."""

MOST_UNRECORDED = 1000
"""So many alarms may wait to be recorded."""


class Executor:
    """Everything that the app sends to switches.

    An alarm is answered first and recorded later: further alarms that wait are answered before.
    ``datapaths`` are the connected switches, ``policy_of`` gives the name of a port's policy, and
    ``next_table`` is the table to which clamped segments go.
    """

    def __init__(
        self,
        *,
        settings: SdtcpSettings,
        next_table: int,
        datapaths: Mapping[int, Any],
        recorder: Recorder,
        metrics: AppMetrics,
        now_ns: Callable[[], int],
        policy_of: Callable[[PortKey], str],
    ) -> None:
        self.settings = settings
        self._next_table = next_table
        self._datapaths = datapaths
        self._recorder = recorder
        self._metrics = metrics
        self._now_ns = now_ns
        self._policy_of = policy_of
        self._confirmations = Confirmations()
        self._alarm_xids: dict[int, int] = {}
        self._arm_xids: dict[PortKey, int] = {}
        self._unrecorded: deque[tuple[PortKey, Any, Sent, int]] = deque()

    def switch_connected(self, datapath: Any) -> None:
        """Delete the clamps of an earlier controller, and have every port raise alarms."""
        self.switch_disconnected(datapath.id)
        datapath.send_msg(delete_entries(datapath, STAGE))
        self.configure_alarms(datapath)

    def switch_disconnected(self, dpid: int) -> None:
        """The entries that the switch has not confirmed are recorded as lost."""
        self.record_alarms()
        self._recorder.switch_gone(dpid)
        for entry in self._confirmations.switch_gone(dpid):
            self._confirmed(entry, "lost", LOST)

    def configure_alarms(self, datapath: Any) -> None:
        """Send a switch the settings of the alarm."""
        watch = messages.watch_ports(datapath, self.settings)
        datapath.send_msg(watch)
        self._alarm_xids[datapath.id] = watch.xid

    def refuses_alarms(self, dpid: int, xid: int) -> bool:
        """Whether a message that a switch refused has the settings of the alarm: it runs no agent."""
        return self._alarm_xids.get(dpid) == xid

    def note_off(self, dpid: int, off: bool) -> None:
        """Whether a switch is off: its entries change no packet, and are recorded as observed."""
        self.record_alarms()
        self._recorder.note_off(dpid, off, self._now_ns())

    def carry_out(self, decisions: Sequence[Decision], command_id: int | None = None) -> None:
        """Send decisions and record them."""
        sent = self.send(decisions)
        self.record_alarms()
        self._record(sent, self._now_ns(), command_id=command_id)

    def send(self, decisions: Iterable[Decision]) -> Sent:
        """Send decisions. The caller has them recorded afterwards, with ``record_later``."""
        return [(decision, self._send(decision)) for decision in decisions]

    def record_later(self, port: PortKey, msg: Any, sent: Sent) -> None:
        """Have an alarm and its decisions recorded by the next ``record_alarms``."""
        self._unrecorded.append((port, msg, sent, self._now_ns()))
        if len(self._unrecorded) >= MOST_UNRECORDED:
            self.record_alarms()

    def record_alarms(self) -> None:
        """Record the alarms that wait for it."""
        while self._unrecorded:
            port, msg, sent, now_ns = self._unrecorded.popleft()
            begins = self._recorder.begins_without_tcp(port, msg.non_tcp_percent)
            due = self._recorder.is_due(port, now_ns)
            if sent or begins or due or self._recorder.awaits_alarm(port):
                self._record(sent, now_ns, alarm_id=self._recorder.alarm(port, "alarm", msg, now_ns))
            else:
                self._recorder.repeated(port)

    def request(self, requests: Iterable[Request]) -> None:
        """Send what arms ports, if their switch is connected."""
        for request in requests:
            if datapath := self._datapaths.get(request.port.dpid):
                match request:
                    case AskCapacity(port):
                        datapath.send_msg(messages.ask_capacity(datapath, port.port_no))
                    case Arm(port, clamps):
                        arm = messages.arm(datapath, port.port_no, clamps, self.settings)
                        datapath.send_msg(arm)
                        self._arm_xids[port] = arm.xid

    def ask_confirmations(self) -> None:
        """Send one barrier to each switch that has entries to confirm and no barrier under way."""
        self.record_alarms()
        for dpid in self._confirmations.to_ask():
            request = barrier(self._datapaths[dpid])
            self._datapaths[dpid].send_msg(request)
            self._confirmations.asked(dpid, request.xid)

    def on_barrier(self, dpid: int, xid: int) -> None:
        """A switch replied to a barrier: the entries before it are in force."""
        for entry in self._confirmations.on_barrier(dpid, xid):
            self._confirmed(entry, "done", DONE)

    def refused_flow(self, dpid: int, xid: int, error: str) -> int | None:
        """The id of the flow if the message that a switch refused was to clamp one. It is recorded."""
        self.record_alarms()
        entry = self._confirmations.on_error(dpid, xid)
        if entry is None:
            return None
        self._confirmed(entry, "refused", f"refused: {error}")
        return entry.flow_id

    def refused_arming(self, dpid: int, xid: int) -> PortKey | None:
        """The port if the message that a switch refused was to arm one."""
        return next(
            (port for port, sent in self._arm_xids.items() if port.dpid == dpid and sent == xid), None
        )

    def _send(self, decision: Decision) -> int | None:
        punish = decision.punish if isinstance(decision, Resume) else decision
        if isinstance(punish, Punish) and not punish.in_force:
            return None
        datapath = self._datapaths.get(punish.switch)
        if datapath is None:
            return None
        if isinstance(punish, Lift):
            flow_mod = messages.lift(datapath, punish.flow)
        else:
            flow_mod = messages.clamp(datapath, punish, self.settings, self._next_table)
        datapath.send_msg(flow_mod)
        return int(flow_mod.xid)

    def _record(
        self, sent: Sent, now_ns: int, *, alarm_id: int | None = None, command_id: int | None = None
    ) -> None:
        """Record sent decisions, and the alarm or command that led to them."""
        for decision, xid in sent:
            match decision:
                case Punish():
                    self._metrics.count("decisions", decision.equation.name.lower())
                    observed = decision.observed or self._recorder.is_off(decision.switch)
                    shown = replace(decision, observed=observed)
                    entry = messages.described(shown, self.settings) if xid else {}
                    policy = self._policy_of(decision.port)
                    cause = {"alarm_id": alarm_id, "command_id": command_id}
                    decision_id = self._recorder.punish(decision, policy, entry, now_ns, **cause)
                    if xid:
                        self._confirmations.sent(decision.switch, xid, Entry(decision.flow.id, decision_id))
                case Resume(punish):
                    self._recorder.resume(decision, now_ns)
                    if xid:
                        self._confirmations.sent(punish.switch, xid, Entry(punish.flow.id, None))
                case Lift():
                    self._metrics.count("lifts", str(decision.reason))
                    self._recorder.lift(decision, now_ns)

    def _confirmed(self, entry: Entry, outcome: str, answer: str) -> None:
        self._metrics.count("answers", outcome)
        if entry.decision_id is not None:
            self._recorder.answered(entry.decision_id, answer, self._now_ns())
