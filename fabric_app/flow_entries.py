"""The flow entries that a switch should have, as values. Pure.

The shell sends a switch only the difference from what it has. Every entry is permanent, except those of
single flows in reactive mode: known destinations stay reachable while no controller runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from app_base.headers import (
    ACK,
    ETH_ARP,
    ETH_IPV4,
    ETH_IPV6,
    ETH_LLDP,
    ETH_RARP,
    IP_ICMPV6,
    IP_TCP,
    IP_UDP,
    OPENING_OR_CLOSING,
    SYN,
)
from app_base.pipeline import Pipeline
from fabric_app.frames import NEIGHBOUR_ADVERTISEMENT, PROBE_MAC
from fabric_app.meters import Kind, PortMeters
from fabric_app.paths import BUCKET_BITS, PORT_SHIFT
from fabric_app.tables import FabricTables
from flowdb.flow import FiveTuple

COPY_BYTES = 192
"""How much of a copied segment the controller gets: the headers of a SYN have at most 154 bytes."""
WHOLE_FRAME = 0xFFFF

BROADCAST = "ff:ff:ff:ff:ff:ff"
MULTICAST = ("01:00:00:00:00:00", "01:00:00:00:00:00")
_SOLICITED_NODE = ("33:33:ff:00:00:00", "ff:ff:ff:00:00:00")
_NEIGHBOUR_TYPES = (135, 136)
_DHCP_PORTS = (67, 68)
_SWITCH_MASK = 0xFFFF_FFFF << BUCKET_BITS

Match = tuple[tuple[str, Any], ...]
_TCP: tuple[Match, ...] = tuple(
    (("eth_type", eth_type), ("ip_proto", IP_TCP)) for eth_type in (ETH_IPV4, ETH_IPV6)
)
Place = tuple[int, int, Match]
"""Table, priority and match. A switch holds one entry in each place."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A flow entry: its match, and its actions in the order of the fields.

    ``to_controller``: bytes of the frame that the controller gets, 0 for none; ``out``: output ports;
    ``metadata``: value and mask to write; ``goto``: the next table. ``also``: a table that a copy of the
    frame visits before. An entry without any of them drops.

    ``meter``: the meter that limits what the controller gets; 0 for none. It drops nothing else.
    """

    table: int
    priority: int
    match: Match = ()
    to_controller: int = 0
    out: tuple[int, ...] = ()
    metadata: tuple[int, int] | None = None
    goto: int | None = None
    idle_s: int = 0
    also: int | None = None
    meter: int = 0

    @property
    def place(self) -> Place:
        return self.table, self.priority, self.match


Table = dict[Place, Entry]


def table_of(entries: Iterable[Entry]) -> Table:
    """Entries by their place."""
    return {entry.place: entry for entry in entries}


def difference(old: Table, new: Table) -> tuple[list[Entry], list[Entry]]:
    """The entries to add (or replace) and the entries to delete, from ``old`` to ``new``."""
    added = [entry for place, entry in new.items() if old.get(place) != entry]
    return added, [entry for place, entry in old.items() if place not in new]


class FlowEntries:
    """The entries of the fabric in a pipeline.

    ``reactive``: a SYN without entries of its flow waits at the controller until its path is set up.
    """

    def __init__(self, pipeline: Pipeline | None = None, reactive: bool = False) -> None:
        pipeline = pipeline or Pipeline()
        self.tables = FabricTables.starting_at(pipeline.fabric_table)
        self.reactive = reactive
        self._stage_links = pipeline.links

    def permanent(self, limited: bool = False) -> Iterator[Entry]:
        """What every switch has from the start: table-miss entries, and what the controller gets to see.

        Segments that open or close TCP flows are copied. ``known_host`` ends that for one host. ``limited``:
        what the controller gets to see visits the table ``limits``.
        """
        events, forwarding = self.tables.events, self.tables.forwarding
        for table, next_table in (*self._stage_links, (events, forwarding)):
            yield Entry(table, 0, goto=next_table)
        for match in _diverted():
            shown = Entry(events, 200, match, to_controller=WHOLE_FRAME)
            yield replace(shown, to_controller=0, goto=self.tables.limits) if limited else shown
        for priority, match, size in self._copied():
            shown = Entry(events, priority, match, to_controller=size, goto=forwarding)
            yield replace(shown, to_controller=0, also=self.tables.limits) if limited else shown
        if self.reactive:
            for match in _waiting_syns():
                yield Entry(forwarding, 200, match, to_controller=WHOLE_FRAME)

    def limits(self, ports: Mapping[int, PortMeters]) -> Iterator[Entry]:
        """The table ``limits``: the meters of these ports limit what the controller gets from them."""
        table = self.tables.limits
        yield Entry(table, 0, to_controller=WHOLE_FRAME)
        for tcp in _TCP:
            yield Entry(table, 10, tcp, to_controller=COPY_BYTES)
        for port_no, meters in ports.items():
            at, segments = ("in_port", port_no), meters[Kind.SEGMENTS]
            yield Entry(table, 20, (at,), WHOLE_FRAME, meter=meters[Kind.PACKET_INS])
            for tcp in _TCP:
                yield Entry(table, 30, (at, *tcp), COPY_BYTES, meter=segments)
            answer = at, ("eth_dst", PROBE_MAC)
            yield Entry(table, 40, answer, WHOLE_FRAME, meter=meters.get(Kind.ANSWERS, 0))
            for match in _waiting_syns() if self.reactive else ():
                yield Entry(self.tables.forwarding, 201, (at, *match), WHOLE_FRAME, meter=segments)

    def ports(
        self, link_ports: Iterable[int], tree_ports: Iterable[int], edge_ports: Iterable[int]
    ) -> Iterator[Entry]:
        """The entries of the switch's ports.

        Frames are copied to the controller at edge ports only. Floods follow the spanning tree, whose ports
        are ``tree_ports``.
        """
        forwarding = self.tables.forwarding
        link_ports, tree_ports = sorted(link_ports), set(tree_ports)
        for port in link_ports:
            yield Entry(self.tables.events, 150, (("in_port", port),), goto=forwarding)
            if port not in tree_ports:
                yield Entry(forwarding, 60, (("in_port", port), ("eth_dst", MULTICAST)))
                yield Entry(forwarding, 10, (("in_port", port),))
        flooded = tuple(sorted({*edge_ports, *tree_ports}))
        yield Entry(forwarding, 50, (("eth_dst", MULTICAST),), out=flooded)
        yield Entry(forwarding, 0, out=flooded)

    def known_host(self, mac: str, port_no: int) -> Entry:
        """Ends the copying of a host's segments, for a switch that reports its flows itself."""
        match = (("in_port", port_no), ("eth_src", mac))
        return Entry(self.tables.events, 90, match, goto=self.tables.forwarding)

    def to_host(self, mac: str, ports: tuple[int, ...], switch_number: int) -> Entry:
        """The way to a host: by one port, or by one port for each bucket of the flows to its switch."""
        match = (("eth_dst", mac),)
        if len(set(ports)) == 1:
            return Entry(self.tables.forwarding, 100, match, out=ports[:1])
        metadata = (switch_number << BUCKET_BITS, _SWITCH_MASK)
        return Entry(self.tables.forwarding, 100, match, metadata=metadata, goto=self.tables.buckets[0])

    def to_switch(self, switch_number: int, ports: tuple[int, ...]) -> Iterator[Entry]:
        """The port of each bucket of the flows to a switch, if the ports differ."""
        if len(set(ports)) > 1:
            for bucket, port in enumerate(ports):
                match = (("metadata", switch_number << BUCKET_BITS | bucket),)
                yield Entry(self.tables.paths, 100, match, out=(port,))

    def buckets(self) -> tuple[Entry, ...]:
        """The tables that write a packet's bucket, ``paths.bucket_of``, one bit in each table."""
        return _bucket_entries(self.tables)

    def of_flow(self, key: FiveTuple, out_port: int, idle_s: int) -> Entry:
        """The entry of one flow on one switch of its path (reactive mode)."""
        eth_type, version = (ETH_IPV6, "ipv6") if key.is_ipv6 else (ETH_IPV4, "ipv4")
        match = (
            ("eth_type", eth_type),
            ("ip_proto", IP_TCP),
            (f"{version}_src", key.src),
            (f"{version}_dst", key.dst),
            ("tcp_src", key.src_port),
            ("tcp_dst", key.dst_port),
        )
        return Entry(self.tables.forwarding, 300, match, out=(out_port,), idle_s=idle_s)

    def _copied(self) -> Iterator[tuple[int, Match, int]]:
        """The frames that the table ``events`` copies to the controller: priority, match, bytes."""
        for eth_type in (ETH_ARP, ETH_RARP):  # hypervisors announce a virtual machine that moved by RARP
            yield 100, (("eth_type", eth_type),), COPY_BYTES
        for icmpv6_type in _NEIGHBOUR_TYPES:
            match = (("eth_type", ETH_IPV6), ("ip_proto", IP_ICMPV6), ("icmpv6_type", icmpv6_type))
            yield 100, match, COPY_BYTES
        for port in _DHCP_PORTS:
            yield 100, (("eth_type", ETH_IPV4), ("ip_proto", IP_UDP), ("udp_dst", port)), WHOLE_FRAME
        for tcp, (flags, mask) in itertools.product(_TCP, self._copied_flags()):
            yield 80, (*tcp, ("tcp_flags", (flags, mask))), COPY_BYTES

    def _copied_flags(self) -> Iterator[tuple[int, int]]:
        """The flags of segments to copy. In reactive mode the controller gets every SYN anyway."""
        for flags, mask in OPENING_OR_CLOSING:
            yield (SYN | ACK, SYN | ACK) if self.reactive and flags == SYN else (flags, mask)


