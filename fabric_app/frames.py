"""Parses Ethernet frames from a switch, which may be cut short or hostile, into plain values. Pure.

The parser reads ARP, IPv6 neighbour discovery (RFC 4861), a DHCP server's ACK (RFC 2131), and the headers of
TCP segments (RFC 9293, RFC 7323) over IPv4 or IPv6, with at most one VLAN tag. Other frames have no content.
Not implemented: IPv6 extension headers, fragments after the first, DHCPv6.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

from app_base.headers import (
    ETH_ARP,
    ETH_IPV4,
    ETH_IPV6,
    ETH_LLDP,
    IP_ICMPV6,
    IP_TCP,
    IP_UDP,
    SYN,
)
from flowdb.flow import FiveTuple

ARP_REQUEST, ARP_REPLY = 1, 2
NEIGHBOUR_SOLICITATION, NEIGHBOUR_ADVERTISEMENT = 135, 136
BROADCAST = "ff:ff:ff:ff:ff:ff"
NO_IP = "0.0.0.0"  # noqa: S104 - the sender's address in an ARP probe (RFC 5227)
PROBE_MAC = "02:57:45:49:52:01"
"""The sender of the fabric's questions to hosts: locally administered, and no host's."""
DHCP_SERVER_PORT, DHCP_CLIENT_PORT = 67, 68
MAX_WSCALE = 14
_ETH_VLAN = 0x8100
_OPT_END, _OPT_NOP, _OPT_MSS, _OPT_WSCALE = 0, 1, 2, 3
_NA_SOLICITED_OVERRIDE = 0x6000_0000
_SOURCE_LINK_LAYER_ADDRESS = b"\x01\x01"
_TARGET_LINK_LAYER_ADDRESS = b"\x02\x01"
_PROBE_IPV6 = ipaddress.IPv6Address("fe80::57:45ff:fe49:5201").packed
"""The link-local address that belongs to PROBE_MAC (RFC 4291, appendix A)."""
_DHCP_COOKIE, _DHCP_TYPE, _DHCP_ACK, _DHCP_END = 0x6382_5363, 53, 5, 255


class MalformedFrame(Exception):
    """A frame is cut short or contradicts itself; the message names the place."""


@dataclass(frozen=True, slots=True)
class Arp:
    """ARP for IPv4 over Ethernet."""

    op: int
    sender_mac: str
    sender_ip: str
    target_ip: str


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A neighbour solicitation or advertisement; ``ip`` is the sender's, None if it still has none."""

    kind: int
    ip: str | None
    target: str


@dataclass(frozen=True, slots=True)
class Lease:
    """A DHCP server's ACK: the host ``mac`` has ``ip``."""

    mac: str
    ip: str


@dataclass(frozen=True, slots=True)
class Lldp:
    """An LLDP frame of any sender; ``lldp.py`` reads it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A TCP segment's header; ``mss`` and ``wscale`` are a SYN's options, None if it lacks them."""

    key: FiveTuple
    flags: int
    seq: int
    ack: int
    mss: int | None = None
    wscale: int | None = None


Content: TypeAlias = Arp | Neighbour | Lease | Lldp | Segment | None


@dataclass(frozen=True, slots=True)
class Frame:
    """A parsed Ethernet frame."""

    src_mac: str
    dst_mac: str
    content: Content


def is_unicast(mac: str) -> bool:
    """Whether a MAC address, as hexadecimal digits, is that of one interface."""
    return not int(mac[:2], 16) & 1


def parse(data: bytes) -> Frame:
    """Parses a frame, or its first bytes. Raises MalformedFrame."""
    dst, src, eth_type = _unpack("!6s6sH", data, 0, "Ethernet header")
    at = 14
    if eth_type == _ETH_VLAN:
        _, eth_type = _unpack("!HH", data, at, "VLAN tag")
        at += 4
    content: Content = None
    if eth_type == ETH_ARP:
        content = _arp(data, at)
    elif eth_type == ETH_LLDP:
        content = Lldp()
    elif eth_type == ETH_IPV4:
        content = _ipv4(data, at)
    elif eth_type == ETH_IPV6:
        content = _ipv6(data, at)
    return Frame(src.hex(":"), dst.hex(":"), content)


