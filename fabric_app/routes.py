"""The fabric's flow entries as values: which entries a switch should have. Pure.

What is sent is the difference between these and what a switch has already. Every entry but a single flow's
is permanent: what is forwarded goes on being forwarded without a controller.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from fabric_app.paths import BUCKET_BITS, PORT_SHIFT
from fabric_app.pipeline import (
    ACK,
    ETH_ARP,
    ETH_IPV4,
    ETH_IPV6,
    ETH_LLDP,
    IP_ICMPV6,
    IP_TCP,
    IP_UDP,
    OPENING_OR_CLOSING,
    SYN,
    TABLE_BUCKET,
    TABLE_EVENTS,
    TABLE_FORWARDING,
    TABLE_PATHS,
    TABLE_SCCP,
    TABLE_SDTCP,
)
from flowdb.flow import FiveTuple

COPY_BYTES = 192
"""How much of a copied segment the controller gets: a SYN's headers are 154 bytes at most."""
WHOLE_FRAME = 0xFFFF

BROADCAST = "ff:ff:ff:ff:ff:ff"
MULTICAST = ("01:00:00:00:00:00", "01:00:00:00:00:00")
_SOLICITED_NODE = ("33:33:ff:00:00:00", "ff:ff:ff:00:00:00")
_DHCP_PORTS = (67, 68)
_SWITCH_MASK = 0xFFFF_FFFF << BUCKET_BITS

Match = tuple[tuple[str, Any], ...]
Place = tuple[int, int, Match]


@dataclass(frozen=True, slots=True)
class Entry:
    """A flow entry: what it matches, and what it does, in this order.

    ``to_controller``: bytes of the frame that the controller gets, 0: none; ``out``: output ports;
    ``metadata``: value and mask to write; ``goto``: the table after. Without any of them it drops.
    """

    table: int
    priority: int
    match: Match = ()
    to_controller: int = 0
    out: tuple[int, ...] = ()
    metadata: tuple[int, int] | None = None
    goto: int | None = None
    idle_s: int = 0

    @property
    def place(self) -> Place:
        """An entry of the same place takes this one's."""
        return self.table, self.priority, self.match


Table = dict[Place, Entry]


def table_of(entries: Iterable[Entry]) -> Table:
    return {entry.place: entry for entry in entries}


def difference(old: Table, new: Table) -> tuple[list[Entry], list[Entry]]:
    """The entries to add (or replace) and those to delete, from ``old`` to ``new``."""
    added = [entry for place, entry in new.items() if old.get(place) != entry]
    return added, [entry for place, entry in old.items() if place not in new]


def pipeline(reactive: bool = False) -> Iterator[Entry]:
    """What every switch has from the start: the ways from table to table, what the controller hears.

    TCP segments that open or close flows are copied; of ``known`` hosts they are not.
    ``reactive``: a SYN that finds no entry of its flow waits at the controller.
    """
    for table in (TABLE_SDTCP, TABLE_SCCP, TABLE_EVENTS):
        yield Entry(table, 0, goto=table + 1)
    for match in _diverted():
        yield Entry(TABLE_EVENTS, 200, match, to_controller=WHOLE_FRAME)
    yield Entry(TABLE_EVENTS, 100, (("eth_type", ETH_ARP),), COPY_BYTES, goto=TABLE_FORWARDING)
    for icmpv6_type in (135, 136):
        match = (("eth_type", ETH_IPV6), ("ip_proto", IP_ICMPV6), ("icmpv6_type", icmpv6_type))
        yield Entry(TABLE_EVENTS, 100, match, COPY_BYTES, goto=TABLE_FORWARDING)
    for port in _DHCP_PORTS:
        match = (("eth_type", ETH_IPV4), ("ip_proto", IP_UDP), ("udp_dst", port))
        yield Entry(TABLE_EVENTS, 100, match, WHOLE_FRAME, goto=TABLE_FORWARDING)
    for eth_type, (flags, mask) in itertools.product((ETH_IPV4, ETH_IPV6), _copied(reactive)):
        match = (("eth_type", eth_type), ("ip_proto", IP_TCP), ("tcp_flags", (flags, mask)))
        yield Entry(TABLE_EVENTS, 80, match, COPY_BYTES, goto=TABLE_FORWARDING)
    if reactive:
        for eth_type in (ETH_IPV4, ETH_IPV6):
            match = (("eth_type", eth_type), ("ip_proto", IP_TCP), ("tcp_flags", (SYN, SYN | ACK)))
            yield Entry(TABLE_FORWARDING, 200, match, to_controller=WHOLE_FRAME)


def _diverted() -> Iterator[Match]:
    """Frames that the controller answers or passes on itself: nothing of the kind is flooded."""
    yield (("eth_type", ETH_LLDP),)
    yield ("eth_type", ETH_ARP), ("eth_dst", BROADCAST)
    yield (
        ("eth_type", ETH_IPV6),
        ("eth_dst", _SOLICITED_NODE),
        ("ip_proto", IP_ICMPV6),
        ("icmpv6_type", 135),
    )


def _copied(reactive: bool) -> Iterator[tuple[int, int]]:
    """The flags of segments to copy; in reactive mode the controller has each SYN itself."""
    for flags, mask in OPENING_OR_CLOSING:
        yield (SYN | ACK, SYN | ACK) if reactive and flags == SYN else (flags, mask)


