"""SDTCP's shell: alarms, flow events and commands go to the core, the core's decisions go to the switches."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from app_base.app import CONNECTED, ControllerApp, Refusal
from app_base.pipeline import COOKIE_MASK
from fabric_app.events import EventFlowClosed, EventFlowOpened
from flowdb.commands import FLOW_KINDS, Command
from flowdb.context import FlowDbContext
from flowdb.flow import NON_TCP_PERCENT, NS_PER_S, PortKey
from flowdb.index import Rank
from openflow_ext.engine import MAIN_DISPATCHER, hub, ofp_event, set_ev_cls
from sdtcp_app import messages
from sdtcp_app.arming import Arm, ArmedPorts
from sdtcp_app.commands import CommandHandler, CommandRefused
from sdtcp_app.config import SdtcpSettings
from sdtcp_app.core import Sdtcp
from sdtcp_app.core_types import Alarm
from sdtcp_app.executor import Executor
from sdtcp_app.recorder import Recorder
from sdtcp_app.stage import STAGE
from sdtcp_app.standing import Standings
from telemetry_app.events import EventPortSamples
from telemetry_app.metrics import PortCollector
from weir_base.log_limit import LogLimit
from weir_base.settings import SettingsError, Watch

_LARGEST_RATE_BPS = 10**15
_LARGEST_TIME_NS = 2**63 - 1
_MOST_PORTS = 4096
"""The ports of a switch whose alarms are heard. An agent's data plane has no more (WEIR_MAX_PORTS)."""
_SHORTEST_TICK_S, _LONGEST_TICK_S, _IDLE_TICK_S = 0.001, 0.05, 0.25
_NS_PER_MS = 1_000_000
_CONFIRM_EVERY_NS = 20_000_000
_LOG_EVERY_S = 10.0
"""The time between two lines about a port whose queue packets other than TCP fill."""


