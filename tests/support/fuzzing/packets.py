"""The BPF programs on frames with hostile headers, by BPF_PROG_TEST_RUN. Needs root.

Whatever a frame contains, a program lets it pass with its length. It changes nothing but the header of a TCP
segment and ECN, raises no window, and keeps a right checksum right. N_i stays within the number of flows.
"""

from __future__ import annotations

import os
import random
import struct
from dataclasses import dataclass, replace

from libbpf_cffi import libbpf
from openflow_ext.switch.dataplane.interface import HostSettings, PortSettings
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from tests.support.data_plane.bench import BRIDGE, OFPORT, PORT, Bench, reverse, syn
from tests.support.data_plane.packets import ACK, FIN, PSH, RST, SYN, TCP, Offer, Segment, checksum

CAPACITY_BPS, BUFFER_BYTES = 100_000_000, 150_000
CLAMPED_TO = 4 * 1448
FLOWS = 8
XDP_PASS, TC_ACT_UNSPEC = 2, 0xFFFFFFFF
LET_PASS = {"weir_ingress": XDP_PASS, "weir_ingress_tc": TC_ACT_UNSPEC, "weir_egress": TC_ACT_UNSPEC}
ETHERNET, IPV4, IPV6, VLANS = 14, 0x0800, 0x86DD, (0x8100, 0x88A8)
SHORTEST = ETHERNET + 40
"""The kernel refuses to run a program on an Ethernet frame that is shorter than its IP header."""

MOST_TAGS = 2
EXTENSIONS, FRAGMENT, AUTHENTICATION = (0, 43, 60), 44, 51
FLAGS = (ACK, ACK | PSH, SYN, SYN | ACK, FIN | ACK, RST, RST | ACK, SYN | FIN, SYN | RST, 0, 0xFF)
LENGTHS = (0, 1, 4, 5, 15, 20, 40, 0x45, 0x4F, 0x50, 0xF0, 0x60, 0x7F, 0xFF)
OPTIONS = (
    b"",
    Offer().pack(),
    Offer(mss=9000, scale=14).pack(),
    Offer(mss=None, scale=15).pack(),
    bytes.fromhex("0101080a0000000100000001"),
    bytes.fromhex("13120000000000000000000000000000000000000101"),
    bytes.fromhex("02000000"),
    bytes.fromhex("03ff0000"),
    bytes.fromhex("0204"),
    b"\x05\x22" + bytes(34) + b"\0\0\0\0",
)


@dataclass(frozen=True)
class Place:
    """Where a frame holds a whole TCP segment. ``pseudo``: the bytes of the pseudo-header."""

    ip: int
    tcp: int
    end: int
    header_bytes: int
    pseudo: bytes


def place_of(frame: bytes) -> Place | None:
    """The TCP segment of a frame, by the specifications; None if there is none, or not the first fragment."""
    at, kind = ETHERNET, int.from_bytes(frame[12:14], "big")
    for _ in range(MOST_TAGS):
        if kind in VLANS and len(frame) >= at + 4:
            kind, at = int.from_bytes(frame[at + 2 : at + 4], "big"), at + 4
    if kind == IPV4:
        found = _in_ipv4(frame, at)
    elif kind == IPV6:
        found = _in_ipv6(frame, at)
    else:
        return None
    if found is None or found[0] + 20 > found[1]:
        return None
    tcp, end, pseudo = found
    header_bytes = (frame[tcp + 12] >> 4) * 4
    if header_bytes < 20 or tcp + header_bytes > end:
        return None
    return Place(at, tcp, end, header_bytes, pseudo)


def _in_ipv4(frame: bytes, at: int) -> tuple[int, int, bytes] | None:
    """Begin and end of the TCP segment of an IPv4 packet, and its pseudo-header."""
    if len(frame) < at + 20 or frame[at] >> 4 != 4 or frame[at + 9] != TCP:
        return None
    header_bytes = (frame[at] & 15) * 4
    total, fragment = struct.unpack_from("!H2xH", frame, at + 2)
    end = at + total
    if header_bytes < 20 or end > len(frame) or fragment & 0x1FFF:
        return None
    pseudo = frame[at + 12 : at + 20] + struct.pack("!HH", TCP, max(0, total - header_bytes))
    return at + header_bytes, end, pseudo


def _in_ipv6(frame: bytes, at: int) -> tuple[int, int, bytes] | None:
    """Begin and end of the TCP segment of an IPv6 packet, and its pseudo-header."""
    if len(frame) < at + 40 or frame[at] >> 4 != 6:
        return None
    end = at + 40 + int.from_bytes(frame[at + 4 : at + 6], "big")
    kind, now = frame[at + 6], at + 40
    if end > len(frame):
        return None
    while kind in (*EXTENSIONS, FRAGMENT, AUTHENTICATION):
        if now + 8 > end:
            return None
        if kind == FRAGMENT and int.from_bytes(frame[now + 2 : now + 4], "big") & 0xFFF8:
            return None
        size = 8 if kind == FRAGMENT else 8 + 8 * frame[now + 1]
        size = 4 * (frame[now + 1] + 2) if kind == AUTHENTICATION else size
        kind, now = frame[now], now + size
    if kind != TCP:
        return None
    return now, end, frame[at + 8 : at + 40] + struct.pack("!HH", TCP, max(0, end - now))


def checksum_is_right(frame: bytes, place: Place) -> bool:
    return checksum(place.pseudo + frame[place.tcp : place.end]) == 0


