"""A network of software flow tables under the fabric's core, to test where frames are delivered.

``delivered``, ``crossed`` and ``told``: the frames that came to hosts, onto links and to the controller
after the last that was sent; ``metered``: port and meter of each frame that met one. Meters drop nothing;
``read``: the meters of switches that the core has read.
Hosts answer the fabric's ARP probes, except the ``silent`` ones.
"""

from __future__ import annotations

import ipaddress
import itertools
import struct
from collections import deque
from dataclasses import dataclass, field

from fabric_app.core import Fabric, Options
from fabric_app.core_types import Await, CallRoll, Probe, Put, ReadMeters, Send, SetMeters, Sweep
from fabric_app.flow_entries import Entry, table_of
from fabric_app.frames import ARP_REQUEST, PROBE_MAC, Arp, MalformedFrame, parse
from fabric_app.graph import Link
from fabric_app.lldp import ForgedFrame
from flowdb.flow import PortKey
from tests.support.openflow.scripted_switch import arp

SECOND = 1_000_000_000
MOST_METERS = 65_536
STORM = 20_000
"""More frames on links than this, after one event, are a storm."""


def fields_of(frame: bytes, in_port: int) -> dict[str, int | str]:
    """The fields of a frame that entries can match."""
    (eth_type,) = struct.unpack_from("!H", frame, 12)
    found: dict[str, int | str] = {
        "in_port": in_port, "eth_dst": frame[:6].hex(":"), "eth_src": frame[6:12].hex(":"),
        "eth_type": eth_type, "metadata": 0,
    }  # fmt: skip
    if eth_type == 0x0800:
        found["ip_proto"], at = frame[23], 34
        found["ipv4_src"], found["ipv4_dst"] = (str(ipaddress.ip_address(frame[i : i + 4])) for i in (26, 30))
    elif eth_type == 0x86DD:
        found["ip_proto"], at = frame[20], 54
        found["ipv6_src"], found["ipv6_dst"] = (
            str(ipaddress.ip_address(frame[i : i + 16])) for i in (22, 38)
        )
    else:
        return found
    for number, name in ((6, "tcp"), (17, "udp")):
        if found["ip_proto"] == number:
            found[f"{name}_src"], found[f"{name}_dst"] = struct.unpack_from("!HH", frame, at)
    if found["ip_proto"] == 6:
        found["tcp_flags"] = frame[at + 13]
    if found["ip_proto"] == 58:
        found["icmpv6_type"] = frame[at]
    return found


def _number(value: int | str) -> int:
    if isinstance(value, int):
        return value
    if value.count(":") == 5 and "::" not in value:
        return int(value.replace(":", ""), 16)
    return int(ipaddress.ip_address(value))


def matches(match: tuple, fields: dict) -> bool:
    for name, wanted in match:
        if name not in fields:
            return False
        value, mask = wanted if isinstance(wanted, tuple) else (wanted, None)
        found = _number(fields[name])
        if (found if mask is None else found & _number(mask)) != _number(value):
            return False
    return True