def _waiting_syns() -> Iterator[Match]:
    """The SYNs that wait for their path at the controller (reactive mode)."""
    for tcp in _TCP:
        yield *tcp, ("tcp_flags", (SYN, SYN | ACK))


def _diverted() -> Iterator[Match]:
    """Frames that the controller answers or passes on itself: the switch floods none of them."""
    yield (("eth_type", ETH_LLDP),)
    yield ("eth_type", ETH_ARP), ("eth_dst", BROADCAST)
    yield ("eth_type", ETH_ARP), ("eth_dst", PROBE_MAC)
    yield (
        ("eth_type", ETH_IPV6),
        ("eth_dst", PROBE_MAC),
        ("ip_proto", IP_ICMPV6),
        ("icmpv6_type", NEIGHBOUR_ADVERTISEMENT),
    )
    yield (
        ("eth_type", ETH_IPV6),
        ("eth_dst", _SOLICITED_NODE),
        ("ip_proto", IP_ICMPV6),
        ("icmpv6_type", 135),
    )


@cache
def _bucket_entries(tables: FabricTables) -> tuple[Entry, ...]:
    """Masked matches compute each bit of the bucket.

    A bit is the parity of one bit of each address and, for TCP and UDP, of each port. If the parity is 0,
    there is nothing to write. Other packets and later fragments only have addresses.
    """
    links = itertools.pairwise((*tables.buckets, tables.paths))
    return tuple(entry for bit, link in enumerate(links) for entry in _bucket_bit(bit, *link))


