"""Two network namespaces joined by a veth pair, a script of losses and marks, and a capture.

script.bpf.c applies the script to the sender's segments at the egress of its interface. A packet socket there
records them as they leave, and the ACKs as they arrive. While a process owns a socket, arriving packets wait;
script.bpf.c records the ACKs in the order in which the sender's TCP processes them.

Kernel threads of the interfaces (threaded NAPI) receive the packets, instead of whichever task runs: some
kernels skip BPF programs, congestion controls among them, in the tasks of process 1.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import socket
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TypeVar

from cffi import FFI
from pyroute2 import netns

from libbpf_cffi import libbpf
from libbpf_cffi.libbpf import Object
from tests.support.data_plane.dctcp_reference import Reference
from tests.support.data_plane.host_c import compiled_bpf
from tests.support.waiting import DEADLINE_S, wait_until
from transports.congestion import loaded
from transports.sockets import DctcpSocket, socket_reader

T = TypeVar("T")
PORT = 5001
SENDER, RECEIVER = "10.77.0.1", "10.77.0.2"
MSS = 1448
ACKS_A_S = 5000
STEPS = 1 << 16
ECE, SYN, CWR = 0x40, 0x02, 0x80
ECN_MASK, CE = 3, 3
ETH_HLEN = 14
ETH_P_ALL, ETH_P_IP = 0x0003, 0x0800
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
BUFFER = 64 << 20
UNREAD = 1 << 20
WIDENING_ROUNDS, WIDENING_SEGMENTS = 6, 200
_ACK = struct.Struct("III")


class Step(IntEnum):
    """The fate of a segment with data. LATE: with Wire.reordering(), later segments overtake it."""

    PASS = 0
    MARK = 1
    DROP = 2
    LATE = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """A segment at the sender's interface. `out`: it leaves; numbers are relative to the first data byte."""

    out: bool
    flags: int
    ecn: int
    seq: int
    ack: int
    length: int


@dataclass(frozen=True, slots=True)
class Ack:
    """An ACK as the sender's TCP takes it up: bytes that it acknowledges, bytes then still under way."""

    acked: int
    under_way: int
    ece: bool


