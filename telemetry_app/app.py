"""Telemetry's shell: asks every extended switch what its ports count, and tells and records the answers."""

from __future__ import annotations

import time
from typing import Any

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
    ofproto_v1_5,
    set_ev_cls,
)
from openflow_ext.settings import load_or_exit
from openflow_ext.wire import OFPET_EXPERIMENTER, OFPMPF_REPLY_MORE, OFPP_ANY
from telemetry_app.config import TelemetrySettings
from telemetry_app.core import Sampler, TooManyPorts
from telemetry_app.events import EventBase, EventPortSamples
from telemetry_app.record import record

registry.install()

_UP = [CONFIG_DISPATCHER, MAIN_DISPATCHER]


class EventTick(EventBase):
    """Time to ask. An event, so that requests and answers come one after the other under every engine."""


class TelemetryApp(App):
    """Samples the port counters of every extended switch, once for all who want them."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION, ofproto_v1_5.OFP_VERSION]  # noqa: RUF012 (the framework's form)
    _CONTEXTS = {"flowdb": FlowDbContext}  # noqa: RUF012
    _EVENTS = [EventPortSamples]  # noqa: RUF012

    def __init__(self, *args: Any, flowdb: FlowDbContext, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = load_or_exit("telemetry", TelemetrySettings)
        self.flowdb = flowdb
        flowdb.note_settings("telemetry", self.settings)
        self.sampler = Sampler()
        self.datapaths: dict[int, Any] = {}
        self._ticks = 0

    def start(self) -> Any:
        if self.settings.sample_s:
            self.threads.append(hub.spawn(self._tick))
        return super().start()

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def on_switch(self, ev: Any) -> None:
        datapath = ev.msg.datapath
        self.datapaths[datapath.id] = datapath
        self.sampler.switch_up(datapath.id)

    @set_ev_cls(ofp_event.EventOFPStateChange, DEAD_DISPATCHER)
    def on_switch_gone(self, ev: Any) -> None:
        dpid = ev.datapath.id
        if self.datapaths.get(dpid) is ev.datapath:
            del self.datapaths[dpid]
            self.sampler.switch_gone(dpid)
            self.send_event_to_observers(EventPortSamples(dpid, ()))

    @set_ev_cls(ofp_event.EventOFPPortDescStatsReply, _UP)
    def on_ports(self, ev: Any) -> None:
        for port in ev.msg.body:
            self._on_port(ev.msg.datapath.id, port)
        if not ev.msg.flags & OFPMPF_REPLY_MORE:
            self.sampler.described(ev.msg.datapath.id)

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def on_port_status(self, ev: Any) -> None:
        dpid, port = ev.msg.datapath.id, ev.msg.desc
        if ev.msg.reason == ev.msg.datapath.ofproto.OFPPR_DELETE:
            self.sampler.port_gone(PortKey(dpid, port.port_no))
        else:
            self._on_port(dpid, port)

    @set_ev_cls(EventTick)
    def on_tick(self, _ev: EventTick) -> None:
        self._ticks -= 1
        now_ns = time.monotonic_ns()
        for dpid in self.sampler.due(now_ns):
            datapath = self.datapaths[dpid]
            ask = datapath.ofproto_parser.OFPPortCountersRequest(datapath, port_no=OFPP_ANY)
            datapath.send_msg(ask)
            if self.sampler.asked(dpid, ask.xid, now_ns):
                self.logger.warning("switch %016x does not tell its port counters; asked again", dpid)

    @set_ev_cls(ofp_event.EventOFPPortCountersReply, _UP)
    def on_counters(self, ev: Any) -> None:
        msg = ev.msg
        dpid, reply = msg.datapath.id, msg.to_wire()
        now_ns = self.flowdb.clock.now_ns()
        try:
            samples = self.sampler.on_reply(dpid, msg.xid, reply.records, reply.more, now_ns)
        except TooManyPorts as error:
            self.logger.warning("switch %016x is not sampled: %s", dpid, error)
            return
        if samples is not None:
            record(self.flowdb, samples)
            self.send_event_to_observers(EventPortSamples(dpid, samples))

    @set_ev_cls(ofp_event.EventOFPErrorMsg, _UP)
    def on_error(self, ev: Any) -> None:
        if ev.msg.type == OFPET_EXPERIMENTER:
            return  # the extension's own: the data plane cannot be read just now
        if self.sampler.on_error(ev.msg.datapath.id, ev.msg.xid):
            self.logger.info("switch %016x has no port counters of Weir's", ev.msg.datapath.id)

    def _on_port(self, dpid: int, port: Any) -> None:
        name = port.name.decode(errors="replace").rstrip("\0")
        self.sampler.port_named(PortKey(dpid, port.port_no), name)

    def _tick(self) -> None:
        while self.is_active:
            hub.sleep(self.settings.sample_s)
            if not self._ticks:
                self._ticks += 1
                self.send_event(self.name, EventTick())
