"""The fabric's shell: OpenFlow events in; messages, database rows and events for other apps out."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar, TypeAlias

from app_base.app import CONNECTED, ControllerApp, Refusal
from app_base.messages import ask_entries, barrier, delete_entries
from app_base.pipeline import COOKIE_MASK, FABRIC_COOKIE
from app_base.stage import Declaration, Metric
from fabric_app import messages
from fabric_app.config import FabricSettings
from fabric_app.connections import Changed, Closed, FlowEvent, Opened
from fabric_app.core import Fabric
from fabric_app.core_types import (
    Await,
    CallRoll,
    Decision,
    Learned,
    LinkDown,
    LinkUp,
    Lost,
    Probe,
    Put,
    ReadMeters,
    Send,
    SetMeters,
    Sweep,
)
from fabric_app.events import EventFlowClosed, EventFlowOpened
from fabric_app.fleet_switch import FleetSwitch
from fabric_app.flow_entries import Entry
from fabric_app.flow_reports import Doubt
from fabric_app.frames import MalformedFrame
from fabric_app.lldp import KEY_BYTES, ForgedFrame
from fabric_app.meters import Meter
from fabric_app.recorder import Recorder
from fabric_app.refusals import Complaint, Refused
from flowdb.commands import SWITCH_KINDS, Command
from flowdb.context import FlowDbContext
from flowdb.flow import NS_PER_S, PortKey
from openflow_ext.engine import MAIN_DISPATCHER, hub, ofp_event, set_ev_cls
from weir_base.log_limit import LogLimit

_TICK_S, _LONGEST_TICK_S = 0.1, 1.0
_NS_PER_MS = 1_000_000
_LOG_EVERY_S = 10.0
"""The time between two lines about connections that were not kept."""
_RECORDS_AT_ONCE = 16
"""A flow report may hold hundreds of records: other events are handled after every few of them."""


_Limiting: TypeAlias = dict[tuple[int, int], Meter | Entry]
"""Messages that limit a port, by datapath id and xid, until the switch has processed them."""


class FabricApp(ControllerApp[FabricSettings]):
    """Finds links and hosts, answers ARP and neighbour discovery, sets up paths, and reports TCP flows."""

    DECLARATION = Declaration(
        name="fabric",
        settings=FabricSettings,
        metrics=(
            Metric("refused", "frames and claims of ports that were refused", ("dpid", "port_no", "reason")),
            Metric("connections_refused", "connections and SYNs that were too many to be kept"),
            Metric("hosts", "hosts that are known", kind="gauge"),
        ),
    )
    _EVENTS: ClassVar[list[type]] = [EventFlowOpened, EventFlowClosed]

    def __init__(self, *args: Any, flowdb: FlowDbContext, **kwargs: Any) -> None:
        super().__init__(*args, flowdb=flowdb, **kwargs)
        self.recorder = Recorder(flowdb)
        self.fleet_switch = FleetSwitch()
        self.core = Fabric(flowdb.next_id, os.urandom(KEY_BYTES), self.settings.options, self.pipeline)
        self.core.adopt(flowdb.index.flows())
        self.metrics.read_from("hosts", lambda: len(self.core.network.hosts))
        self._packet_outs = messages.PacketOuts()
        self._generation = int.from_bytes(os.urandom(4), "big")
        self._barriers: dict[tuple[int, int], Callable[[], None]] = {}
        self._limiting: _Limiting = {}
        self._entries_xids: dict[int, int] = {}
        self._report_xids: dict[int, int] = {}
        self._meter_xids: dict[int, int] = {}
        self._meter_reads: dict[tuple[int, int], int] = {}
        self._listed: dict[int, set[int]] = {}
        self._refused_connections = 0
        self._refusal_lines = LogLimit(_LOG_EVERY_S)

    def switch_connected(self, datapath: Any) -> None:
        """Purge the entries of stages that this controller does not run, and set up the fabric's own."""
        for requests in (self._barriers, self._limiting, self._meter_reads):
            for request in [request for request in requests if request[0] == datapath.id]:
                del requests[request]
        self._listed.pop(datapath.id, None)
        for stage in self.stages:
            if stage.table not in self.running_tables:
                datapath.send_msg(delete_entries(datapath, stage))
        self._ask_entries(datapath)
        self._carry_out(self.core.switch_up(datapath.id, self._now_ns()))
        self._ask_reports(datapath)
        self._ask_meters(datapath, messages.ask_meter_features(datapath))
        self.recorder.switch(datapath.id, connected=True)
        self.logger.info("switch %016x connected", datapath.id)

    def switch_disconnected(self, dpid: int) -> None:
        self._carry_out(self.core.switch_down(dpid, self._now_ns()))
        self.recorder.switch(dpid, connected=False)
        self.logger.info("switch %016x disconnected", dpid)

    @set_ev_cls([ofp_event.EventOFPFlowStatsReply, ofp_event.EventOFPFlowDescStatsReply], CONNECTED)
    def on_entries(self, ev: Any) -> None:
        found = messages.inherited(ev.msg.body, self._generation)
        dpid = ev.msg.datapath.id
        self.core.network.inherit(dpid, found.hosts, found.link_ports, found.generations)
        if self._entries_xids.get(dpid) == ev.msg.xid and (found.own or messages.is_last(ev.msg)):
            self.core.network.end_last_session(dpid, kept=found.own)
        self.check_interval()

    @set_ev_cls(ofp_event.EventOFPPortDescStatsReply, CONNECTED)
    def on_ports(self, ev: Any) -> None:
        """A part of the list of all ports, which a switch states when it connects."""
        datapath = ev.msg.datapath
        self._listed.setdefault(datapath.id, set())
        for port in ev.msg.body:
            self._on_port(datapath, port)
        if messages.is_last(ev.msg):
            self.recorder.all_ports(datapath.id, self._listed.pop(datapath.id))

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def on_port_status(self, ev: Any) -> None:
        datapath, port = ev.msg.datapath, ev.msg.desc
        if ev.msg.reason == datapath.ofproto.OFPPR_DELETE:
            gone = PortKey(datapath.id, port.port_no)
            self._carry_out(self.core.port_gone(gone, self._now_ns()))
            self.recorder.port_gone(datapath.id, port)
        else:
            self._on_port(datapath, port)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def on_packet_in(self, ev: Any) -> None:
        msg, now_ns = ev.msg, self._now_ns()
        if msg.cookie & COOKIE_MASK != FABRIC_COOKIE:
            return
        in_port = msg.match.get("in_port")
        if not isinstance(in_port, int):
            self.core.malformed += 1
            text = f"switch {msg.datapath.id:016x} sent a frame that names no port: it is dropped"
            self._warn_rarely(self.core.malformed, text)
            return
        at = PortKey(msg.datapath.id, in_port)
        waits = msg.table_id == self.core.network.entries.tables.forwarding
        try:
            self._carry_out(self.core.on_packet(bytes(msg.data), at, now_ns, waits), at.dpid)
        except MalformedFrame as error:
            self._warn_rarely(self.core.malformed, f"port {at}: frame dropped: {error}")
        except ForgedFrame as error:
            self._warn_rarely(self.core.network.discovery.forged, f"port {at}: frame dropped: {error}")

    @set_ev_cls(ofp_event.EventOFPFlowReport, CONNECTED)
    def on_flow_report(self, ev: Any) -> None:
        msg, dpid, now_ns = ev.msg, ev.msg.datapath.id, self._now_ns()
        if msg.now_s:
            self.core.clocks.note(dpid, (msg.now_s * 1000 + msg.now_ms) * _NS_PER_MS, now_ns)
        for start in range(0, len(msg.records), _RECORDS_AT_ONCE):
            some = msg.records[start : start + _RECORDS_AT_ONCE]
            self._carry_out(self.core.on_records(dpid, some, now_ns), dpid)
            hub.sleep(0)
        if msg.lost:
            self._carry_out(self.core.reports_lost(dpid, now_ns))
            self._warn_rarely(self.core.losses, f"switch {dpid:016x} lost {msg.lost} flow reports")
        if msg.roll_called:
            self._carry_out(self.core.roll_called(dpid))

    @set_ev_cls(ofp_event.EventOFPBarrierReply, CONNECTED)
    def on_barrier(self, ev: Any) -> None:
        processed = self._barriers.pop((ev.msg.datapath.id, ev.msg.xid), None)
        if processed is not None:
            processed()

    @set_ev_cls(ofp_event.EventOFPMeterFeaturesStatsReply, CONNECTED)
    def on_meter_features(self, ev: Any) -> None:
        datapath = ev.msg.datapath
        if self._meter_xids.get(datapath.id) != ev.msg.xid:
            return
        if most := messages.most_meters(datapath, ev.msg.body):
            self.core.network.meters.offered(datapath.id, most)
            self._ask_meters(datapath, messages.ask_meters(datapath))
        else:
            self._without_meters(datapath.id)

    @set_ev_cls([ofp_event.EventOFPMeterConfigStatsReply, ofp_event.EventOFPMeterDescStatsReply], CONNECTED)
    def on_meters(self, ev: Any) -> None:
        datapath = ev.msg.datapath
        if self._meter_xids.get(datapath.id) == ev.msg.xid:
            found = [messages.found_meter(datapath, meter) for meter in ev.msg.body]
            self.core.network.meters.found(datapath.id, found, messages.is_last(ev.msg))
            self.check_interval()

    @set_ev_cls(ofp_event.EventOFPMeterStatsReply, CONNECTED)
    def on_meter_read(self, ev: Any) -> None:
        dpid = ev.msg.datapath.id
        meter_id = self._meter_reads.pop((dpid, ev.msg.xid), None)
        if meter_id is not None:
            dropped = messages.dropped_by(meter_id, ev.msg.body)
            self._carry_out(self.core.meter_read(dpid, meter_id, dropped))

    def message_refused(self, refusal: Refusal) -> None:
        dpid = refusal.dpid
        if self._report_xids.get(dpid) == refusal.xid:
            del self._report_xids[dpid]
            self._carry_out(self.core.no_reports(dpid))
            self.logger.info("switch %016x does not report flows: TCP segments are copied instead", dpid)
            return
        if self._meter_xids.get(dpid) == refusal.xid:
            self._without_meters(dpid)
            return
        if (meter_id := self._meter_reads.pop((dpid, refusal.xid), None)) is not None:
            if messages.is_unknown_meter(refusal):
                self._carry_out(self.core.meter_read(dpid, meter_id, None))
            return
        if (limiting := self._limiting.pop((dpid, refusal.xid), None)) is not None:
            self._limit_refused(limiting, refusal)
            return
        if self.fleet_switch.answered(dpid, refusal.xid, carried_out=False):
            return
        self.warn_of_switch(dpid, f"switch {dpid:016x} refuses message {refusal.xid:#x}: {refusal}")

    def tick_interval_s(self) -> float:
        rest_s = (self.core.due_ns() - self._now_ns()) / NS_PER_S
        return min(max(rest_s, _TICK_S), _LONGEST_TICK_S)

    def tick(self) -> None:
        self._carry_out(self.core.on_tick(self._now_ns()))
        self._count_refused_connections()
        for command in self.flowdb.take_commands(SWITCH_KINDS):
            self._switch_all(command)
        for outcome in self.fleet_switch.outcomes(self._now_ns()):
            self.logger.warning("command %d: %s", outcome.command.id, outcome.text)
            self.flowdb.command_done(outcome.command, outcome.succeeded, outcome.text)

    @set_ev_cls(ofp_event.EventOFPPortConfigReply, MAIN_DISPATCHER)
    def on_port_config(self, ev: Any) -> None:
        self.fleet_switch.answered(ev.msg.datapath.id, ev.msg.xid, carried_out=True)

    def _switch_all(self, command: Command) -> None:
        """Turn all ports of all connected switches off or on, as a person asked."""
        requests = []
        for datapath in self.datapaths.values():
            request = messages.switch(datapath, off=command.kind == "off")
            datapath.send_msg(request)
            requests.append((datapath.id, request.xid))
        self.fleet_switch.asked(command, requests, self._now_ns())

    def _count_refused_connections(self) -> None:
        refused = self.core.connections.refused
        before, self._refused_connections = self._refused_connections, refused
        if refused == before:
            return
        self.metrics.count("connections_refused", number=refused - before)
        if self._refusal_lines.passes("connections", time.monotonic()) is not None:
            text = "%d connections and SYNs were not kept so far: see [fabric] max_connections"
            self.logger.warning(text, refused)

    def _warn_rarely(self, count: int, text: str) -> None:
        """Log the first, second, fourth, eighth ... problem of a kind as a warning, the others as debug."""
        level = logging.DEBUG if count & (count - 1) else logging.WARNING
        self.logger.log(level, "%s (number %d)", text, count)

    def _on_port(self, datapath: Any, port: Any) -> None:
        up, at = messages.is_up(datapath, port), PortKey(datapath.id, port.port_no)
        change = self.core.port_up if up else self.core.port_down
        self._carry_out(change(at, self._now_ns()))
        if (listed := self._listed.get(datapath.id)) is not None:
            listed.add(port.port_no)
        self.recorder.port(datapath.id, port, up)

    def _ask_entries(self, datapath: Any) -> None:
        """Ask for the entries of earlier sessions, before this one adds any. Other apps ask for theirs."""
        request = ask_entries(datapath, FABRIC_COOKIE)
        datapath.send_msg(request)
        self._entries_xids[datapath.id] = request.xid

    def _ask_reports(self, datapath: Any) -> None:
        """Ask for flow reports. The reply to a barrier behind the request shows that it was not refused."""
        settings = self.settings
        ask = messages.ask_reports(datapath, settings.report_ms, round(settings.report_active_s * 1000))
        datapath.send_msg(ask)
        self._report_xids[datapath.id] = ask.xid
        self._await(datapath, partial(self._reports_accepted, datapath.id))

    def _reports_accepted(self, dpid: int) -> None:
        if self._report_xids.pop(dpid, 0):
            self.core.network.reports_flows(dpid)
            self.check_interval()

    def _await(self, datapath: Any, processed: Callable[[], None]) -> None:
        """Have ``processed`` called when the switch has processed all earlier messages."""
        request = barrier(datapath)
        datapath.set_xid(request)
        self._barriers[datapath.id, request.xid] = processed
        datapath.send_msg(request)

    def _path_set_up(self, dpid: int, number: int) -> None:
        self._carry_out(self.core.reactive_paths.on_done(dpid, number))

    def _ask_meters(self, datapath: Any, request: Any) -> None:
        """Send a request about meters. Other apps may ask too, and all apps see all replies."""
        datapath.set_xid(request)
        self._meter_xids[datapath.id] = request.xid
        datapath.send_msg(request)

    def _read_meters(self, datapath: Any, ids: Iterable[int]) -> None:
        for meter_id in ids:
            request = messages.ask_meter_counts(datapath, meter_id)
            datapath.set_xid(request)
            self._meter_reads[datapath.id, request.xid] = meter_id
            datapath.send_msg(request)

    def _without_meters(self, dpid: int) -> None:
        self.core.network.meters.forget(dpid)
        self.logger.info("switch %016x has no meters: the controller alone limits its ports", dpid)
        self.check_interval()

    def _put(self, datapath: Any, entries: Iterable[Entry]) -> None:
        limiting: _Limiting = {}
        for entry in entries:
            request = messages.add(datapath, entry, self._generation)
            datapath.set_xid(request)
            if entry.meter or entry.also is not None:
                limiting[datapath.id, request.xid] = entry
            datapath.send_msg(request)
        if limiting:
            self._limiting |= limiting
            self._await(datapath, partial(self._limits_set, datapath.id, limiting))

    def _set_meters(self, datapath: Any, decision: SetMeters) -> None:
        for meter_id in decision.changes.deleted:
            datapath.send_msg(messages.delete_meter(datapath, meter_id))
        limiting: _Limiting = {}
        for meter in decision.changes.added:
            request = messages.put_meter(datapath, meter)
            datapath.set_xid(request)
            limiting[datapath.id, request.xid] = meter
            datapath.send_msg(request)
        self._limiting |= limiting
        self._await(datapath, partial(self._limits_set, datapath.id, limiting))

    def _limits_set(self, dpid: int, limiting: _Limiting) -> None:
        """A switch has processed these meters and entries. A refused one is not in ``_limiting`` any more."""
        for request in limiting:
            self._limiting.pop(request, None)
        if meters := [meter.id for meter in limiting.values() if isinstance(meter, Meter)]:
            self.core.network.meters.confirmed(dpid, meters)
            self.check_interval()

    def _limit_refused(self, limiting: Meter | Entry, refusal: Refusal) -> None:
        meters = self.core.network.meters
        if isinstance(limiting, Meter):
            in_use = messages.is_meter_in_use(refusal)
            meters.refuse(limiting, refusal.dpid, in_use)
            what = f"meter {limiting.id} for port {limiting.port_no}"
        else:
            meters.unusable(refusal.dpid)
            what = f"an entry of table {limiting.table} with a meter"
        self._warn_rarely(meters.refusals, f"switch {refusal.dpid:016x} refuses {what}: {refusal}")
        self.check_interval()

    def _carry_out(self, decisions: Iterable[Decision], dpid: int | None = None) -> None:
        """``dpid``: the switch whose message led to these decisions. Its rows wait in its own places."""
        for decision in decisions:
            match decision:
                case Send() | Probe() | Put() | SetMeters() | ReadMeters() | Await() | CallRoll() | Sweep():
                    if datapath := self.datapaths.get(decision.dpid):
                        self._instruct(datapath, decision)
                case Learned(host):
                    self.recorder.host(host)
                case Lost(host):
                    self.recorder.host_lost(host)
                    self.logger.debug("host %s is no longer known at port %s", host.mac, host.port)
                case Refused(port, reason, text, number):
                    labels = f"{port.dpid:016x}", str(port.port_no), reason.value
                    self.metrics.count("refused", *labels, number=number)
                    if text:
                        self.logger.warning(text)
                case Complaint(text):
                    self.logger.warning(text)
                case LinkUp(link):
                    self.recorder.link(link, up=True)
                    self.logger.info("link %s found", link)
                case LinkDown(link):
                    self.recorder.link(link, up=False)
                    self.logger.info("link %s lost", link)
                case Doubt(text):
                    self._warn_rarely(self.core.reports.doubts, text)
                case _:
                    self._publish(decision, dpid)
        self.check_interval()

    def _instruct(
        self,
        datapath: Any,
        decision: Send | Probe | Put | SetMeters | ReadMeters | Await | CallRoll | Sweep,
    ) -> None:
        match decision:
            case Send(_, ports, frame):
                datapath.send_msg(messages.packet_out(datapath, ports, frame))
            case Probe(_, frames):
                datapath.send(self._packet_outs.encode(datapath, frames))
            case Put(_, added, deleted):
                self._put(datapath, added)
                for entry in deleted:
                    datapath.send_msg(messages.delete(datapath, entry))
            case SetMeters():
                self._set_meters(datapath, decision)
            case ReadMeters(_, ids):
                self._read_meters(datapath, ids)
            case Await(_, number):
                self._await(datapath, partial(self._path_set_up, datapath.id, number))
            case CallRoll():
                self._ask_reports(datapath)
            case Sweep(_, generations):
                for generation in generations:
                    datapath.send_msg(messages.sweep(datapath, generation))

    def _publish(self, event: FlowEvent, dpid: int | None) -> None:
        """Report flow events, which the switch ``dpid`` caused, to the database and to other apps."""
        match event:
            case Opened(flows):
                for flow in flows:
                    self.flowdb.flow_opened(flow, dpid)
                self.send_event_to_observers(EventFlowOpened(flows))
            case Changed(flow):
                self.flowdb.flow_changed(flow, dpid)
            case Closed(flow, reason):
                now_ns = self._now_ns()
                self.flowdb.flow_closed(flow, now_ns, reason, dpid)
                self.send_event_to_observers(EventFlowClosed(flow, reason, now_ns))

    def _now_ns(self) -> int:
        return self.flowdb.clock.now_ns()
