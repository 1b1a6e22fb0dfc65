"""SDTCP's shell: alarms, flow events and commands in, clamps out."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from fabric_app.events import EventBase, EventFlowClosed, EventFlowOpened
from fabric_app.pipeline import COOKIE_MASK, COOKIE_SDTCP
from flowdb.commands import Command
from flowdb.context import FlowDbContext
from flowdb.db import FlowDb
from flowdb.flow import NS_PER_S, PortKey
from flowdb.index import Rank
from openflow_ext import registry
from openflow_ext.engine import (
    CONFIG_DISPATCHER,
    DEAD_DISPATCHER,
    MAIN_DISPATCHER,
    App,
    hub,
    ofp_event,
    ofproto_v1_3,
    ofproto_v1_5,
    set_ev_cls,
)
from openflow_ext.settings import SettingsError, Watch, load_or_exit
from sdtcp_app import entries
from sdtcp_app.carrier import Carrier
from sdtcp_app.commands import BadCommand, Desk
from sdtcp_app.config import SdtcpSettings
from sdtcp_app.core import Sdtcp
from sdtcp_app.decisions import Alarm
from sdtcp_app.metrics import Metrics, Sources
from sdtcp_app.record import Recorder
from sdtcp_app.reflex import Arm, Reflexes
from telemetry_app.events import EventPortSamples

registry.install()

_LARGEST_RATE_BPS = 10**15
_LARGEST_TIME_NS = 2**63 - 1
_SHORTEST_TICK_S, _IDLE_TICK_S = 0.001, 0.05
_NS_PER_MS = 1_000_000
_ANSWERS_EVERY_NS = 20_000_000
_EXPERIMENTER_ERROR = 0xFFFF
_UP = [CONFIG_DISPATCHER, MAIN_DISPATCHER]


class EventTick(EventBase):
    """Time passed. An event, so that ticks and alarms come one after the other under every engine."""


class SdtcpApp(App):
    """SDTCP on every port of every switch."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION, ofproto_v1_5.OFP_VERSION]  # noqa: RUF012 (the framework's form)
    _CONTEXTS = {"flowdb": FlowDbContext}  # noqa: RUF012

    def __init__(self, *args: Any, flowdb: FlowDb, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = load_or_exit("sdtcp", SdtcpSettings)
        self.flowdb = flowdb
        flowdb.note_settings("sdtcp", self.settings)
        self.core = Sdtcp(flowdb.index, self.settings.parameters)
        self.desk = Desk(self.core, flowdb.index, self._rank)
        self.reflexes = Reflexes(self.core, entries.armed_cookie)
        self.recorder = Recorder(flowdb)
        self.metrics = Metrics(flowdb, Sources(lambda: self.core.punished, self.events.qsize))
        now_ns = flowdb.clock.now_ns
        self.carrier = Carrier(self.settings, self.recorder, self.metrics, now_ns, self._policy_of)
        self._watch = Watch("sdtcp", SdtcpSettings)
        self._look_ns = self._ask_ns = self._ticks = 0
        self._flowless: set[PortKey] = set()
        flowdb.index.rank_by(self._rank())

    def start(self) -> Any:
        if self.settings.metrics:
            self.metrics.serve_or_exit(self.settings.metrics)
        self.threads.append(hub.spawn(self._tick))
        return super().start()

    def close(self) -> None:
        """The framework's last call: note what is answered and not noted yet."""
        self.carrier.catch_up()

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def on_switch(self, ev: Any) -> None:
        datapath = ev.msg.datapath
        self.carrier.switch_up(datapath)
        self.reflexes.forget_switch(datapath.id)
        self.carrier.carry_out(self.core.on_switch(datapath.id, time.monotonic_ns()))
        self._touch_all()

    @set_ev_cls(ofp_event.EventOFPStateChange, DEAD_DISPATCHER)
    def on_switch_gone(self, ev: Any) -> None:
        dpid = ev.datapath.id
        if self.carrier.datapaths.get(dpid) is ev.datapath:
            self.carrier.switch_gone(dpid)
            self.reflexes.forget_switch(dpid)
            self.carrier.carry_out(self.core.on_switch_gone(dpid, time.monotonic_ns()))

    @set_ev_cls(ofp_event.EventOFPBufAlarm, MAIN_DISPATCHER)
    def on_alarm(self, ev: Any) -> None:
        began_ns, msg = time.monotonic_ns(), ev.msg
        port = self._port(msg)
        if port is None:
            return
        alarm = Alarm(port, msg.port_buf_bytes, msg.port_rate_bps, msg.n_i, msg.port_buf_pkts)
        sent = self.carrier.send(self.core.on_alarm(alarm, began_ns))
        if sent:
            hub.sleep(0)  # the framework's sender goes first, the record after it
            self.metrics.latency.observe((time.monotonic_ns() - began_ns) / NS_PER_S)
        else:
            self._warn_flowless(port)
        self.metrics.alarms.labels("decided" if sent else "nothing").inc()
        self.carrier.note_alarm(port, msg, sent)
        if not self.events.qsize():
            self.carrier.catch_up()

    @set_ev_cls(ofp_event.EventOFPReflex, MAIN_DISPATCHER)
    def on_reflex(self, ev: Any) -> None:
        msg = ev.msg
        port = PortKey(msg.datapath.id, msg.port_no)
        if msg.on and (punish := self.reflexes.turned_on(port, msg.cookie)):
            self.carrier.carry_out(self.core.on_reflex(punish, time.monotonic_ns()))
            self.carrier.request([Arm(port, ())])
            self.metrics.reflexes.inc()

    @set_ev_cls(ofp_event.EventOFPBufNormal, MAIN_DISPATCHER)
    def on_normal(self, ev: Any) -> None:
        port = self._port(ev.msg)
        if port is not None:
            self.carrier.carry_out(self.core.on_normal(port, time.monotonic_ns()))
            self.recorder.alarm(port, "normal", ev.msg, self.flowdb.clock.now_ns())
            self._touch([port])

    @set_ev_cls(EventFlowOpened)
    def on_flows_opened(self, ev: EventFlowOpened) -> None:
        self._touch(hop.port for flow in ev.flows for hop in flow.path)

    @set_ev_cls(EventFlowClosed)
    def on_flow_closed(self, ev: EventFlowClosed) -> None:
        self.carrier.carry_out(self.core.on_flow_closed(ev.flow))
        self._touch(hop.port for hop in ev.flow.path)

    @set_ev_cls(EventPortSamples)
    def on_samples(self, ev: EventPortSamples) -> None:
        self.metrics.ports.take(ev.dpid, ev.samples)

    @set_ev_cls(ofp_event.EventOFPFlowRemoved, MAIN_DISPATCHER)
    def on_entry_gone(self, ev: Any) -> None:
        msg, ofp = ev.msg, ev.msg.datapath.ofproto
        if msg.cookie & COOKIE_MASK != COOKIE_SDTCP or msg.reason == ofp.OFPRR_DELETE:
            return
        if key := entries.clamped_flow(msg.match):
            self.carrier.carry_out(self.core.on_entry_gone(msg.datapath.id, key))

    @set_ev_cls(ofp_event.EventOFPPortConfigReply, MAIN_DISPATCHER)
    def on_port_config(self, ev: Any) -> None:
        if self.settings.mode == "reflex" and 0 < ev.msg.capacity_bps <= _LARGEST_RATE_BPS:
            self.reflexes.capacity(PortKey(ev.msg.datapath.id, ev.msg.port_no), ev.msg.capacity_bps)

    @set_ev_cls(ofp_event.EventOFPBarrierReply, _UP)
    def on_barrier(self, ev: Any) -> None:
        self.carrier.on_barrier(ev.msg.datapath.id, ev.msg.xid)

    @set_ev_cls(ofp_event.EventOFPErrorMsg, _UP)
    def on_error(self, ev: Any) -> None:
        msg = ev.msg
        code = msg.exp_type if msg.type == _EXPERIMENTER_ERROR else msg.code
        if port := self.carrier.on_error(msg.datapath.id, msg.xid, f"type {msg.type} code {code}"):
            self.logger.warning("port %s was not armed; it is tried again", port)
            self.reflexes.forget(port)

    @set_ev_cls(EventTick)
    def on_tick(self, _ev: EventTick) -> None:
        self._ticks -= 1
        now_ns = time.monotonic_ns()
        if self.core.busy:
            self.carrier.carry_out(self.core.on_tick(now_ns))
        if now_ns >= self._ask_ns:
            self._ask_ns = now_ns + _ANSWERS_EVERY_NS
            self.carrier.ask_answers()
        if self.settings.mode == "reflex":
            every_ns = self.settings.reflex_every_ms * _NS_PER_MS
            self.carrier.request(self.reflexes.due(self.settings.reflex_ranks, every_ns, now_ns))
        if now_ns >= self._look_ns:
            self._look_ns = now_ns + NS_PER_S
            self._look_at_settings()
        for command in self.flowdb.take_commands():
            self._obey(command, now_ns)

    def _tick(self) -> None:
        while self.is_active:
            step_s = max(self.core.parameters.step_ns / NS_PER_S, _SHORTEST_TICK_S)
            hub.sleep(min(step_s, _IDLE_TICK_S) if self.core.busy else _IDLE_TICK_S)
            if not self._ticks:
                self._ticks += 1
                self.send_event(self.name, EventTick())

    def _port(self, msg: Any) -> PortKey | None:
        """The port that a message of the queue speaks of; None, counted, where its figures make no sense."""
        if 0 < msg.port_rate_bps <= _LARGEST_RATE_BPS and msg.crossing_ns <= _LARGEST_TIME_NS:
            return PortKey(msg.datapath.id, msg.port.port_no)
        self.metrics.alarms.labels("malformed").inc()
        text = "switch %016x port %d: alarm dropped: rate %d bit/s, time %d ns make no sense"
        self.logger.warning(text, msg.datapath.id, msg.port.port_no, msg.port_rate_bps, msg.crossing_ns)
        return None

    def _warn_flowless(self, port: PortKey) -> None:
        """Say once, until flows are known there, that a port without any is alarmed."""
        if self.flowdb.index.count(port):
            self._flowless.discard(port)
        elif port not in self._flowless:
            self._flowless.add(port)
            self.logger.warning("port %s is alarmed, but no flow is known to leave by it", port)

    def _rank(self, policy: str | None = None) -> Rank:
        return self.settings.rank(self.desk.protected, policy)

    def _policy_of(self, port: PortKey) -> str:
        return self.desk.policies.get(port, self.settings.policy)

    def _touch(self, ports: Iterable[PortKey]) -> None:
        """The candidates of these ports may have changed."""
        if self.settings.mode == "reflex":
            self.reflexes.touch(ports)

    def _touch_all(self) -> None:
        self._touch(hop.port for flow in self.flowdb.index.flows() for hop in flow.path)

    def _look_at_settings(self) -> None:
        """Take changed settings on; wrong ones are named and change nothing."""
        try:
            news = self._watch.news()
        except SettingsError as error:
            self.logger.error("the settings stay as they are: %s", error)
            return
        if news is not None and news != self.settings:
            self._change_settings(news)

    def _change_settings(self, news: SdtcpSettings) -> None:
        before, self.settings = self.settings, news
        changed = [name for name in type(news).model_fields if getattr(news, name) != getattr(before, name)]
        self.logger.info("settings changed: %s", ", ".join(changed))
        if "metrics" in changed:
            self.logger.warning("[sdtcp] metrics takes effect with the next start")
        self.carrier.settings, self.core.parameters = news, news.parameters
        if {"policy", "priority", "protect"} & set(changed):
            self.flowdb.index.rank_by(self._rank())
            self.desk.rank_anew()
        if {"k_pkts", "rtt_us"} & set(changed):
            for datapath in self.carrier.datapaths.values():
                self.carrier.watch_ports(datapath)
        if "mode" in changed:
            self.carrier.request(self.reflexes.disarm_all())
            self._touch_all()

    def _obey(self, command: Command, now_ns: int) -> None:
        try:
            obeyed = self.desk.obey(command.kind, command.arguments, now_ns)
        except BadCommand as error:
            outcome, succeeded = str(error), False
        else:
            self.carrier.carry_out(obeyed.decisions, command_id=command.id)
            outcome, succeeded = obeyed.outcome, True
        self.logger.info("command %d: %s", command.id, outcome)
        self.metrics.commands.labels("obeyed" if succeeded else "refused").inc()
        self.flowdb.command_done(command, succeeded, outcome)
