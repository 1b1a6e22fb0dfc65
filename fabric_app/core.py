"""The decisions of the fabric for the whole network. Pure: events in, decisions out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from app_base.headers import RST
from app_base.pipeline import Pipeline
from fabric_app.claims import Sighting
from fabric_app.connections import Closed, Connections, FlowEvent
from fabric_app.core_types import CallRoll, Decision, Learned, Lost, Probe, ReadMeters, Send
from fabric_app.discovery import Discovery
from fabric_app.flow_entries import FlowEntries
from fabric_app.flow_reports import Doubt, Reports
from fabric_app.frames import (
    ARP_REQUEST,
    BROADCAST,
    NEIGHBOUR_ADVERTISEMENT,
    NEIGHBOUR_SOLICITATION,
    NO_IP,
    PROBE_MAC,
    Arp,
    Frame,
    Lease,
    Lldp,
    MalformedFrame,
    Neighbour,
    Segment,
    arp_reply,
    is_unicast,
    neighbour_advertisement,
    parse,
)
from fabric_app.host_tracking import HostLimits
from fabric_app.lldp import ForeignFrame
from fabric_app.meters import Kind, MeterRates
from fabric_app.network import Network
from fabric_app.rates import Rates
from fabric_app.reactive_paths import ReactivePaths
from fabric_app.refusals import Reason
from fabric_app.roll_calls import RollCalls
from fabric_app.switch_clocks import SwitchClocks
from flowdb.flow import Flow, PortKey
from openflow_ext.wire import FlowRecord


@dataclass(frozen=True, slots=True)
class Options:
    """The fabric's settings, as ``config.FabricSettings`` explains them."""

    reactive: bool = False
    entry_idle_s: int = 60
    lldp_interval_ns: int = 500_000_000
    lldp_lost_after: int = 6
    settle_ns: int = 500_000_000
    hosts: HostLimits = field(default_factory=HostLimits)
    port_packet_ins_per_s: int = 200
    port_segments_per_s: int = 1000
    dhcp_ports: frozenset[PortKey] = frozenset()
    max_connections: int = 500_000


_REASONS = {
    Kind.ANSWERS: Reason.PACKET_INS,
    Kind.SEGMENTS: Reason.SEGMENTS,
    Kind.PACKET_INS: Reason.PACKET_INS,
}