def arp_reply(mac: str, ip: str, to_mac: str, to_ip: str) -> bytes:
    """The ARP reply by which ``mac`` states to ``to_mac`` that it has ``ip``."""
    ours, theirs = bytes.fromhex(mac.replace(":", "")), bytes.fromhex(to_mac.replace(":", ""))
    body = struct.pack("!HHBBH", 1, ETH_IPV4, 6, 4, ARP_REPLY)
    body += ours + ipaddress.IPv4Address(ip).packed + theirs + ipaddress.IPv4Address(to_ip).packed
    return theirs + ours + struct.pack("!H", ETH_ARP) + body.ljust(46, b"\0")


def neighbour_advertisement(mac: str, ip: str, to_mac: str, to_ip: str) -> bytes:
    """The advertisement by which ``mac`` states to ``to_mac``, on its request, that it has ``ip``."""
    ours, theirs = bytes.fromhex(mac.replace(":", "")), bytes.fromhex(to_mac.replace(":", ""))
    src, dst = ipaddress.IPv6Address(ip).packed, ipaddress.IPv6Address(to_ip).packed
    body = struct.pack("!BBHI", NEIGHBOUR_ADVERTISEMENT, 0, 0, _NA_SOLICITED_OVERRIDE) + src
    body += _TARGET_LINK_LAYER_ADDRESS + ours
    return theirs + ours + _icmpv6(src, dst, body)


def arp_probe(mac: str, ip: str) -> bytes:
    """The question to the host ``mac`` whether it has ``ip``: an ARP probe (RFC 5227), sent to it alone.

    Its sender has no IP address, so it changes no host's ARP cache.
    """
    ours, theirs = bytes.fromhex(PROBE_MAC.replace(":", "")), bytes.fromhex(mac.replace(":", ""))
    body = struct.pack("!HHBBH", 1, ETH_IPV4, 6, 4, ARP_REQUEST) + ours + bytes(4)
    body += bytes(6) + ipaddress.IPv4Address(ip).packed
    return theirs + ours + struct.pack("!H", ETH_ARP) + body.ljust(46, b"\0")


def neighbour_probe(mac: str, ip: str) -> bytes:
    """The question to the host ``mac`` whether it has the IPv6 address ``ip``, sent to it alone."""
    ours, theirs = bytes.fromhex(PROBE_MAC.replace(":", "")), bytes.fromhex(mac.replace(":", ""))
    body = struct.pack("!BBHI", NEIGHBOUR_SOLICITATION, 0, 0, 0) + ipaddress.IPv6Address(ip).packed
    body += _SOURCE_LINK_LAYER_ADDRESS + ours
    return theirs + ours + _icmpv6(_PROBE_IPV6, ipaddress.IPv6Address(ip).packed, body)


def _icmpv6(src: bytes, dst: bytes, body: bytes) -> bytes:
    """An IPv6 packet, with its Ethernet type, that carries an ICMPv6 message without its checksum."""
    checksum = _checksum(src + dst + struct.pack("!II", len(body), IP_ICMPV6) + body)
    head = struct.pack("!IHBB", 6 << 28, len(body), IP_ICMPV6, 255)
    return struct.pack("!H", ETH_IPV6) + head + src + dst + body[:2] + struct.pack("!H", checksum) + body[4:]


def _checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _unpack(layout: str, data: bytes, at: int, what: str) -> tuple[Any, ...]:
    try:
        return struct.unpack_from(layout, data, at)
    except struct.error as error:
        raise MalformedFrame(f"{what}: cut short at {len(data)} bytes") from error


def _arp(data: bytes, at: int) -> Arp | None:
    hw, proto, hw_len, proto_len, op = _unpack("!HHBBH", data, at, "ARP")
    if (hw, proto, hw_len, proto_len) != (1, ETH_IPV4, 6, 4):
        return None
    mac, sender, _, target = _unpack("!6s4s6s4s", data, at + 8, "ARP")
    return Arp(op, mac.hex(":"), str(ipaddress.IPv4Address(sender)), str(ipaddress.IPv4Address(target)))


