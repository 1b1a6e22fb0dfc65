"""Frames of many TCP flows, sent from a packet socket with sendmmsg(2) in a prepared order."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address

from cffi import FFI

ffi = FFI()
ffi.cdef("""
struct iovec { void *base; size_t len; };
struct msghdr {
    void *name; uint32_t namelen; struct iovec *iov; size_t iovlen; void *control; size_t controllen;
    int flags;
};
struct mmsghdr { struct msghdr header; unsigned int len; };
int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags);
""")
_libc = ffi.dlopen(None)

SYN, ACK = 0x02, 0x10
BATCH = 1024
HOST = IPv4Address("10.0.0.2")
FLOWS_A_SOURCE = 50_000
_SYN_OPTIONS = bytes.fromhex("020405b4 0402 080a0000000100000000 01 030309")
_TIMESTAMPS = bytes.fromhex("0101080a0000000100000001")


def flow(index: int) -> tuple[IPv4Address, int]:
    """The address and port of the far end of flow `index`; its near end is HOST:5000."""
    return IPv4Address("10.1.0.0") + index // FLOWS_A_SOURCE, 1024 + index % FLOWS_A_SOURCE


def frames(flows: int, *, from_host: bool, flags: int, payload: int = 0) -> Iterator[bytes]:
    """One TCP frame per flow, from HOST or to it, with right checksums.

    A SYN has the sequence number 0, so that the other segments follow it.
    """
    options = _SYN_OPTIONS if flags & SYN else _TIMESTAMPS
    length = 40 + len(options) + payload
    fixed = struct.pack("!BBHIBB", 0x45, 0, length, 0, 64, 6)
    offset = (20 + len(options)) << 2
    numbers = struct.pack("!IIBBH", not flags & SYN, 1 if flags & ACK else 0, offset, flags, 60000)
    rest = options + bytes(payload)
    tcp_sum = words(numbers + rest) + 6 + length - 20
    host = HOST.packed
    for index in range(flows):
        address, port = flow(index)
        ends = host + address.packed if from_host else address.packed + host
        ports = struct.pack("!HH", *((5000, port) if from_host else (port, 5000)))
        header = fixed + checksum(words(fixed + ends)) + ends
        yield (
            bytes(12)
            + b"\x08\0"
            + header
            + ports
            + numbers
            + checksum(tcp_sum + words(ends + ports))
            + b"\0\0"
            + rest
        )


def words(data: bytes) -> int:
    """The sum of the 16-bit words of an even number of bytes."""
    return sum(struct.unpack(f"!{len(data) // 2}H", data))


def checksum(total: int) -> bytes:
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", ~total & 0xFFFF)


class Sender:
    """Sends frames by an interface, repeatedly in the same random order, each `train` times in a row."""

    def __init__(self, interface: str, these: Iterator[bytes], train: int = 1, seed: int = 1) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self._socket.bind((interface, 0))
        first = next(these)
        self._memory = bytearray(first + b"".join(these))
        self._size = len(first)
        self._count = len(self._memory) // self._size * train
        self._vectors = ffi.new("struct iovec[]", self._count)
        self._messages = ffi.new("struct mmsghdr[]", self._count)
        base = ffi.cast("char *", ffi.from_buffer(self._memory))
        order = list(range(self._count // train))
        random.Random(seed).shuffle(order)  # noqa: S311 - an order, not a secret
        for place, index in enumerate(index for index in order for _ in range(train)):
            self._vectors[place] = (base + index * self._size, self._size)
            header = self._messages[place].header
            header.iov, header.iovlen = self._vectors + place, 1
        self._next = 0

    def send(self, packets: int) -> None:
        while packets > 0:
            batch = min(packets, BATCH, self._count - self._next)
            sent = _libc.sendmmsg(self._socket.fileno(), self._messages + self._next, batch, 0)
            if sent < 0:
                raise OSError(ffi.errno, "sendmmsg")
            packets -= sent
            self._next = (self._next + sent) % self._count

    def send_all(self) -> None:
        """Send each frame once."""
        self._next = 0
        self.send(self._count)

    def close(self) -> None:
        self._socket.close()