class Space:
    """A network namespace and a thread that is in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        ip("netns", "add", name)
        self._thread = ThreadPoolExecutor(max_workers=1, initializer=netns.setns, initargs=(name,))

    def run(self, work: Callable[[], T]) -> T:
        """Do `work` in the namespace; sockets that it makes belong to it."""
        return self._thread.submit(work).result()

    def sysctl(self, name: str, value: str) -> None:
        self.run(lambda: Path(f"/proc/sys/net/ipv4/{name}").write_text(value))

    def close(self) -> None:
        self._thread.shutdown()
        ip("netns", "delete", self.name)


def ip(*words: str) -> None:
    subprocess.run(("ip", *words), check=True)


class Wire:
    """The two namespaces, joined."""

    def __init__(self, script: Path) -> None:
        with contextlib.ExitStack() as undo:
            self.sender, self.receiver = (Space(f"weir-{end}-{os.getpid()}") for end in ("snd", "rcv"))
            undo.callback(self.receiver.close)
            undo.callback(self.sender.close)
            self._join()
            self._object = undo.enter_context(Object(script))
            self._object.load()
            self._script = undo.enter_context(self._memory("script", 4 + STEPS))
            self._taken_up = undo.enter_context(self._memory("taken_up", 4 + STEPS * _ACK.size))
            undo.callback(self._object.attach("note_ack").destroy)
            program = self._object.program("follow_script")
            self.sender.run(lambda: libbpf.tc_attach(socket.if_nametoindex("snd"), libbpf.TC_EGRESS, program))
            self._undo = undo.pop_all()

    def _memory(self, name: str, size: int) -> mmap.mmap:
        held = self._object.map(name, FFI(), "uint32_t", "uint32_t")
        return mmap.mmap(held.fd, (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE)

    def _join(self) -> None:
        """Send one segment per packet: GSO is off, and GRO, which veth needs for NAPI, may not join two.

        ACKs wait for each other, so that there is a round trip.
        """
        a, b = self.sender.name, self.receiver.name
        ip("link", "add", "snd", "netns", a, "type", "veth", "peer", "name", "rcv", "netns", b)
        for space, end, address in ((a, "snd", SENDER), (b, "rcv", RECEIVER)):
            ip("-n", space, "address", "add", f"{address}/24", "dev", end)
            ip("-n", space, "link", "set", end, "gso_max_segs", "1", "gro_max_size", "1")
            features = ("tso", "off", "gso", "off", "gro", "on")
            subprocess.run(("ip", "netns", "exec", space, "ethtool", "-K", end, *features), check=True)
            ip("-n", space, "link", "set", end, "up")
            threaded = f"echo 1 >/sys/class/net/{end}/threaded"
            subprocess.run(("ip", "netns", "exec", space, "sh", "-c", threaded), check=True)
        shape = ("root", "tbf", "rate", f"{ACKS_A_S * 66 * 8}bit", "burst", "150", "limit", "1000000")
        subprocess.run(("tc", "-n", b, "qdisc", "add", "dev", "rcv", *shape), check=True)

    @contextlib.contextmanager
    def reordering(self) -> Iterator[None]:
        """Late segments wait in a slow class of their own. Of several in a row the first is not late."""
        tc, on = ("tc", "-n", self.sender.name), ("dev", "snd")
        one_segment = ("burst", "1600", "cburst", "1600", "quantum", "1600")
        subprocess.run((*tc, "qdisc", "add", *on, "root", "handle", "1:", "htb", "default", "1"), check=True)
        try:
            for number, rate, burst in (("1:1", "10gbit", ()), ("1:2", "4mbit", one_segment)):
                name = ("classid", number, "htb", "rate", rate, *burst)
                subprocess.run((*tc, "class", "add", *on, "parent", "1:", *name), check=True)
            yield
        finally:
            subprocess.run((*tc, "qdisc", "delete", *on, "root"), check=True)

    @contextlib.contextmanager
    def trains(self) -> Iterator[None]:
        """New connections of the sender may send several segments as one packet (TSO)."""
        link = ("-n", self.sender.name, "link", "set", "snd", "gso_max_segs")
        offload = ("ip", "netns", "exec", self.sender.name, "ethtool", "-K", "snd")
        ip(*link, "64")
        subprocess.run((*offload, "tso", "on", "gso", "on"), check=True)
        try:
            yield
        finally:
            subprocess.run((*offload, "tso", "off", "gso", "off"), check=True)
            ip(*link, "1")

    def close(self) -> None:
        self._undo.close()

    def play(self, steps: bytes = b"") -> None:
        """Apply the n-th step to the n-th segment with data from now on; later segments pass."""
        self._script[:] = bytes(4) + steps.ljust(len(self._script) - 4, b"\0")

    def acks(self) -> list[Ack]:
        """Every ACK of data that the sender has taken up since the connection began, in order."""
        count = struct.unpack_from("I", self._taken_up)[0]
        assert count < STEPS, "more ACKs than there is room for"
        return [
            Ack(acked, under_way, bool(ece))
            for acked, under_way, ece in _ACK.iter_unpack(self._taken_up[4 : 4 + count * _ACK.size])
        ]

    def sender_state(self, connection: Connection) -> DctcpSocket:
        """What the kernel knows of the sender's end of a connection whose control is one of Weir's."""
        local = connection.client.getsockname()
        with socket_reader() as reader:
            return next(one for one in self.sender.run(reader.read) if one.local == local)

    @contextlib.contextmanager
    def route(self, *attributes: str) -> Iterator[None]:
        """The sender's new connections take a route with these attributes of `ip route`."""
        route = ("ip", "-n", self.sender.name, "route")
        subprocess.run((*route, "add", RECEIVER, "dev", "snd", "src", SENDER, *attributes), check=True)
        try:
            yield
        finally:
            subprocess.run((*route, "delete", RECEIVER), check=True)

    @contextlib.contextmanager
    def long_timeout(self) -> Iterator[None]:
        """The sender's connections have an RTO of at least 5 s, and send no tail loss probes."""
        probes = self.sender.run(lambda: Path("/proc/sys/net/ipv4/tcp_early_retrans").read_text())
        self.sender.sysctl("tcp_early_retrans", "0")
        try:
            with self.route("rto_min", "5s"):
                yield
        finally:
            self.sender.sysctl("tcp_early_retrans", probes)

    def played(self) -> int:
        """How many segments with data there were since `play`."""
        count: int = struct.unpack_from("I", self._script)[0]
        return count

    def too_big(self, segment: bytes, mtu: int) -> None:
        """Report to the sender by ICMP that the segment after this IP packet exceeds the path's MTU."""
        (seq,) = struct.unpack_from("!I", segment, 24)
        inner = segment[:24] + struct.pack("!I", (seq + MSS) % 2**32)
        message = struct.pack("!BBHHH", 3, 4, 0, 0, mtu) + inner
        total = sum(struct.unpack("!18H", message))
        total = (total & 0xFFFF) + (total >> 16)
        total = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
        message = message[:2] + struct.pack("!H", total) + message[4:]

        def send() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
                raw.sendto(message, (SENDER, 0))

        self.receiver.run(send)

    @contextlib.contextmanager
    def connection(self, sender_cc: str, receiver_cc: str, *, read: bool = True) -> Iterator[Connection]:
        """A connection from the sender to the receiver, which reads all data.

        With read=False up to 400 segments stay in the socket, which then no process ever has.
        """
        listener = self.receiver.run(lambda: _tcp(receiver_cc))
        client = self.sender.run(lambda: _tcp(sender_cc))
        self._taken_up[:4] = bytes(4)
        with listener, client, self.sender.run(_tap) as tap:
            if not read:
                listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, UNREAD)
            listener.bind((RECEIVER, PORT))
            listener.listen(1)
            client.connect((RECEIVER, PORT))
            server, _ = listener.accept()
            with server:
                reader = threading.Thread(target=_read_all, args=(server,))
                if read:
                    reader.start()
                try:
                    yield Connection(client, server, tap)
                finally:
                    client.close()
                    if read:
                        reader.join(DEADLINE_S)


