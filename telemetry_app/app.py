"""The controller app that asks every extended switch for its port counters and publishes the replies."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from app_base.app import CONNECTED, ControllerApp, Refusal
from app_base.messages import port_name
from app_base.stage import Declaration
from flowdb.context import FlowDbContext
from flowdb.flow import PortKey
from openflow_ext.engine import MAIN_DISPATCHER, ofp_event, set_ev_cls
from openflow_ext.wire import OFPET_EXPERIMENTER, OFPMPF_REPLY_MORE, OFPP_ANY
from telemetry_app.config import TelemetrySettings
from telemetry_app.core import Sampler, TooManyPorts
from telemetry_app.events import EventPortSamples
from telemetry_app.record import record
from telemetry_app.row_choice import RowChoice


class TelemetryApp(ControllerApp[TelemetrySettings]):
    """Samples the port counters of every extended switch, once for all apps that use them."""

    DECLARATION = Declaration(name="telemetry", settings=TelemetrySettings)
    _EVENTS: ClassVar[list[type]] = [EventPortSamples]

    def __init__(self, *args: Any, flowdb: FlowDbContext, **kwargs: Any) -> None:
        super().__init__(*args, flowdb=flowdb, **kwargs)
        self.sampler = Sampler()
        self.row_choice = RowChoice()

    def switch_connected(self, datapath: Any) -> None:
        self.sampler.switch_up(datapath.id)

    def switch_disconnected(self, dpid: int) -> None:
        self.sampler.switch_gone(dpid)
        record(self.flowdb, self.row_choice.switch_gone(dpid))
        self.send_event_to_observers(EventPortSamples(dpid, ()))

    @set_ev_cls(ofp_event.EventOFPPortDescStatsReply, CONNECTED)
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

    def tick_interval_s(self) -> float:
        return self.settings.sample_s

    def tick(self) -> None:
        now_ns = time.monotonic_ns()
        for dpid in self.sampler.due(now_ns):
            datapath = self.datapaths[dpid]
            ask = datapath.ofproto_parser.OFPPortCountersRequest(datapath, port_no=OFPP_ANY)
            datapath.send_msg(ask)
            if self.sampler.asked(dpid, ask.xid, now_ns):
                self.logger.warning(
                    "switch %016x did not answer a request for port counters; asked again", dpid
                )

    @set_ev_cls(ofp_event.EventOFPPortCountersReply, CONNECTED)
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
            record(self.flowdb, self.row_choice.choose(dpid, samples))
            self.send_event_to_observers(EventPortSamples(dpid, samples))

    def message_refused(self, refusal: Refusal) -> None:
        if refusal.type == OFPET_EXPERIMENTER:
            return  # an error of the extension: the data plane cannot be read at the moment
        if self.sampler.on_error(refusal.dpid, refusal.xid):
            self.logger.info("switch %016x does not have Weir's port counters", refusal.dpid)

    def _on_port(self, dpid: int, port: Any) -> None:
        self.sampler.port_named(PortKey(dpid, port.port_no), port_name(port))