class Fabric:
    """The network: its switches, links and hosts, and its TCP connections.

    ``lldp_key`` signs the LLDP frames. ``malformed`` counts packet-ins that cannot be parsed, ``losses``
    messages that say that flow reports were lost.
    """

    def __init__(
        self,
        next_id: Callable[[], int],
        lldp_key: bytes,
        options: Options,
        pipeline: Pipeline | None = None,
    ) -> None:
        self.malformed = self.losses = 0
        discovery = Discovery(lldp_key, options.lldp_interval_ns, options.settle_ns, options.lldp_lost_after)
        entries = FlowEntries(pipeline, options.reactive)
        self.network = Network(discovery, options.hosts, entries, _meter_rates(options))
        self.refusals = self.network.tracking.refusals
        self._rates = {
            Reason.PACKET_INS: Rates(options.port_packet_ins_per_s),
            Reason.SEGMENTS: Rates(options.port_segments_per_s),
        }
        self._dhcp_ports = options.dhcp_ports
        self.connections = Connections(next_id, self.network.path, max_connections=options.max_connections)
        self.reports = Reports(self.connections, self.network.path_seen, self.network.path_of_hosts)
        self.roll_calls = RollCalls()
        self.clocks = SwitchClocks()
        self.reactive_paths = ReactivePaths(self.network, options.entry_idle_s, options.max_connections)
        self._graph = self.network.paths.graph

    def switch_up(self, dpid: int, now_ns: int) -> list[Decision]:
        """A switch connected. The caller asks it for flow reports."""
        self.reports.call_roll(dpid, now_ns)
        self.roll_calls.begin(dpid)
        self.clocks.forget(dpid)
        return self.network.switch_up(dpid, now_ns)

    def switch_down(self, dpid: int, now_ns: int) -> list[Decision]:
        """A switch disconnected: paths are led around it."""
        self.network.switch_down(dpid)
        return [*self.no_reports(dpid), *self._refresh(now_ns)]

    def port_up(self, port: PortKey, now_ns: int) -> list[Decision]:
        """A port is up."""
        self.network.port_up(port, now_ns)
        return self._probe(now_ns)

    def port_down(self, port: PortKey, now_ns: int) -> list[Decision]:
        """A port went down: its link is gone. Its hosts stay known, because they may come back."""
        self.network.port_down(port)
        return self._refresh(now_ns)

    def port_gone(self, port: PortKey, now_ns: int) -> list[Decision]:
        """A port was removed, with the hosts behind it."""
        self.network.port_down(port)
        for rates in self._rates.values():
            rates.forget(port)
        return [*self._with_ended_paths(self.network.forget_port(port)), *self._refresh(now_ns)]

    def on_tick(self, now_ns: int) -> list[Decision]:
        """Probes links and hosts, and updates switches. Call it at ``due_ns``, and every second."""
        decisions, granted = self.network.track(now_ns)
        decisions = self._with_ended_paths(decisions)
        for seen in granted:
            if self.network.tracking.owns(seen):
                decisions += self._answer(parse(seen.frame), seen.frame, seen.at)
        return [
            *self._probe(now_ns),
            *decisions,
            *self._refresh(now_ns),
            *self._call_rolls(now_ns),
            *(ReadMeters(dpid, ids) for dpid, ids in self.network.meters.due(now_ns)),
            *self.refusals.due(now_ns),
        ]

    def due_ns(self) -> int:
        """The time at which ``on_tick`` has work if nothing happens until then."""
        return min(self.network.due_ns(), self.roll_calls.due_ns)

    def on_packet(self, data: bytes, at: PortKey, now_ns: int, waits: bool = False) -> list[Decision]:
        """A frame, or its first bytes, arrived at a port. ``waits``: no entry has forwarded it.

        Raises MalformedFrame (counted) and ForgedFrame.
        """
        try:
            frame = parse(data)
        except MalformedFrame:
            self.malformed += 1
            raise
        seen = _sighting(frame, at, data)
        limit = Reason.SEGMENTS if isinstance(frame.content, Segment) else Reason.PACKET_INS
        answers = frame.dst_mac == PROBE_MAC and self.network.tracking.expects(seen)
        if not answers and not self._allows(at, limit, now_ns):
            return [self.refusals.note(at, limit)]
        if isinstance(frame.content, Lldp):
            return self._on_lldp(at, data, now_ns)
        inside = self.network.discovery.is_edge(at, now_ns) is False
        if inside:
            return self._set_up_inside(frame, data, at) if waits else []
        decisions, served = self.network.learn(seen, now_ns)
        decisions = self._with_ended_paths(decisions)
        if isinstance(frame.content, Lease):
            decisions += self._lease(frame.content, at, now_ns)
        if served:
            decisions += self._answer(frame, data, at)
        sender = self.network.hosts.get(frame.src_mac)
        if isinstance(frame.content, Segment) and sender is not None and sender.port == at:
            if self._believes(frame.content, at):
                decisions += self._with_consequences(self.connections.on_segment(frame.content, at, now_ns))
            if frame.content.flags & RST:  # the path of a refused connection, which opened no flow
                decisions += self.reactive_paths.end(frame.content.key)
            if waits:
                decisions += self._set_up_path(frame.content, frame, data, at)
        return decisions

    def on_records(self, dpid: int, records: Sequence[FlowRecord], now_ns: int) -> list[Decision]:
        """A switch sent flow reports."""
        decisions: list[Decision] = []
        for record in self.clocks.in_our_time(dpid, records):
            decisions += self._with_consequences(self.reports.on_record(dpid, record, now_ns))
        return decisions

    def roll_called(self, dpid: int) -> list[Decision]:
        """A switch has reported all flows that it had when it was asked."""
        self.roll_calls.ended(dpid)
        return self._with_consequences(self.reports.roll_called(dpid))

    def no_reports(self, dpid: int) -> list[Decision]:
        """A switch will not report its flows: it cannot, or it disconnected."""
        self.roll_calls.stop(dpid)
        return self._with_consequences(self.reports.no_reports(dpid))

    def reports_lost(self, dpid: int, now_ns: int) -> list[Decision]:
        """A switch has lost flow reports: its roll call says nothing, and a new one follows later."""
        self.losses += 1
        self.roll_calls.lost(dpid, now_ns)
        return self._with_consequences(self.reports.roll_not_called(dpid))

    def meter_read(self, dpid: int, meter_id: int, dropped: int | None) -> list[Decision]:
        """A switch states how many packets a meter has dropped; None: it has no such meter."""
        news = self.network.meters.read(dpid, meter_id, dropped)
        if news is None:
            return []
        port, kind, number = news
        return [self.refusals.note(port, _REASONS[kind], number=number)]

    def adopt(self, flows: Iterable[Flow]) -> None:
        """Take over the open flows of an earlier controller."""
        self.connections.adopt(flows)

    def _believes(self, segment: Segment, at: PortKey) -> bool:
        """Whether a segment that was copied at a port may open and end flows.

        The controller cannot check its sequence number. A switch that reports its flows has done so. At
        another switch the source address may not belong to a host at another port.
        """
        owner = self.network.hosts.with_ip(segment.key.src)
        return not self.network.is_reporting(at.dpid) and (owner is None or owner.port == at)

    def _allows(self, at: PortKey, limit: Reason, now_ns: int) -> bool:
        """Whether a port may have one more frame handled."""
        rates = self._rates[limit]
        allowed = rates.take(at, now_ns)
        if rates.is_high(at, now_ns):
            self.network.meters.suspect(at, now_ns)
        return allowed

    def _probe(self, now_ns: int) -> list[Decision]:
        return _by_switch(self.network.discovery.due(now_ns))

    def _call_rolls(self, now_ns: int) -> list[Decision]:
        due = self.roll_calls.take_due(now_ns)
        for dpid in due:
            self.reports.call_roll(dpid, now_ns)
        return [CallRoll(dpid) for dpid in due]

    def _on_lldp(self, at: PortKey, data: bytes, now_ns: int) -> list[Decision]:
        try:
            return _by_switch(self.network.discovery.heard(at, data, now_ns))
        except ForeignFrame:
            return []
        except MalformedFrame:
            self.malformed += 1
            raise

    def _refresh(self, now_ns: int) -> list[Decision]:
        """Update the switches, and the flows' paths if the topology changed."""
        decisions = self._with_ended_paths(self.network.refresh(now_ns))
        if self.network.paths.graph is not self._graph:
            self._graph = self.network.paths.graph
            decisions += self.reactive_paths.reroute()
            for flow in list(self.connections):
                path = self.network.path_now(flow.key, flow.path)
                if path != flow.path:
                    self.reports.led_elsewhere(flow, path, now_ns)
                    decisions += self.connections.reroute(flow, path)
        return decisions

    def _lease(self, lease: Lease, at: PortKey, now_ns: int) -> list[Decision]:
        """A DHCP server's ACK arrived. It counts only if it came from a trusted port."""
        if at in self._dhcp_ports:
            return self.network.lease(lease.mac, lease.ip, now_ns)
        return [self.refusals.note(at, Reason.DHCP, f"{lease.ip} for {lease.mac}")]

    def _answer(self, frame: Frame, data: bytes, at: PortKey) -> list[Decision]:
        """Answer or pass on a question that a host asked all others."""
        match frame.content:
            case Arp() as arp if frame.dst_mac == BROADCAST:
                return self._answer_arp(arp, data, at)
            case Neighbour() as asked if _asks_all(asked, frame):
                return self._answer_solicitation(asked, frame, data, at)
        return []

    def _set_up_inside(self, frame: Frame, data: bytes, at: PortKey) -> list[Decision]:
        if isinstance(frame.content, Segment):
            return self.reactive_paths.on_syn_inside(frame.content.key, at, data)
        return []

    def _answer_arp(self, arp: Arp, data: bytes, at: PortKey) -> list[Decision]:
        """Answer a request for a known host; forward every other broadcast.

        A request without a sender's address is a probe (RFC 5227). The owner of the address answers it.
        """
        target = self.network.hosts.with_ip(arp.target_ip)
        is_question = arp.op == ARP_REQUEST and arp.sender_ip != NO_IP
        if not is_question or target is None or target.mac == arp.sender_mac:
            return self._send_to_edges(data, at)
        reply = arp_reply(target.mac, arp.target_ip, arp.sender_mac, arp.sender_ip)
        return [Send(at.dpid, (at.port_no,), reply)]

    def _answer_solicitation(
        self, asked: Neighbour, frame: Frame, data: bytes, at: PortKey
    ) -> list[Decision]:
        """The same for IPv6. The owner of an address answers duplicate address detection (RFC 4862)."""
        target = self.network.hosts.with_ip(asked.target)
        if target is None or target.mac == frame.src_mac or asked.ip is None:
            return self._send_to_edges(data, at)
        reply = neighbour_advertisement(target.mac, asked.target, frame.src_mac, asked.ip)
        return [Send(at.dpid, (at.port_no,), reply)]

    def _send_to_edges(self, data: bytes, at: PortKey) -> list[Decision]:
        """Send a frame out of all edge ports except its own: hosts get it once, and no link carries it."""
        others = (
            (dpid, tuple(port_no for port_no in ports if PortKey(dpid, port_no) != at))
            for dpid, ports in self.network.edges.items()
        )
        return [Send(dpid, ports, data) for dpid, ports in others if ports]

    def _set_up_path(self, syn: Segment, frame: Frame, data: bytes, at: PortKey) -> list[Decision]:
        target = self.network.hosts.get(frame.dst_mac)
        return (
            self.reactive_paths.on_syn(syn.key, at, target.port, data)
            if target
            else self._send_to_edges(data, at)
        )

    def _with_ended_paths(self, decisions: list[Decision]) -> list[Decision]:
        """Decisions about hosts, and the end of the reactive paths from and to the ports that hosts left."""
        left = {decision.host.port for decision in decisions if isinstance(decision, Lost)}
        left |= {d.left for d in decisions if isinstance(d, Learned) and d.left is not None}
        return [*decisions, *self.reactive_paths.end_at(left)]

    def _with_consequences(self, events: Sequence[FlowEvent | Doubt]) -> list[Decision]:
        """Flow events, and their consequences: a closed flow is forgotten and its entries are deleted."""
        decisions: list[Decision] = [*events]
        for event in events:
            if isinstance(event, Closed):
                self.reports.forget(event.flow)
                if self.connections.get(event.flow.key.reverse) is None:
                    decisions += self.reactive_paths.end(event.flow.key)
        return decisions


