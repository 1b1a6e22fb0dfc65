"""What to do with a packet-in, for one switch. Pure: values in, decisions out, time as an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from fabric_app.connections import Connections, FlowEvent
from fabric_app.frames import ARP_REQUEST, BROADCAST, Arp, Frame, MalformedFrame, Neighbour, arp_reply, parse
from fabric_app.hosts import Host, Hosts
from flowdb.flow import Flow
from openflow_ext.wire import FlowRecord


@dataclass(frozen=True, slots=True)
class Learned:
    """A host that is new, has moved or has another address."""

    host: Host


@dataclass(frozen=True, slots=True)
class Send:
    """Send ``frame`` out of ``port_no``."""

    port_no: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class Flood:
    """Send ``frame`` out of all ports but ``in_port``."""

    in_port: int
    frame: bytes


Decision: TypeAlias = Learned | Send | Flood | FlowEvent


class Fabric:
    """One switch: its hosts and its TCP connections. ``malformed`` counts packet-ins that say nothing."""

    def __init__(self, dpid: int, next_id: Callable[[], int], max_hosts: int, max_connections: int) -> None:
        self.hosts = Hosts(max_hosts)
        self.connections = Connections(dpid, next_id, max_connections=max_connections)
        self.malformed = 0

    def adopt(self, flows: Iterable[Flow]) -> None:
        """Take over the open flows of an earlier controller."""
        self.connections.adopt(flows)

    def on_packet(self, data: bytes, in_port: int, now_ns: int) -> list[Decision]:
        """Decide about a frame that came in by ``in_port``. Raises MalformedFrame, counted."""
        try:
            frame = parse(data)
        except MalformedFrame:
            self.malformed += 1
            raise
        decisions: list[Decision] = [Learned(host) for host in self._learn(frame, in_port)]
        match frame.content:
            case Arp() as arp if frame.dst_mac == BROADCAST:
                decisions.append(self._answer(arp, data, in_port))
            case Arp() | Neighbour() | None:
                pass
            case segment:
                decisions.extend(self.connections.on_segment(segment, in_port, now_ns))
        return decisions

    def on_records(self, records: Iterable[FlowRecord], now_ns: int) -> list[FlowEvent]:
        """What the switch tells of its flows."""
        return [change for record in records for change in self.connections.on_record(record, now_ns)]

    def _learn(self, frame: Frame, in_port: int) -> list[Host]:
        """An address is believed only from the host that has the sending MAC address."""
        ip = None
        match frame.content:
            case Arp(sender_mac=mac, sender_ip=sender) if mac == frame.src_mac and sender != "0.0.0.0":  # noqa: S104
                ip = sender
            case Neighbour(ip=sender):
                ip = sender
        host = self.hosts.learn(frame.src_mac, in_port, ip)
        return [host] if host else []

    def _answer(self, arp: Arp, data: bytes, in_port: int) -> Send | Flood:
        """Answer a request for a known host; pass on everything else that was broadcast."""
        target = self.hosts.with_ip(arp.target_ip)
        if arp.op != ARP_REQUEST or target is None or target.mac == arp.sender_mac:
            return Flood(in_port, data)
        return Send(in_port, arp_reply(target.mac, arp.target_ip, arp.sender_mac, arp.sender_ip))
