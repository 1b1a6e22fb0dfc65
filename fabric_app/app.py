"""The fabric's shell: OpenFlow in, the core's decisions out."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Any

from fabric_app import entries
from fabric_app.config import FabricSettings
from fabric_app.connections import Changed, Closed, FlowEvent, Opened
from fabric_app.core import Fabric
from fabric_app.decisions import Await, Decision, Learned, LinkDown, LinkUp, Put, Send, Sweep
from fabric_app.events import EventBase, EventFlowClosed, EventFlowOpened
from fabric_app.frames import MalformedFrame
from fabric_app.lldp import KEY_BYTES, ForgedFrame
from fabric_app.pipeline import (
    COOKIE_FABRIC,
    COOKIE_MASK,
    COOKIE_SCCP,
    COOKIE_SDTCP,
    TABLE_FORWARDING,
    TABLE_SCCP,
    TABLE_SDTCP,
)
from fabric_app.record import Recorder
from fabric_app.reports import Doubt
from flowdb.context import FlowDbContext
from flowdb.flow import PortKey
from openflow_ext import registry
from openflow_ext.engine import (
    CONFIG_DISPATCHER,
    DEAD_DISPATCHER,
    HANDSHAKE_DISPATCHER,
    MAIN_DISPATCHER,
    App,
    app_manager,
    hub,
    ofp_event,
    ofproto_v1_3,
    ofproto_v1_5,
    set_ev_cls,
)
from openflow_ext.settings import load_or_exit

registry.install()

_OTHER_APPS = {"SdtcpApp": (TABLE_SDTCP, COOKIE_SDTCP), "SccpApp": (TABLE_SCCP, COOKIE_SCCP)}
_UP = [CONFIG_DISPATCHER, MAIN_DISPATCHER]
_TICK_S = 0.1
_RECORDS_AT_ONCE = 16
"""Of a flow report, which may have hundreds: an alarm that came behind it is answered in between."""
_REPORTS = 0
"""The number of the barrier behind the request for flow reports; the core's begin at 1."""


class EventTick(EventBase):
    """Time passed. An event, so that ticks and messages come one after the other under every engine."""