def _meter_rates(options: Options) -> MeterRates:
    """The rates of meters. All hosts of a port may answer in the same second."""
    per_s = {
        Kind.ANSWERS: max(options.port_packet_ins_per_s, options.hosts.port_hosts),
        Kind.SEGMENTS: options.port_segments_per_s,
        Kind.PACKET_INS: options.port_packet_ins_per_s,
    }
    return MeterRates(per_s, options.hosts.uplinks)


def _sighting(frame: Frame, at: PortKey, data: bytes) -> Sighting:
    """What a frame says about its sender. An ARP frame of another MAC address claims no IP address."""
    ip = used_ip = None
    match frame.content:
        case Arp(sender_mac=mac, sender_ip=sender) if mac == frame.src_mac and sender != NO_IP:
            ip = sender
        case Neighbour(kind=kind, ip=sender, target=target):
            ip = target if kind == NEIGHBOUR_ADVERTISEMENT else sender
        case Segment(key=key):
            used_ip = key.src
    return Sighting(frame.src_mac, at, ip, used_ip, data)


def _by_switch(probes: Iterable[tuple[PortKey, bytes]]) -> list[Decision]:
    """One decision for all probes of a switch."""
    frames: dict[int, list[tuple[int, bytes]]] = {}
    for port, frame in probes:
        frames.setdefault(port.dpid, []).append((port.port_no, frame))
    return [Probe(dpid, tuple(own)) for dpid, own in frames.items()]


def _asks_all(asked: Neighbour, frame: Frame) -> bool:
    """Whether a solicitation asks all hosts. One that asks a single host is forwarded to that host."""
    return asked.kind == NEIGHBOUR_SOLICITATION and not is_unicast(frame.dst_mac)