def with_right_checksum(frame: bytearray) -> None:
    """Give the TCP segment of a frame a right checksum, and an IPv4 header too."""
    if place := place_of(bytes(frame)):
        if frame[place.ip] >> 4 == 4:
            header = slice(place.ip, place.ip + (frame[place.ip] & 15) * 4)
            frame[place.ip + 10 : place.ip + 12] = bytes(2)
            frame[place.ip + 10 : place.ip + 12] = checksum(bytes(frame[header])).to_bytes(2, "big")
        frame[place.tcp + 16 : place.tcp + 18] = bytes(2)
        right = checksum(place.pseudo + bytes(frame[place.tcp : place.end]))
        frame[place.tcp + 16 : place.tcp + 18] = right.to_bytes(2, "big")


def seeds() -> list[bytes]:
    """Right frames of all kinds, of a few flows, in both directions."""
    chance = random.Random(1)
    made = []
    for number in range(400):
        version = chance.choice(("10.0.0.", "10.0.0.", "fd00::"))
        local = Segment(src=f"{version}1", dst=f"{version}2", src_port=40000 + number % FLOWS)
        way = local if chance.random() < 0.5 else reverse(local)
        flags = chance.choice(FLAGS)
        first = syn(way) if flags & SYN else way
        extensions = ((chance.choice(EXTENSIONS), bytes(7)),) * chance.randrange(3) if ":" in way.src else ()
        one = replace(
            first,
            flags=flags,
            window=chance.choice((0, 1, 7, 64, 1448, 65535)),
            options=chance.choice(OPTIONS),
            payload=bytes(chance.choice((0, 1, 100, 1448))),
            vlans=tuple(range(chance.choice((0, 0, 0, 1, 2)))),
            ip_options=bytes(4 * chance.choice((0, 0, 1, 10))) if "." in way.src else b"",
            extensions=extensions,
        )
        made.append(one.pack())
    return made


def mangled(rng: random.Random, frame: bytes) -> bytearray:
    """A frame with some bytes of its headers changed, cut short or made longer. Most get a right checksum."""
    data = bytearray(frame)
    headers = min(len(data), 120)
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        at = rng.randrange(12, headers)
        data[at] = rng.choice((*LENGTHS, rng.getrandbits(8), data[at] ^ 1 << rng.randrange(8)))
    if rng.random() < 0.15:
        del data[rng.randrange(ETHERNET, len(data) + 1) :]
    elif rng.random() < 0.1:
        data += rng.randbytes(rng.randrange(64))
    if rng.random() < 0.7:
        with_right_checksum(data)
    return data


class PacketsTarget:
    """The data plane's three packet programs on one port that clamps, counts and reports."""

    def __init__(self) -> None:
        self._plane = KernelDataPlane(f"weir-fuzz-{os.getpid()}", max_flows=10_000)
        self._bench = Bench(self._plane)
        self._plane.enter_port(PORT, BRIDGE, OFPORT)
        self._programs = {name: self._plane.program(name) for name in LET_PASS}
        self._names = list(LET_PASS)
        self._seeds = seeds()
        self._settings = PortSettings()
        for version in (4, 6):
            match = TcpMatch(ip_version=version)
            self._bench.put(Rule(0, 1, 0, match, WindowOp.SET_WINDOW, CLAMPED_TO))
        self._bench.count_by_flags()
        self._plane.configure_host(HostSettings(report_kinds=0b11110))

    def begin(self) -> None:
        """An empty flow table but for established flows, some of which the inputs hit."""
        self._bench.begin_anew(self._settings, CAPACITY_BPS, BUFFER_BYTES)
        self._plane.reports()
        for number in range(FLOWS):
            for version in ("10.0.0.", "fd00::"):
                self._bench.handshake(Segment(src=f"{version}1", dst=f"{version}2", src_port=40000 + number))

    def feed(self, rng: random.Random) -> bool:
        frame = bytes(mangled(rng, rng.choice(self._seeds)))
        name = rng.choice(self._names)
        found = run_on(self._programs[name], frame)
        if found is None:
            return False
        verdict, after = found
        if verdict != LET_PASS[name]:
            raise AssertionError(f"{name} gives {verdict}: {frame.hex()}")
        place = place_of(frame)
        if after != frame:
            check_change(name, frame, after, place)
        return place is not None

    def close(self) -> None:
        self._plane.destroy()


def run_on(program: int, frame: bytes) -> tuple[int, bytes] | None:
    """The verdict of a program on a frame, and the frame after it; None: the kernel makes no such packet."""
    try:
        verdict, after = libbpf.run(program, packet=frame)
    except libbpf.BpfError:
        if len(frame) < SHORTEST:
            return None
        raise
    return verdict & 0xFFFFFFFF, after


def check_change(name: str, frame: bytes, after: bytes, place: Place | None) -> None:
    """Raise AssertionError if a program may not have changed a frame in this way."""
    told = f"{name}: {frame.hex()} becomes {after.hex()}"
    if len(after) != len(frame):
        raise AssertionError(f"another length: {told}")
    if place is None:
        raise AssertionError(f"no TCP segment, but changed: {told}")
    header = slice(place.tcp, place.tcp + place.header_bytes)
    marked = place.ip + 1, place.ip + 10, place.ip + 11
    changed = {at for at, byte in enumerate(frame) if byte != after[at]}
    if changed - set(range(header.start, header.stop)) - set(marked):
        raise AssertionError(f"more than the TCP header changed: {told}")
    if frame[header][14:16] < after[header][14:16]:
        raise AssertionError(f"the window is raised: {told}")
    if checksum_is_right(frame, place) and not checksum_is_right(after, place):
        raise AssertionError(f"the checksum is wrong: {told}")