def _bucket_bit(bit: int, table: int, next_table: int) -> Iterator[Entry]:
    write = (1 << bit, 1 << bit)
    yield Entry(table, 0, goto=next_table)
    for eth_type, version in ((ETH_IPV4, "ipv4"), (ETH_IPV6, "ipv6")):
        addresses = [_bit(f"{version}_{end}", bit, version) for end in ("src", "dst")]
        for match in _of_parity(addresses, 1):
            yield Entry(table, 10, (("eth_type", eth_type), *match), metadata=write, goto=next_table)
        for protocol, name in ((IP_TCP, "tcp"), (IP_UDP, "udp")):
            head = ("eth_type", eth_type), ("ip_proto", protocol)
            all_bits = [*addresses, *(_bit(f"{name}_{end}", bit + PORT_SHIFT) for end in ("src", "dst"))]
            for match in _of_parity(all_bits, 1):
                yield Entry(table, 20, (*head, *match), metadata=write, goto=next_table)
            for match in _of_parity(all_bits, 0):
                yield Entry(table, 20, (*head, *match), goto=next_table)


def _bit(field: str, bit: int, version: str = "") -> tuple[tuple[str, Any], tuple[str, Any]]:
    """The two matches on one bit of a field: the bit is 0, the bit is 1."""
    if version == "ipv4":
        mask = f"0.0.0.{1 << bit}"
        return (field, ("0.0.0.0", mask)), (field, (mask, mask))  # noqa: S104 - a value in a match
    if version == "ipv6":
        return (field, ("::", f"::{1 << bit:x}")), (field, (f"::{1 << bit:x}",) * 2)
    return (field, (0, 1 << bit)), (field, (1 << bit, 1 << bit))


def _of_parity(bits: list[tuple[tuple[str, Any], tuple[str, Any]]], parity: int) -> Iterator[Match]:
    for values in itertools.product((0, 1), repeat=len(bits)):
        if sum(values) % 2 == parity:
            yield tuple(bit[value] for bit, value in zip(bits, values, strict=True))