def _ipv4(data: bytes, at: int) -> Segment | Lease | None:
    first, fragment, protocol, src, dst = _unpack("!B5xH1xB2x4s4s", data, at, "IPv4 header")
    header = (first & 0x0F) * 4
    if first >> 4 != 4 or header < 20:
        raise MalformedFrame("IPv4 header: wrong version or length")
    if fragment & 0x1FFF:
        return None
    if protocol == IP_UDP:
        return _dhcp(data, at + header)
    if protocol != IP_TCP:
        return None
    return _segment(data, at + header, str(ipaddress.IPv4Address(src)), str(ipaddress.IPv4Address(dst)))


def _ipv6(data: bytes, at: int) -> Segment | Neighbour | None:
    first, following, src_bytes, dst_bytes = _unpack("!B5xB1x16s16s", data, at, "IPv6 header")
    if first >> 4 != 6:
        raise MalformedFrame("IPv6 header: wrong version")
    src, dst = ipaddress.IPv6Address(src_bytes), ipaddress.IPv6Address(dst_bytes)
    if following == IP_TCP:
        return _segment(data, at + 40, str(src), str(dst))
    if following == IP_ICMPV6:
        (kind,) = _unpack("!B", data, at + 40, "ICMPv6")
        if kind in (NEIGHBOUR_SOLICITATION, NEIGHBOUR_ADVERTISEMENT):
            (target,) = _unpack("!16s", data, at + 48, "neighbour discovery")
            return Neighbour(
                kind, None if src.is_unspecified else str(src), str(ipaddress.IPv6Address(target))
            )
    return None


def _dhcp(data: bytes, at: int) -> Lease | None:
    """The lease in a server's ACK to an Ethernet host."""
    ports = _unpack("!HH", data, at, "UDP header")
    if ports != (DHCP_SERVER_PORT, DHCP_CLIENT_PORT):
        return None
    kinds, ip, mac, cookie = _unpack("!3s13x4s8x6s202xI", data, at + 8, "DHCP")
    if kinds != b"\x02\x01\x06" or cookie != _DHCP_COOKIE or not any(ip):
        return None
    options = data[at + 248 :]
    while len(options) > 2 and options[0] != _DHCP_END:
        if options[0] == 0:
            options = options[1:]
        elif options[:3] == bytes([_DHCP_TYPE, 1, _DHCP_ACK]):
            return Lease(mac.hex(":"), str(ipaddress.IPv4Address(ip)))
        else:
            options = options[2 + options[1] :]
    return None


def _segment(data: bytes, at: int, src: str, dst: str) -> Segment:
    src_port, dst_port, seq, ack, offset, flags = _unpack("!HHIIBB", data, at, "TCP header")
    _unpack("!20x", data, at, "TCP header")
    header = (offset >> 4) * 4
    if header < 20:
        raise MalformedFrame("TCP header: wrong length")
    key = FiveTuple(src, dst, src_port, dst_port)
    if not flags & SYN:
        return Segment(key, flags, seq, ack)
    options = data[at + 20 : at + header]
    if len(options) < header - 20:
        raise MalformedFrame(f"TCP options: cut short at {len(data)} bytes")
    mss, wscale = _syn_options(options)
    return Segment(key, flags, seq, ack, mss, wscale)


def _syn_options(options: bytes) -> tuple[int | None, int | None]:
    """MSS and window scale; a scale over 14 counts as 14 (RFC 7323, section 2.3)."""
    mss = wscale = None
    at = 0
    while at < len(options) and options[at] != _OPT_END:
        if options[at] == _OPT_NOP:
            at += 1
            continue
        kind, length = options[at], options[at + 1] if at + 1 < len(options) else 0
        if length < 2 or at + length > len(options):
            raise MalformedFrame(f"TCP option {kind}: wrong length")
        if (kind, length) == (_OPT_MSS, 4):
            mss = int.from_bytes(options[at + 2 : at + 4], "big")
        elif (kind, length) == (_OPT_WSCALE, 3):
            wscale = min(options[at + 2], MAX_WSCALE)
        at += length
    return mss, wscale