def links(link_ports: Iterable[int], tree_ports: Iterable[int], edge_ports: Iterable[int]) -> Iterator[Entry]:
    """What hangs on the ports: copies are made at the edge alone, and floods go along the spanning tree."""
    link_ports, tree_ports = sorted(link_ports), set(tree_ports)
    for port in link_ports:
        yield Entry(TABLE_EVENTS, 150, (("in_port", port),), goto=TABLE_FORWARDING)
        if port not in tree_ports:
            yield Entry(TABLE_FORWARDING, 60, (("in_port", port), ("eth_dst", MULTICAST)))
            yield Entry(TABLE_FORWARDING, 10, (("in_port", port),))
    flooded = tuple(sorted({*edge_ports, *tree_ports}))
    yield Entry(TABLE_FORWARDING, 50, (("eth_dst", MULTICAST),), out=flooded)
    yield Entry(TABLE_FORWARDING, 0, out=flooded)


def known(mac: str, port_no: int) -> Entry:
    """A host at its place: its segments tell the controller nothing new where the switch reports flows."""
    return Entry(TABLE_EVENTS, 90, (("in_port", port_no), ("eth_src", mac)), goto=TABLE_FORWARDING)


def to_host(mac: str, ports: tuple[int, ...], number: int) -> Entry:
    """The way to a host: by one port, or by the port of each bucket of flows to its switch ``number``."""
    match = (("eth_dst", mac),)
    if len(set(ports)) == 1:
        return Entry(TABLE_FORWARDING, 100, match, out=ports[:1])
    metadata = (number << BUCKET_BITS, _SWITCH_MASK)
    return Entry(TABLE_FORWARDING, 100, match, metadata=metadata, goto=TABLE_BUCKET)


def to_switch(number: int, ports: tuple[int, ...]) -> Iterator[Entry]:
    """The port of each bucket of flows to a switch, where they are not all the same."""
    if len(set(ports)) > 1:
        for bucket, port in enumerate(ports):
            match = (("metadata", number << BUCKET_BITS | bucket),)
            yield Entry(TABLE_PATHS, 100, match, out=(port,))


@cache
def buckets() -> tuple[Entry, ...]:
    """Tables that write a packet's bucket: ``paths.bucket_of``, one bit a table, by masked matches.

    A bit is the parity of one bit of each address and, for TCP and UDP, of each port; where it is 0 there is
    nothing to write. Other packets and later fragments have the addresses' parity alone.
    """
    return tuple(entry for bit in range(BUCKET_BITS) for entry in _bucket_bit(bit))


def _bucket_bit(bit: int) -> Iterator[Entry]:
    table, write = TABLE_BUCKET + bit, (1 << bit, 1 << bit)
    yield Entry(table, 0, goto=table + 1)
    for eth_type, version in ((ETH_IPV4, "ipv4"), (ETH_IPV6, "ipv6")):
        addresses = [_bit(f"{version}_{end}", bit, version) for end in ("src", "dst")]
        for match in _of_parity(addresses, 1):
            yield Entry(table, 10, (("eth_type", eth_type), *match), metadata=write, goto=table + 1)
        for protocol, name in ((IP_TCP, "tcp"), (IP_UDP, "udp")):
            head = ("eth_type", eth_type), ("ip_proto", protocol)
            all_bits = [*addresses, *(_bit(f"{name}_{end}", bit + PORT_SHIFT) for end in ("src", "dst"))]
            for match in _of_parity(all_bits, 1):
                yield Entry(table, 20, (*head, *match), metadata=write, goto=table + 1)
            for match in _of_parity(all_bits, 0):
                yield Entry(table, 20, (*head, *match), goto=table + 1)


def of_flow(key: FiveTuple, out_port: int, idle_s: int) -> Entry:
    """The entry of one flow on one switch of its path."""
    eth_type, version = (ETH_IPV6, "ipv6") if key.is_ipv6 else (ETH_IPV4, "ipv4")
    match = (
        ("eth_type", eth_type),
        ("ip_proto", IP_TCP),
        (f"{version}_src", key.src),
        (f"{version}_dst", key.dst),
        ("tcp_src", key.src_port),
        ("tcp_dst", key.dst_port),
    )
    return Entry(TABLE_FORWARDING, 300, match, out=(out_port,), idle_s=idle_s)


def _bit(field: str, bit: int, version: str = "") -> tuple[tuple[str, Any], tuple[str, Any]]:
    """The matches on a bit of a field: where it is 0, and where it is 1."""
    if version == "ipv4":
        return (field, ("0.0.0.0", f"0.0.0.{1 << bit}")), (field, (f"0.0.0.{1 << bit}",) * 2)  # noqa: S104
    if version == "ipv6":
        return (field, ("::", f"::{1 << bit:x}")), (field, (f"::{1 << bit:x}",) * 2)
    return (field, (0, 1 << bit)), (field, (1 << bit, 1 << bit))


def _of_parity(bits: list[tuple[tuple[str, Any], tuple[str, Any]]], parity: int) -> Iterator[Match]:
    for values in itertools.product((0, 1), repeat=len(bits)):
        if sum(values) % 2 == parity:
            yield tuple(bit[value] for bit, value in zip(bits, values, strict=True))
