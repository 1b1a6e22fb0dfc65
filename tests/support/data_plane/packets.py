"""TCP segments as bytes with right checksums, as input of the BPF programs."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass, field, replace

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10
TCP = 6
ETHERTYPE = {4: 0x0800, 6: 0x86DD}


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@dataclass(frozen=True)
class Offer:
    """A SYN's options."""

    mss: int | None = 1460
    scale: int | None = 9
    timestamps: bool = True

    def pack(self) -> bytes:
        options = b""
        if self.mss is not None:
            options += struct.pack("!BBH", 2, 4, self.mss)
        if self.timestamps:
            options += struct.pack("!BBII", 8, 10, 1, 0)
        if self.scale is not None:
            options += struct.pack("!BBB", 3, 3, self.scale)
        return options + b"\x01" * (-len(options) % 4)


@dataclass(frozen=True)
class Segment:
    """One TCP segment and the headers around it. vlans are tags from the outside in."""

    src: str = "10.0.0.1"
    dst: str = "10.0.0.2"
    src_port: int = 40000
    dst_port: int = 5000
    flags: int = ACK
    window: int = 65535
    seq: int = 1
    ack: int = 1
    options: bytes = b""
    payload: bytes = b""
    vlans: tuple[int, ...] = ()
    ip_options: bytes = b""
    extensions: tuple[tuple[int, bytes], ...] = ()
    fragment_offset: int = 0
    checksum: int | None = field(default=None)

    def pack(self) -> bytes:
        src, dst = ipaddress.ip_address(self.src), ipaddress.ip_address(self.dst)
        tcp = self._tcp(self._right_checksum() if self.checksum is None else self.checksum)
        tags = b"".join(
            struct.pack("!HH", 0x8100 if i else 0x88A8, vlan) for i, vlan in enumerate(self.vlans)
        )
        if len(self.vlans) == 1:
            tags = struct.pack("!HH", 0x8100, self.vlans[0])
        ethernet = bytes(12) + tags + struct.pack("!H", ETHERTYPE[src.version])
        return ethernet + (self._ipv4 if src.version == 4 else self._ipv6)(src.packed, dst.packed, tcp)

    def with_wrong_checksum(self) -> Segment:
        """The same segment with a TCP checksum that is never right."""
        return replace(self, checksum=self._right_checksum() ^ 1)

    def _right_checksum(self) -> int:
        src, dst = ipaddress.ip_address(self.src), ipaddress.ip_address(self.dst)
        tcp = self._tcp(0)
        return checksum(src.packed + dst.packed + struct.pack("!II", len(tcp), TCP) + tcp)

    def _tcp(self, check: int) -> bytes:
        offset = (20 + len(self.options)) // 4
        header = struct.pack(
            "!HHIIBBHHH",
            self.src_port,
            self.dst_port,
            self.seq,
            self.ack,
            offset << 4,
            self.flags,
            self.window,
            check,
            0,
        )
        return header + self.options + self.payload

    def _ipv4(self, src: bytes, dst: bytes, tcp: bytes) -> bytes:
        length = 20 + len(self.ip_options)
        header = struct.pack(
            "!BBHHHBBH", 0x40 | length // 4, 0, length + len(tcp), 0, self.fragment_offset, 64, TCP, 0
        )
        header += src + dst + self.ip_options
        return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + tcp

    def _ipv6(self, src: bytes, dst: bytes, tcp: bytes) -> bytes:
        kinds = [kind for kind, _ in self.extensions] + [TCP]
        body = b"".join(bytes([kinds[i + 1]]) + rest for i, (_, rest) in enumerate(self.extensions)) + tcp
        return struct.pack("!IHBB", 6 << 28, len(body), kinds[0], 64) + src + dst + body


def timestamps(value: int, echo: int) -> bytes:
    """The option in the layout that hosts use (RFC 7323, appendix A). Both numbers wrap."""
    return struct.pack("!BBBBII", 1, 1, 8, 10, value % 2**32, echo % 2**32)


def sack(left: int, right: int) -> bytes:
    """A selective acknowledgement of one block, in the layout that hosts use (RFC 2018, section 4)."""
    return struct.pack("!BBBBII", 1, 1, 5, 10, left % 2**32, right % 2**32)


def tcp_of(frame: bytes, segment: Segment) -> bytes:
    """The TCP part of a frame made from `segment`."""
    return frame[len(frame) - len(segment._tcp(0)) :]


def window_of(frame: bytes, segment: Segment) -> int:
    return int(struct.unpack_from("!H", tcp_of(frame, segment), 14)[0])


def mss_of(frame: bytes, segment: Segment) -> int:
    """The MSS that a SYN offers; the option comes first, as Offer.pack puts it."""
    return int(struct.unpack_from("!H", tcp_of(frame, segment), 22)[0])


def checksum_is_right(frame: bytes, segment: Segment) -> bool:
    src, dst = ipaddress.ip_address(segment.src), ipaddress.ip_address(segment.dst)
    tcp = tcp_of(frame, segment)
    return checksum(src.packed + dst.packed + struct.pack("!II", len(tcp), TCP) + tcp) == 0