class Connection:
    """The sender's socket, and the segments that the packet socket captured."""

    def __init__(self, client: socket.socket, server: socket.socket, tap: socket.socket) -> None:
        self.client = client
        self._server = server
        self._tap = tap

    def send(self, segments: int) -> None:
        """Send full segments and wait until they are acknowledged."""
        self.client.sendall(bytes(segments * MSS))
        wait_until(self._unacknowledged_bytes, "all data is acknowledged", lambda count: count == 0)

    def widen_window(self) -> None:
        """Let the receiver's window grow to its limit, on a connection with read=False.

        While it grows, Linux acknowledges each segment (tcp_grow_window).
        """
        for _ in range(WIDENING_ROUNDS):
            self.send(WIDENING_SEGMENTS)
            self._server.recv(WIDENING_SEGMENTS * MSS, socket.MSG_WAITALL)

    def _unacknowledged_bytes(self) -> int:
        count: int = struct.unpack("i", fcntl.ioctl(self.client, termios.TIOCOUTQ, bytes(4)))[0]
        return count

    def next_sent(self) -> bytes:
        """The next captured segment with data, as an IP packet."""
        while True:
            frame, (_, _, kind, _, _) = self._tap.recvfrom(128)
            if (
                (segment := _segment(frame, kind == socket.PACKET_OUTGOING))
                and segment.out
                and segment.length
            ):
                return frame[ETH_HLEN:]

    def seen(self) -> list[Seen]:
        """Every captured segment in order, the handshake first. Can be called once."""
        dropped = struct.unpack("II", self._tap.getsockopt(263, 6, 8))[1]  # SOL_PACKET, PACKET_STATISTICS
        assert not dropped, f"the packet socket missed {dropped} packets"
        segments = []
        with contextlib.suppress(BlockingIOError):
            while True:
                frame, (_, _, kind, _, _) = self._tap.recvfrom(128, socket.MSG_DONTWAIT)
                if segment := _segment(frame, kind == socket.PACKET_OUTGOING):
                    segments.append(segment)
        first = next(one.seq for one in segments if one.out and one.flags & SYN) + 1
        return [
            Seen(s.out, s.flags, s.ecn, (s.seq - first) % 2**32, (s.ack - first) % 2**32, s.length)
            for s in segments
        ]


def replay(acks: list[Ack]) -> Iterator[tuple[Ack, Reference]]:
    """Each ACK with the reference sender's state after it (section 3.3)."""
    sender = Reference(0, 0)
    for ack in acks:
        una = sender.una + ack.acked
        sender.on_ack(una, ack.ece, una + ack.under_way)
        yield ack, sender


def data(trace: list[Seen]) -> list[Seen]:
    """The segments with data, in the order in which they left."""
    return [one for one in trace if one.out and one.length]


def acks(trace: list[Seen]) -> list[Seen]:
    """The ACKs that came back."""
    return [one for one in trace if not one.out and not one.flags & SYN]


def echoes(connection: Connection) -> tuple[list[bool], list[bool]]:
    """For each segment, whether it arrived with CE, and whether the ACK that covers it has ECE."""
    trace = connection.seen()
    echoed, una = [], 0
    for ack in acks(trace):
        echoed += [bool(ack.flags & ECE)] * ((ack.ack - una) // MSS)
        una = max(una, ack.ack)
    return [one.ecn == CE for one in data(trace)], echoed


@contextlib.contextmanager
def scripted_wire(folder: Path, *controls: str) -> Iterator[Wire]:
    """A wire on which these congestion controls are loaded. ``folder`` receives the compiled script."""
    with contextlib.ExitStack() as undo:
        for name in controls:
            undo.enter_context(loaded(name))
        wire = Wire(compiled_bpf("script.bpf.c", folder))
        undo.callback(wire.close)
        yield wire


def _tcp(congestion_control: str) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER)
    return made


def _tap() -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
    made.bind(("snd", ETH_P_ALL))
    return made


def _read_all(server: socket.socket) -> None:
    while server.recv(1 << 20):
        pass


def _segment(frame: bytes, out: bool) -> Seen | None:
    if frame[12:14] != ETH_P_IP.to_bytes(2, "big") or frame[23] != socket.IPPROTO_TCP:
        return None
    at = 14 + (frame[14] & 15) * 4
    total = int.from_bytes(frame[16:18], "big")
    seq, ack, offset, flags = struct.unpack_from("!IIBB", frame, at + 4)
    return Seen(out, flags, frame[15] & ECN_MASK, seq, ack, total - (at - 14) - (offset >> 4) * 4)