@dataclass
class FakeNetwork:
    """Switches, links and hosts (name -> port). ``cut`` and ``mend`` change it; ``inject`` sends a frame.

    ``meters``: whether the switches have meters.
    """

    links: set[Link]
    switches: list[int]
    hosts: dict[int, PortKey] = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    meters: bool = False

    def __post_init__(self) -> None:
        self.core = Fabric(itertools.count(1).__next__, b"k" * 32, self.options)
        self.now_ns = SECOND
        self.tables: dict[int, dict] = {dpid: {} for dpid in self.switches}
        self.connected: set[int] = set()
        self.dead: set[Link] = set()
        self.deaf: set[int] = set()
        self.silent: set[int] = set()
        self.events: list = []
        self.delivered: list[tuple[PortKey, bytes]] = []
        self.crossed: list[PortKey] = []
        self.told: list[tuple[PortKey, bytes]] = []
        self.metered: list[tuple[PortKey, int]] = []
        self.read: list[tuple[int, tuple[int, ...]]] = []
        self._waiting: deque = deque()

    def connect(self, *dpids: int) -> None:
        for dpid in dpids or self.switches:
            self.connected.add(dpid)
            kept = bool(self.tables[dpid])
            self.do(self.core.switch_up(dpid, self.now_ns))
            self.core.network.end_last_session(dpid, kept)
            if self.meters:
                self.core.network.meters.offered(dpid, MOST_METERS)
                self.core.network.meters.found(dpid, [], last=True)
            for port in sorted(self.ports(dpid), key=lambda port: port.port_no):
                self.do(self.core.port_up(port, self.now_ns))
            for port in {end for one in self.dead for end in one.ends if end.dpid == dpid}:
                self.do(self.core.port_down(port, self.now_ns))

    def disconnect(self, dpid: int) -> None:
        self.connected.discard(dpid)
        self.do(self.core.switch_down(dpid, self.now_ns))

    def ports(self, dpid: int) -> set[PortKey]:
        ends = {end for link in self.links - self.dead for end in link.ends}
        return {port for port in ends | set(self.hosts.values()) if port.dpid == dpid}

    def run(self, seconds: float) -> None:
        """Let time pass, in ticks. The core is called each second, and when it says that something is due."""
        for _ in range(round(seconds * 10)):
            self.now_ns += SECOND // 10
            if self.core.due_ns() <= self.now_ns or not self.now_ns % SECOND:
                self.do(self.core.on_tick(self.now_ns))

    def cut(self, link: Link, silently: bool = False) -> None:
        self.dead.add(link)
        for end in link.ends:
            if not silently and end.dpid in self.connected:
                self.do(self.core.port_down(end, self.now_ns))

    def mend(self, link: Link) -> None:
        self.dead.discard(link)
        for end in link.ends:
            if end.dpid in self.connected:
                self.do(self.core.port_up(end, self.now_ns))

    def inject(self, port: PortKey, frame: bytes) -> list[PortKey]:
        """A host sends a frame; return the ports at which hosts received it."""
        for seen in (self.delivered, self.crossed, self.told, self.metered):
            seen.clear()
        self._arrive(port, frame)
        self._settle()
        return [at for at, _ in self.delivered]

    def do(self, decisions: list) -> None:
        self._carry_out(decisions)
        self._settle()

    def _settle(self) -> None:
        count = 0
        while self._waiting:
            count += 1
            assert count < STORM, "a storm"
            self._arrive(*self._waiting.popleft())

    def _carry_out(self, decisions: list) -> None:
        for decision in decisions:
            dpid = getattr(decision, "dpid", None)
            match decision:
                case Send(_, ports, frame) if dpid in self.connected:
                    for port_no in ports:
                        self._leave(PortKey(dpid, port_no), frame)
                case Probe(_, frames) if dpid in self.connected:
                    for port_no, frame in frames:
                        self._leave(PortKey(dpid, port_no), frame)
                case Put(_, added, deleted) if dpid in self.connected:
                    self.tables[dpid] |= table_of(added)
                    for entry in deleted:
                        self.tables[dpid].pop(entry.place, None)
                case Await(_, number) if dpid in self.connected and dpid not in self.deaf:
                    self._carry_out(self.core.reactive_paths.on_done(dpid, number))
                case SetMeters(_, changes) if dpid in self.connected:
                    self.core.network.meters.confirmed(dpid, [meter.id for meter in changes.added])
                case ReadMeters(_, ids):
                    self.read.append((dpid, ids))
                case Send() | Probe() | Put() | SetMeters() | Await() | CallRoll() | Sweep():
                    pass
                case _:
                    self.events.append(decision)

    def _leave(self, port: PortKey, frame: bytes) -> None:
        for link in self.links - self.dead:
            if port in link.ends:
                self.crossed.append(port)
                self._waiting.append((link.b if port == link.a else link.a, frame))
        if port in self.hosts.values():
            self.delivered.append((port, frame))
            if frame[6:12].hex(":") == PROBE_MAC:
                self._answer_probe(port, frame)

    def _answer_probe(self, port: PortKey, frame: bytes) -> None:
        """The host that the fabric asks answers, if it is there."""
        asked = parse(frame).content
        for number in {number for number, at in self.hosts.items() if at == port} - self.silent:
            if isinstance(asked, Arp) and (asked.op, asked.target_ip) == (ARP_REQUEST, f"10.0.0.{number}"):
                self._waiting.append((port, arp(2, number, 0, PROBE_MAC)))

    def _arrive(self, at: PortKey, frame: bytes) -> None:
        fields, table = fields_of(frame, at.port_no), 0
        while True:
            entry = self._lookup(at.dpid, table, fields)
            if entry is None:
                return
            for port_no in entry.out:
                if port_no != at.port_no:
                    self._leave(PortKey(at.dpid, port_no), frame)
            also = None if entry.also is None else self._lookup(at.dpid, entry.also, fields)
            for shown in (entry, also):
                if shown and shown.to_controller and at.dpid in self.connected:
                    self._show(at, frame, shown)
            if entry.metadata:
                value, mask = entry.metadata
                fields["metadata"] = (int(fields["metadata"]) & ~mask) | value
            if entry.goto is None:
                return
            table = entry.goto

    def _lookup(self, dpid: int, table: int, fields: dict) -> Entry | None:
        found = [e for e in self.tables[dpid].values() if e.table == table and matches(e.match, fields)]
        return max(found, key=lambda entry: entry.priority, default=None)

    def _show(self, at: PortKey, frame: bytes, entry: Entry) -> None:
        if entry.meter:
            self.metered.append((at, entry.meter))
        self._tell(
            at, frame[: entry.to_controller], entry.table == self.core.network.entries.tables.forwarding
        )

    def _tell(self, at: PortKey, frame: bytes, waits: bool) -> None:
        self.told.append((at, frame))
        try:
            self._carry_out(self.core.on_packet(frame, at, self.now_ns, waits))
        except (MalformedFrame, ForgedFrame) as error:
            self.events.append(error)


def link(a: int, a_port: int, b: int, b_port: int) -> Link:
    return Link.of(PortKey(a, a_port), PortKey(b, b_port))


def diamond(options: Options | None = None, meters: bool = False) -> FakeNetwork:
    """Hosts 1 and 2 at switch 1, 3 and 4 at switch 4; between them switches 2 and 3."""
    links = {link(1, 11, 2, 1), link(1, 12, 3, 1), link(2, 2, 4, 11), link(3, 2, 4, 12)}
    hosts = {1: PortKey(1, 1), 2: PortKey(1, 2), 3: PortKey(4, 1), 4: PortKey(4, 2)}
    net = FakeNetwork(links, [1, 2, 3, 4], hosts, options or Options(), meters)
    net.connect()
    net.run(1)
    return net


def meet(net: FakeNetwork, *numbers: int) -> None:
    """Hosts send ARP requests, so that the controller learns them."""
    for number in numbers:
        net.inject(net.hosts[number], arp(1, number, 200))