class SdtcpApp(ControllerApp[SdtcpSettings]):
    """SDTCP on every port of every switch."""

    DECLARATION = STAGE

    def __init__(self, *args: Any, flowdb: FlowDbContext, **kwargs: Any) -> None:
        super().__init__(*args, flowdb=flowdb, **kwargs)
        self.core = Sdtcp(flowdb.index, self.settings.parameters)
        self.standings = Standings(self.settings.standing_s)
        self.commands = CommandHandler(self.core, flowdb.index, self._rank)
        self.armed_ports = ArmedPorts(self.core, messages.armed_cookie)
        self.recorder = Recorder(flowdb, self.standings.counted)
        self.port_figures = PortCollector()
        self.metrics.registry.register(self.port_figures)
        self.metrics.read_from("clamps", lambda: self.core.punished)
        self.metrics.read_from("events_waiting", lambda: self.events.qsize())
        self.executor = Executor(
            settings=self.settings,
            next_table=self.pipeline.next_table(STAGE.table),
            datapaths=self.datapaths,
            recorder=self.recorder,
            metrics=self.metrics,
            now_ns=flowdb.clock.now_ns,
            policy_of=self._policy_of,
        )
        self._watch = Watch("sdtcp", SdtcpSettings)
        self._settings_due_ns = self._confirm_due_ns = 0
        self._heard_ports: dict[int, set[int]] = {}
        self._ports_without_flows: set[PortKey] = set()
        self._non_tcp_lines = LogLimit(_LOG_EVERY_S)
        flowdb.index.rank_by(self._rank())

    def close(self) -> None:
        """The framework's last call: record the alarms that were answered but not recorded."""
        self.executor.record_alarms()

    def switch_connected(self, datapath: Any) -> None:
        self.executor.switch_connected(datapath)
        self._forget_ports(datapath.id)
        self.executor.carry_out(self.core.on_switch(datapath.id, time.monotonic_ns()))
        self._touch_all()

    def switch_disconnected(self, dpid: int) -> None:
        self.executor.switch_disconnected(dpid)
        self._forget_ports(dpid)
        self.executor.carry_out(self.core.on_switch_gone(dpid, time.monotonic_ns()))

    @set_ev_cls(ofp_event.EventOFPBufAlarm, MAIN_DISPATCHER)
    def on_alarm(self, ev: Any) -> None:
        began_ns, msg = time.monotonic_ns(), ev.msg
        port = self._port(msg)
        if port is None:
            return
        alarm = Alarm(
            port,
            msg.port_buf_bytes,
            msg.port_rate_bps,
            msg.n_i,
            msg.port_buf_pkts,
            msg.non_tcp_percent,
            msg.allowance_bytes,
        )
        sent = self.executor.send(self.core.on_alarm(alarm, began_ns))
        if sent:
            hub.sleep(0)  # the framework's sender runs before the alarm is recorded
            latency_s = (time.monotonic_ns() - began_ns) / NS_PER_S
            self.metrics.observe("alarm_to_flow_mod_seconds", latency_s)
        else:
            self._warn_without_decision(alarm)
        self.metrics.count("alarms", "decided" if sent else "nothing")
        self.check_interval()
        self.executor.record_later(port, msg, sent)
        if not self.events.qsize():
            self.executor.record_alarms()

    @set_ev_cls(ofp_event.EventOFPReflex, MAIN_DISPATCHER)
    def on_reflex(self, ev: Any) -> None:
        msg = ev.msg
        port = PortKey(msg.datapath.id, msg.port_no)
        if msg.on and (punish := self.armed_ports.activated(port, msg.cookie)):
            self.executor.carry_out(self.core.on_reflex(punish, time.monotonic_ns()))
            self.executor.request([Arm(port, ())])
            self.metrics.count("reflexes")
            self.check_interval()

    @set_ev_cls(ofp_event.EventOFPBufNormal, MAIN_DISPATCHER)
    def on_normal(self, ev: Any) -> None:
        port = self._port(ev.msg)
        if port is not None:
            self.executor.carry_out(self.core.on_normal(port, time.monotonic_ns()))
            self.recorder.alarm(port, "normal", ev.msg, self.flowdb.clock.now_ns())
            self._touch([port])

    @set_ev_cls(EventFlowOpened)
    def on_flows_opened(self, ev: EventFlowOpened) -> None:
        for flow in ev.flows:
            if self.standings.opened(flow):
                self.flowdb.index.rank_flow(flow.id)
        self._touch(hop.port for flow in ev.flows for hop in flow.path)

    @set_ev_cls(EventFlowClosed)
    def on_flow_closed(self, ev: EventFlowClosed) -> None:
        heir = self.standings.closed(ev.flow, self.core.is_punished(ev.flow.id), ev.closed_ns)
        if heir is not None:
            self.flowdb.index.rank_flow(heir)
        self.executor.carry_out(self.core.on_flow_closed(ev.flow))
        self._touch(hop.port for hop in ev.flow.path)

    @set_ev_cls(EventPortSamples)
    def on_samples(self, ev: EventPortSamples) -> None:
        self.port_figures.take(ev.dpid, ev.samples)
        if ev.samples and ev.dpid in self.datapaths:
            self.executor.note_off(ev.dpid, any(sample.counters.is_off for sample in ev.samples))
        for sample in ev.samples:
            if 0 < sample.counters.capacity_bps <= _LARGEST_RATE_BPS:
                self.armed_ports.sampled(sample.port, sample.counters.capacity_bps)

    @set_ev_cls(ofp_event.EventOFPFlowRemoved, MAIN_DISPATCHER)
    def on_entry_gone(self, ev: Any) -> None:
        msg, ofp = ev.msg, ev.msg.datapath.ofproto
        if msg.cookie & COOKIE_MASK != STAGE.cookie or msg.reason == ofp.OFPRR_DELETE:
            return
        if key := messages.clamped_flow(msg.match):
            self.executor.carry_out(self.core.on_entry_gone(msg.datapath.id, key))

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def on_port_status(self, ev: Any) -> None:
        if ev.msg.reason == ev.msg.datapath.ofproto.OFPPR_DELETE:
            port = PortKey(ev.msg.datapath.id, ev.msg.desc.port_no)
            self._heard_ports.get(port.dpid, set()).discard(port.port_no)
            self._ports_without_flows.discard(port)
            self.recorder.port_gone(port)

    @set_ev_cls(ofp_event.EventOFPPortConfigReply, MAIN_DISPATCHER)
    def on_port_config(self, ev: Any) -> None:
        port = PortKey(ev.msg.datapath.id, ev.msg.port_no)
        is_possible = 0 < ev.msg.capacity_bps <= _LARGEST_RATE_BPS
        if self.settings.arms_ports and is_possible and self._hears(port):
            self.armed_ports.set_capacity(port, ev.msg.capacity_bps)

    @set_ev_cls(ofp_event.EventOFPBarrierReply, CONNECTED)
    def on_barrier(self, ev: Any) -> None:
        self.executor.on_barrier(ev.msg.datapath.id, ev.msg.xid)

    def message_refused(self, refusal: Refusal) -> None:
        if self.executor.refuses_alarms(refusal.dpid, refusal.xid):
            self.executor.carry_out(self.core.on_switch_gone(refusal.dpid, time.monotonic_ns()))
            return
        flow_id = self.executor.refused_flow(refusal.dpid, refusal.xid, str(refusal))
        if flow_id is not None:
            self.executor.carry_out(self.core.on_refused(flow_id, refusal.dpid, time.monotonic_ns()))
        elif port := self.executor.refused_arming(refusal.dpid, refusal.xid):
            text = f"port {port} was not armed; the controller tries again"
            self.warn_of_switch(refusal.dpid, text)
            self.armed_ports.forget(port)

    def tick_interval_s(self) -> float:
        if not self.core.busy:
            return _LONGEST_TICK_S if self.settings.arms_ports else _IDLE_TICK_S
        step_s = max(self.core.parameters.step_ns / NS_PER_S, _SHORTEST_TICK_S)
        return min(step_s, _LONGEST_TICK_S)

    def tick(self) -> None:
        now_ns = time.monotonic_ns()
        if self.core.busy:
            self.executor.carry_out(self.core.on_tick(now_ns))
        if now_ns >= self._confirm_due_ns:
            self._confirm_due_ns = now_ns + _CONFIRM_EVERY_NS
            self.executor.ask_confirmations()
        if self.settings.arms_ports:
            every_ns = self.settings.reflex_every_ms * _NS_PER_MS
            self.executor.request(self.armed_ports.due(self.settings.reflex_ranks, every_ns, now_ns))
        if now_ns >= self._settings_due_ns:
            self._settings_due_ns = now_ns + NS_PER_S
            self._reload_settings()
        for command in self.flowdb.take_commands(FLOW_KINDS):
            self._obey(command, now_ns)

    def _port(self, msg: Any) -> PortKey | None:
        """The port of an alarm or its end; None, counted and logged, if the values are impossible."""
        port = PortKey(msg.datapath.id, msg.port.port_no)
        if not (0 < msg.port_rate_bps <= _LARGEST_RATE_BPS and msg.crossing_ns <= _LARGEST_TIME_NS):
            why = f"impossible rate {msg.port_rate_bps} bit/s or time {msg.crossing_ns} ns"
        elif not self._hears(port):
            why = f"{_MOST_PORTS} other ports of the switch have raised alarms"
        else:
            return port
        self.metrics.count("alarms", "malformed")
        self.warn_of_switch(port.dpid, f"port {port}: alarm dropped: {why}")
        return None

    def _hears(self, port: PortKey) -> bool:
        """Whether messages about a port are taken. A switch cannot name port after port without end."""
        heard = self._heard_ports.setdefault(port.dpid, set())
        if len(heard) < _MOST_PORTS:
            heard.add(port.port_no)
        return port.port_no in heard

    def _forget_ports(self, dpid: int) -> None:
        """A session with a switch began or ended."""
        self.armed_ports.forget_switch(dpid)
        self._heard_ports.pop(dpid, None)
        self._ports_without_flows = {port for port in self._ports_without_flows if port.dpid != dpid}

    def _warn_without_decision(self, alarm: Alarm) -> None:
        """Log an alarm that punishes no flow, if the operator has to know why.

        Packets other than TCP fill the queue: at most once in ``_LOG_EVERY_S``. No flow is known at the port:
        once until a flow is known there.
        """
        port = alarm.port
        if alarm.non_tcp_percent >= NON_TCP_PERCENT:
            if self._non_tcp_lines.passes(port, time.monotonic()) is not None:
                cause = f"packets other than TCP fill its queue ({alarm.non_tcp_percent} %)"
                self.logger.warning("port %s raised an alarm: %s, no flow is punished", port, cause)
        elif self.flowdb.index.count(port):
            self._ports_without_flows.discard(port)
        elif port not in self._ports_without_flows:
            self._ports_without_flows.add(port)
            text = f"port {port} raised an alarm, but no flow is known to leave through it"
            self.warn_of_switch(port.dpid, text)

    def _rank(self, policy: str | None = None) -> Rank:
        return self.standings.ranked(self.settings.rank(self.commands.protected, policy))

    def _policy_of(self, port: PortKey) -> str:
        return self.commands.policies.get(port, self.settings.policy)

    def _touch(self, ports: Iterable[PortKey]) -> None:
        """The candidates of these ports may have changed."""
        if self.settings.arms_ports:
            self.armed_ports.touch(ports)

    def _touch_all(self) -> None:
        self._touch(hop.port for flow in self.flowdb.index.flows() for hop in flow.path)

    def _reload_settings(self) -> None:
        """Apply changed settings; wrong ones are logged and change nothing."""
        try:
            changed = self._watch.news()
        except SettingsError as error:
            self.logger.error("the settings stay as they are: %s", error)
            return
        if changed is not None and changed != self.settings:
            self._change_settings(changed)

    def _change_settings(self, now: SdtcpSettings) -> None:
        before, self.settings = self.settings, now
        changed = [name for name in type(now).model_fields if getattr(now, name) != getattr(before, name)]
        self.logger.info("settings changed: %s", ", ".join(changed))
        self.flowdb.note_settings(self.DECLARATION.name, now)
        if "metrics" in changed:
            self.logger.warning("[sdtcp] metrics takes effect at the next start")
        self.executor.settings, self.core.parameters = now, now.parameters
        self.standings.keep_s = now.standing_s
        if {"policy", "priority", "protect"} & set(changed):
            self.flowdb.index.rank_by(self._rank())
            self.commands.rank_anew()
        of_ports = ("alarm_k_pkts", "rtt_us", "corrects_allowance", "fits_ports")
        if any(getattr(now, name) != getattr(before, name) for name in of_ports):
            for datapath in self.datapaths.values():
                self.executor.configure_alarms(datapath)
        if now.scope != before.scope:
            self.executor.carry_out(self.core.release_all())
        if "mode" in changed or now.scope != before.scope:
            self.executor.request(self.armed_ports.disarm_all())
            self._touch_all()

    def _obey(self, command: Command, now_ns: int) -> None:
        try:
            obeyed = self.commands.obey(command.kind, command.arguments, now_ns)
        except CommandRefused as error:
            outcome, succeeded = str(error), False
        else:
            self.executor.carry_out(obeyed.decisions, command_id=command.id)
            outcome, succeeded = obeyed.outcome, True
        self.logger.info("command %d: %s", command.id, outcome)
        self.metrics.count("commands", "obeyed" if succeeded else "refused")
        self.flowdb.command_done(command, succeeded, outcome)
