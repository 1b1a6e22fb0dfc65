"""The fabric's shell: OpenFlow in, the core's decisions out."""

from __future__ import annotations

from typing import Any

from fabric_app import entries
from fabric_app.config import FabricSettings
from fabric_app.connections import Changed, Closed, FlowEvent, Opened
from fabric_app.core import Decision, Fabric, Flood, Learned, Send
from fabric_app.events import EventFlowClosed, EventFlowOpened
from fabric_app.frames import MalformedFrame
from fabric_app.hosts import Host
from fabric_app.pipeline import (
    COOKIE_FABRIC,
    COOKIE_MASK,
    COOKIE_SCCP,
    COOKIE_SDTCP,
    TABLE_SCCP,
    TABLE_SDTCP,
)
from flowdb.context import FlowDbContext
from flowdb.models import HostRow, PortRow, SwitchRow
from openflow_ext import registry
from openflow_ext.engine import (
    CONFIG_DISPATCHER,
    DEAD_DISPATCHER,
    HANDSHAKE_DISPATCHER,
    MAIN_DISPATCHER,
    App,
    app_manager,
    ofp_event,
    ofproto_v1_3,
    set_ev_cls,
)
from openflow_ext.settings import load_or_exit

registry.install()

_OTHER_APPS = {"SdtcpApp": (TABLE_SDTCP, COOKIE_SDTCP), "SccpApp": (TABLE_SCCP, COOKIE_SCCP)}
_UP = [CONFIG_DISPATCHER, MAIN_DISPATCHER]


