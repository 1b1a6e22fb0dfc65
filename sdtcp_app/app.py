"""SDTCP's shell: alarms and flow events in, clamps out."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from fabric_app.events import EventBase, EventFlowClosed
from fabric_app.pipeline import COOKIE_MASK, COOKIE_SDTCP
from flowdb.context import FlowDbContext
from flowdb.flow import PortKey
from openflow_ext import registry
from openflow_ext.engine import (
    CONFIG_DISPATCHER,
    DEAD_DISPATCHER,
    MAIN_DISPATCHER,
    App,
    hub,
    ofp_event,
    ofproto_v1_3,
    set_ev_cls,
)
from openflow_ext.settings import load_or_exit
from sdtcp_app import entries
from sdtcp_app.config import SdtcpSettings
from sdtcp_app.core import Alarm, Lift, Sdtcp
from sdtcp_app.record import Recorder

registry.install()

_LARGEST_RATE_BPS = 10**15
_LARGEST_TIME_NS = 2**63 - 1
_SHORTEST_TICK_S, _IDLE_TICK_S = 0.001, 0.05


class EventTick(EventBase):
    """Time passed. An event, so that ticks and alarms come one after the other under every engine."""


class SdtcpApp(App):
    """SDTCP on every port of every switch."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]  # noqa: RUF012 (the framework's form)
    _CONTEXTS = {"flowdb": FlowDbContext}  # noqa: RUF012

    def __init__(self, *args: Any, flowdb: FlowDbContext, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = load_or_exit("sdtcp", SdtcpSettings)
        self.core = Sdtcp(flowdb.index, self.settings.policy)
        self.recorder = Recorder(flowdb)
        self.datapaths: dict[int, Any] = {}
        self.malformed = 0

    def start(self) -> Any:
        self.threads.append(hub.spawn(self._tick))
        return super().start()

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def on_switch(self, ev: Any) -> None:
        datapath = ev.msg.datapath
        self.datapaths[datapath.id] = datapath
        self._lift(self.core.on_switch_gone(datapath.id))  # of a session that this one replaces
        datapath.send_msg(entries.forget_clamps(datapath))
        datapath.send_msg(entries.watch_ports(datapath, self.settings))

    @set_ev_cls(ofp_event.EventOFPStateChange, DEAD_DISPATCHER)
    def on_switch_gone(self, ev: Any) -> None:
        dpid = ev.datapath.id
        if self.datapaths.get(dpid) is ev.datapath:
            del self.datapaths[dpid]
            self._lift(self.core.on_switch_gone(dpid))

    @set_ev_cls(ofp_event.EventOFPBufAlarm, MAIN_DISPATCHER)
    def on_alarm(self, ev: Any) -> None:
        msg, now_ns = ev.msg, time.time_ns()
        port = self._port(msg)
        if port is None:
            return
        alarm = Alarm(port, msg.port_buf_bytes, msg.port_rate_bps, msg.n_i, msg.port_buf_pkts)
        decisions = self.core.on_alarm(alarm, time.monotonic_ns())
        for decision in decisions:
            msg.datapath.send_msg(entries.clamp(msg.datapath, decision, self.settings))
        if not decisions:
            self.recorder.repeated(port)
            return
        alarm_id = self.recorder.alarm(port, "alarm", msg, now_ns)
        for decision in decisions:
            self.recorder.punish(decision, alarm_id, now_ns)

    @set_ev_cls(ofp_event.EventOFPBufNormal, MAIN_DISPATCHER)
    def on_normal(self, ev: Any) -> None:
        port = self._port(ev.msg)
        if port is not None:
            self.recorder.alarm(port, "normal", ev.msg, time.time_ns())
            self._lift(self.core.on_normal(port, time.monotonic_ns()))

    @set_ev_cls(EventFlowClosed)
    def on_flow_closed(self, ev: EventFlowClosed) -> None:
        self._lift(self.core.on_flow_closed(ev.flow))

    @set_ev_cls(ofp_event.EventOFPFlowRemoved, MAIN_DISPATCHER)
    def on_entry_gone(self, ev: Any) -> None:
        msg, ofp = ev.msg, ev.msg.datapath.ofproto
        if msg.cookie & COOKIE_MASK != COOKIE_SDTCP or msg.reason == ofp.OFPRR_DELETE:
            return
        if key := entries.clamped_flow(msg.match):
            self._lift(self.core.on_entry_gone(msg.datapath.id, key))

    @set_ev_cls(EventTick)
    def on_tick(self, _ev: EventTick) -> None:
        self._lift(self.core.on_tick(time.monotonic_ns()))

    def _tick(self) -> None:
        step_s = max(self.settings.policy.step_ns / 1e9, _SHORTEST_TICK_S)
        while self.is_active:
            hub.sleep(min(step_s, _IDLE_TICK_S) if self.core.busy else _IDLE_TICK_S)
            if self.core.busy:
                self.send_event(self.name, EventTick())

    def _port(self, msg: Any) -> PortKey | None:
        """The port that a message of the queue speaks of; None, counted, where its figures make no sense."""
        if 0 < msg.port_rate_bps <= _LARGEST_RATE_BPS and msg.crossing_ns <= _LARGEST_TIME_NS:
            return PortKey(msg.datapath.id, msg.port.port_no)
        self.malformed += 1
        text = "switch %016x port %d: alarm dropped: rate %d bit/s, time %d ns make no sense"
        self.logger.warning(text, msg.datapath.id, msg.port.port_no, msg.port_rate_bps, msg.crossing_ns)
        return None

    def _lift(self, lifts: Iterable[Lift]) -> None:
        for decision in lifts:
            if datapath := self.datapaths.get(decision.flow.dpid):
                datapath.send_msg(entries.lift(datapath, decision.flow))
            self.recorder.lift(decision, time.time_ns())