class FabricApp(App):
    """Finds links and hosts, answers ARP and neighbour discovery, routes, and tells of TCP flows."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION, ofproto_v1_5.OFP_VERSION]  # noqa: RUF012 (the framework's form)
    _CONTEXTS = {"flowdb": FlowDbContext}  # noqa: RUF012
    _EVENTS = [EventFlowOpened, EventFlowClosed]  # noqa: RUF012

    def __init__(self, *args: Any, flowdb: FlowDbContext, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = load_or_exit("fabric", FabricSettings)
        self.flowdb = flowdb
        flowdb.note_settings("fabric", self.settings)
        self.recorder = Recorder(flowdb)
        self.core = Fabric(flowdb.next_id, os.urandom(KEY_BYTES), self.settings.options)
        self.core.adopt(flowdb.index.flows())
        self.datapaths: dict[int, Any] = {}
        self._generation = int.from_bytes(os.urandom(4), "big")
        self._barriers: dict[tuple[int, int], int] = {}
        self._report_xids: dict[int, int] = {}
        self._ticks = 0

    def start(self) -> Any:
        self.threads.append(hub.spawn(self._tick))
        return super().start()

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def on_switch(self, ev: Any) -> None:
        datapath = ev.msg.datapath
        self.datapaths[datapath.id] = datapath
        for name, (table_id, cookie) in _OTHER_APPS.items():
            if app_manager.lookup_service_brick(name) is None:  # left by a process that ran it
                datapath.send_msg(entries.delete_all(datapath, table_id, cookie))
        self._carry_out(self.core.switch_up(datapath.id, self._now_ns()))
        datapath.send_msg(entries.ask_entries(datapath))
        self._ask_reports(datapath)
        self.recorder.switch(datapath.id, connected=True)
        self.logger.info("switch %016x is here", datapath.id)

    @set_ev_cls(ofp_event.EventOFPStateChange, DEAD_DISPATCHER)
    def on_switch_gone(self, ev: Any) -> None:
        dpid = ev.datapath.id
        if self.datapaths.get(dpid) is ev.datapath:
            del self.datapaths[dpid]
            self._carry_out(self.core.switch_down(dpid, self._now_ns()))
            self.recorder.switch(dpid, connected=False)
            self.logger.info("switch %016x is gone", dpid)

    @set_ev_cls([ofp_event.EventOFPFlowStatsReply, ofp_event.EventOFPFlowDescStatsReply], _UP)
    def on_entries(self, ev: Any) -> None:
        found = entries.inherited(ev.msg.body, self._generation)
        dpid = ev.msg.datapath.id
        self.core.network.inherit(dpid, found.hosts, found.link_ports, found.generations)

    @set_ev_cls(ofp_event.EventOFPPortDescStatsReply, _UP)
    def on_ports(self, ev: Any) -> None:
        for port in ev.msg.body:
            self._on_port(ev.msg.datapath, port)

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def on_port_status(self, ev: Any) -> None:
        datapath, port = ev.msg.datapath, ev.msg.desc
        if ev.msg.reason == datapath.ofproto.OFPPR_DELETE:
            gone = PortKey(datapath.id, port.port_no)
            self._carry_out(self.core.port_gone(gone, self._now_ns()))
        else:
            self._on_port(datapath, port)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def on_packet_in(self, ev: Any) -> None:
        msg, now_ns = ev.msg, self._now_ns()
        if msg.cookie & COOKIE_MASK != COOKIE_FABRIC:
            return
        at = PortKey(msg.datapath.id, msg.match["in_port"])
        waits = msg.table_id == TABLE_FORWARDING
        try:
            self._carry_out(self.core.on_packet(bytes(msg.data), at, now_ns, waits))
        except MalformedFrame as error:
            self._complain(self.core.malformed, f"port {at}: frame dropped: {error}")
        except ForgedFrame as error:
            self._complain(self.core.network.discovery.forged, f"port {at}: frame dropped: {error}")

    @set_ev_cls(ofp_event.EventOFPFlowReport, _UP)
    def on_flow_report(self, ev: Any) -> None:
        msg, dpid, now_ns = ev.msg, ev.msg.datapath.id, self._now_ns()
        for start in range(0, len(msg.records), _RECORDS_AT_ONCE):
            some = msg.records[start : start + _RECORDS_AT_ONCE]
            self._carry_out(self.core.on_records(dpid, some, now_ns))
            hub.sleep(0)
        if msg.lost:
            self.logger.warning("switch %016x lost %d flow reports", dpid, msg.lost)
            self._carry_out(self.core.roll_not_called(dpid))
        if msg.roll_called:
            self._carry_out(self.core.roll_called(dpid))

    @set_ev_cls(ofp_event.EventOFPBarrierReply, _UP)
    def on_barrier(self, ev: Any) -> None:
        dpid = ev.msg.datapath.id
        number = self._barriers.pop((dpid, ev.msg.xid), None)
        if number == _REPORTS and self._report_xids.pop(dpid, 0):
            self.core.network.reports_flows(dpid)
        elif number is not None:
            self._carry_out(self.core.setups.on_done(dpid, number))

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [HANDSHAKE_DISPATCHER, *_UP])
    def on_error(self, ev: Any) -> None:
        msg = ev.msg
        dpid = msg.datapath.id or 0
        if self._report_xids.get(dpid) == msg.xid:
            del self._report_xids[dpid]
            self._carry_out(self.core.roll_not_called(dpid))
            self.logger.info("switch %016x does not report flows: segments are copied", dpid)
            return
        code = getattr(msg, "code", None) if msg.type != 0xFFFF else getattr(msg, "exp_type", None)
        self.logger.warning(
            "switch %016x refuses message %#x: type %s code %s", dpid, msg.xid, msg.type, code
        )

    @set_ev_cls(EventTick)
    def on_tick(self, _ev: EventTick) -> None:
        self._ticks -= 1
        self._carry_out(self.core.on_tick(self._now_ns()))

    def _tick(self) -> None:
        while self.is_active:
            hub.sleep(_TICK_S)
            if not self._ticks:
                self._ticks += 1
                self.send_event(self.name, EventTick())

    def _complain(self, count: int, text: str) -> None:
        """Log what is wrong; of many of a kind, ever fewer: the first, the second, the fourth, the eighth."""
        level = logging.DEBUG if count & (count - 1) else logging.WARNING
        self.logger.log(level, "%s (number %d)", text, count)

    def _on_port(self, datapath: Any, port: Any) -> None:
        up, at = entries.is_up(datapath, port), PortKey(datapath.id, port.port_no)
        change = self.core.port_up if up else self.core.port_down
        self._carry_out(change(at, self._now_ns()))
        self.recorder.port(datapath.id, port, up)

    def _ask_reports(self, datapath: Any) -> None:
        """Reports are asked for; a barrier behind tells that they were not refused."""
        settings = self.settings
        ask = entries.ask_reports(datapath, settings.report_ms, round(settings.report_active_s * 1000))
        datapath.send_msg(ask)
        self._report_xids[datapath.id] = ask.xid
        self._await(datapath, _REPORTS)

    def _await(self, datapath: Any, number: int) -> None:
        barrier = entries.barrier(datapath)
        datapath.set_xid(barrier)
        self._barriers[datapath.id, barrier.xid] = number
        datapath.send_msg(barrier)

    def _carry_out(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Send() | Put() | Await() | Sweep():
                    if datapath := self.datapaths.get(decision.dpid):
                        self._instruct(datapath, decision)
                case Learned(host):
                    self.recorder.host(host)
                case LinkUp(link):
                    self.recorder.link(link, up=True)
                    self.logger.info("link %s found", link)
                case LinkDown(link):
                    self.recorder.link(link, up=False)
                    self.logger.info("link %s lost", link)
                case Doubt(text):
                    self._complain(self.core.reports.doubts, text)
                case _:
                    self._tell(decision)

    def _instruct(self, datapath: Any, decision: Send | Put | Await | Sweep) -> None:
        match decision:
            case Send(_, ports, frame):
                datapath.send_msg(entries.packet_out(datapath, ports, frame))
            case Put(_, added, deleted):
                for entry in added:
                    datapath.send_msg(entries.add(datapath, entry, self._generation))
                for entry in deleted:
                    datapath.send_msg(entries.delete(datapath, entry))
            case Await(_, number):
                self._await(datapath, number)
            case Sweep(_, generations):
                for generation in generations:
                    datapath.send_msg(entries.sweep(datapath, generation))

    def _tell(self, event: FlowEvent) -> None:
        """Flow events to the database and to other apps."""
        match event:
            case Opened(flows):
                for flow in flows:
                    self.flowdb.flow_opened(flow)
                self.send_event_to_observers(EventFlowOpened(flows))
            case Changed(flow):
                self.flowdb.flow_changed(flow)
            case Closed(flow, reason):
                now_ns = self._now_ns()
                self.flowdb.flow_closed(flow, now_ns, reason)
                self.send_event_to_observers(EventFlowClosed(flow, reason, now_ns))

    def _now_ns(self) -> int:
        return self.flowdb.clock.now_ns()