class FabricApp(App):
    """Forwards, learns hosts, answers ARP, and tells of TCP flows that open and close."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]  # noqa: RUF012 (the framework's form)
    _CONTEXTS = {"flowdb": FlowDbContext}  # noqa: RUF012
    _EVENTS = [EventFlowOpened, EventFlowClosed]  # noqa: RUF012

    def __init__(self, *args: Any, flowdb: FlowDbContext, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = load_or_exit("fabric", FabricSettings)
        self.flowdb = flowdb
        flowdb.note_settings("fabric", self.settings.model_dump(mode="json"))
        self.fabrics: dict[int, Fabric] = {}
        self._asked_flows: dict[int, int] = {}

    def fabric(self, dpid: int) -> Fabric:
        """The switch's state; a new one starts with the flows that an earlier controller left open."""
        if dpid not in self.fabrics:
            limits = self.settings
            fabric = Fabric(dpid, self.flowdb.next_id, limits.max_hosts, limits.max_connections)
            fabric.adopt(flow for flow in self.flowdb.index.flows() if flow.hop_at(dpid))
            self.fabrics[dpid] = fabric
        return self.fabrics[dpid]

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def on_switch(self, ev: Any) -> None:
        datapath = ev.msg.datapath
        self.fabric(datapath.id)
        for name, (table_id, cookie) in _OTHER_APPS.items():
            if app_manager.lookup_service_brick(name) is None:  # left by a process that ran it
                datapath.send_msg(entries.delete_all(datapath, table_id, cookie))
        for message in [*entries.pipeline(datapath), entries.ask_hosts(datapath)]:
            datapath.send_msg(message)
        self._ask_flows(datapath)
        self._note_switch(datapath.id, connected=True)
        self.logger.info("switch %016x is here", datapath.id)

    @set_ev_cls(ofp_event.EventOFPStateChange, DEAD_DISPATCHER)
    def on_switch_gone(self, ev: Any) -> None:
        if ev.datapath.id in self.fabrics:
            self._note_switch(ev.datapath.id, connected=False)
            self.logger.info("switch %016x is gone", ev.datapath.id)

    @set_ev_cls(ofp_event.EventOFPFlowStatsReply, _UP)
    def on_flow_stats(self, ev: Any) -> None:
        fabric = self.fabric(ev.msg.datapath.id)
        for mac, port_no in entries.hosts_of(ev.msg.body):
            if host := fabric.hosts.learn(mac, port_no):
                self._note_host(ev.msg.datapath.id, host)

    @set_ev_cls(ofp_event.EventOFPPortDescStatsReply, _UP)
    def on_ports(self, ev: Any) -> None:
        for port in ev.msg.body:
            self._note_port(ev.msg.datapath.id, port)

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def on_port_status(self, ev: Any) -> None:
        datapath, port = ev.msg.datapath, ev.msg.desc
        if ev.msg.reason == datapath.ofproto.OFPPR_DELETE:
            self.fabric(datapath.id).hosts.forget_port(port.port_no)
            datapath.send_msg(entries.forget_port(datapath, port.port_no))
        else:
            self._note_port(datapath.id, port)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def on_packet_in(self, ev: Any) -> None:
        msg, now_ns = ev.msg, self.flowdb.clock.now_ns()
        if msg.cookie & COOKIE_MASK != COOKIE_FABRIC:
            return
        fabric = self.fabric(msg.datapath.id)
        try:
            decisions = fabric.on_packet(bytes(msg.data), msg.match["in_port"], now_ns)
        except MalformedFrame as error:
            level = "warning" if fabric.malformed == 1 else "debug"
            getattr(self.logger, level)("switch %016x: frame dropped: %s", msg.datapath.id, error)
            return
        for decision in decisions:
            self._carry_out(msg.datapath, msg.match["in_port"], decision, now_ns)

    @set_ev_cls(ofp_event.EventOFPFlowReport, _UP)
    def on_flow_report(self, ev: Any) -> None:
        msg, now_ns = ev.msg, self.flowdb.clock.now_ns()
        if msg.lost:
            self.logger.warning("switch %016x lost %d flow reports", msg.datapath.id, msg.lost)
        for event in self.fabric(msg.datapath.id).on_records(msg.records, now_ns):
            self._tell(event, now_ns)

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [HANDSHAKE_DISPATCHER, *_UP])
    def on_error(self, ev: Any) -> None:
        msg = ev.msg
        dpid = msg.datapath.id or 0
        if self._asked_flows.get(dpid) == msg.xid:
            self.logger.info("switch %016x does not report flows; only those that open now are known", dpid)
            return
        code = getattr(msg, "code", None) if msg.type != 0xFFFF else getattr(msg, "exp_type", None)
        self.logger.warning(
            "switch %016x refuses message %#x: type %s code %s", dpid, msg.xid, msg.type, code
        )

    def _carry_out(self, datapath: Any, in_port: int, decision: Decision, now_ns: int) -> None:
        match decision:
            case Learned(host):
                datapath.send_msg(entries.to_host(datapath, host))
                self._note_host(datapath.id, host)
            case Send(port_no, frame):
                out = entries.packet_out(datapath, datapath.ofproto.OFPP_CONTROLLER, port_no, frame)
                datapath.send_msg(out)
            case Flood(_, frame):
                flood = datapath.ofproto.OFPP_FLOOD
                datapath.send_msg(entries.packet_out(datapath, in_port, flood, frame))
            case _:
                self._tell(decision, now_ns)

    def _tell(self, event: FlowEvent, now_ns: int) -> None:
        """A flow event to the database and to other apps."""
        match event:
            case Opened(flows):
                for flow in flows:
                    self.flowdb.flow_opened(flow)
                self.send_event_to_observers(EventFlowOpened(flows))
            case Changed(flow):
                self.flowdb.flow_changed(flow)
            case Closed(flow, reason):
                self.flowdb.flow_closed(flow, now_ns, reason)
                self.send_event_to_observers(EventFlowClosed(flow, reason, now_ns))

    def _ask_flows(self, datapath: Any) -> None:
        ask = entries.ask_flows(datapath)
        datapath.send_msg(ask)
        self._asked_flows[datapath.id] = ask.xid

    def _note_switch(self, dpid: int, connected: bool) -> None:
        self.flowdb.merge(SwitchRow, dpid=dpid, connected=connected, last_seen_ns=self.flowdb.clock.now_ns())

    def _note_port(self, dpid: int, port: Any) -> None:
        name = port.name.decode(errors="replace").rstrip("\0")
        values = {
            "name": name,
            "hw_addr": port.hw_addr,
            "up": not port.state & ofproto_v1_3.OFPPS_LINK_DOWN,
            "last_seen_ns": self.flowdb.clock.now_ns(),
        }
        self.flowdb.merge(PortRow, dpid=dpid, port_no=port.port_no, **values)

    def _note_host(self, dpid: int, host: Host) -> None:
        values = {"ipv4": host.ipv4, "ipv6": host.ipv6, "last_seen_ns": self.flowdb.clock.now_ns()}
        known = {name: value for name, value in values.items() if value is not None}
        self.flowdb.merge(HostRow, mac=host.mac, dpid=dpid, port_no=host.port_no, **known)
