"""A data plane with one port: number 1, on which BPF_PROG_TEST_RUN puts packets."""

from __future__ import annotations

import contextlib
import ipaddress
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from libbpf_cffi import libbpf
from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from openflow_ext.switch.dataplane.rules import CountOp, Rule, TcpMatch, WindowOp
from tests.support.data_plane.packets import ACK, SYN, Offer, Segment
from weir_base.port_counters import PortCountersRecord

PORT, BRIDGE, OFPORT = 1, 3, 7
_HELD_TURN_SHIFT = 62
"""A turn of 146 years."""


def clear_turn(state: Any, turn: int) -> None:
    """No flow has sent in an even (0) or odd (1) turn of a port's state."""
    for count in (
        state.sent_in_turn,
        state.weight_in_turn,
        state.full_in_turn,
        state.little_in_turn,
        state.host_most_in_turn,
    ):
        count[turn] = 0


class Bench:
    """Runs the programs on segments.

    The local host sends into the port; the remote host answers through its egress.
    """

    def __init__(self, plane: KernelDataPlane) -> None:
        self.plane = plane
        self._ingress = plane.program("weir_ingress")
        self._ingress_tc = plane.program("weir_ingress_tc")
        self._egress = plane.program("weir_egress")

    def ingress(self, segment: Segment) -> bytes:
        return libbpf.run(self._ingress, packet=segment.pack())[1]

    def run(self, program: str, frame: bytes) -> bytes:
        return libbpf.run(self.plane.program(program), packet=frame)[1]

    def egress(self, segment: Segment) -> bytes:
        return self.egress_raw(segment.pack())

    def egress_raw(self, frame: bytes) -> bytes:
        return libbpf.run(self._egress, packet=frame)[1]

    def ingress_tc(self, segment: Segment) -> bytes:
        return libbpf.run(self._ingress_tc, packet=segment.pack())[1]

    def opening(self, local: Segment, ours: Offer | None = None, theirs: Offer | None = None) -> None:
        """The local host opens the connection: its SYN enters by the port, the SYN-ACK leaves by it."""
        self.ingress(syn(local, ours))
        self.egress(replace(syn(reverse(local), theirs), flags=SYN | ACK, ack=local.seq))

    def handshake(self, local: Segment, ours: Offer | None = None, theirs: Offer | None = None) -> None:
        """As opening(), and the local host acknowledges. Its next segment is ``local``."""
        self.opening(local, ours, theirs)
        self.ingress(replace(local, flags=ACK, options=b"", payload=b""))

    def handshake_in(self, local: Segment, theirs: Offer | None = None, ours: Offer | None = None) -> None:
        """The remote host opens the connection: its SYN leaves by the port."""
        self.egress(syn(reverse(local), theirs))
        self.ingress(replace(syn(local, ours), flags=SYN | ACK, ack=reverse(local).seq))
        self.egress(replace(reverse(local), flags=ACK, options=b"", payload=b""))

    def configure(self, **settings: Any) -> None:
        self.plane.configure(PORT, PortSettings(**settings), 100_000_000)

    def put(self, rule: Rule) -> None:
        self.plane.put(BRIDGE, rule)

    def clamp_all_to(self, window_bytes: int) -> None:
        self.put(Rule(0, 1, 0, TcpMatch(), WindowOp.SET_WINDOW, window_bytes))

    @contextlib.contextmanager
    def unclamped(self) -> Iterator[None]:
        """Remove all rules, and put them back at the end."""
        rules = [rule for rule, _ in self.plane.rules(BRIDGE)]
        for rule in rules:
            self.plane.remove(BRIDGE, rule)
        try:
            yield
        finally:
            for rule in rules:
                self.put(rule)

    def count_by_flags(self) -> None:
        """The rows of SCCP's Table I that count."""
        for flags, op in (
            (0x02, CountOp.INCREMENT_NI),
            (0x01, CountOp.DECREMENT_NI),
            (0x04, CountOp.DECREMENT_NI),
        ):
            for version in (4, 6):
                match = TcpMatch(ip_version=version, flags=flags, flags_mask=flags)
                self.put(Rule(1, 100, 0, match, count_op=op))

    def begin_anew(self, settings: PortSettings, capacity_bps: int, buffer_bytes: int) -> None:
        """Give the port its initial state, without flows and with other settings. The rules stay."""
        self.plane.detach(PORT)
        self.plane.enter_port(PORT, BRIDGE, OFPORT)
        self.plane.configure(PORT, settings, capacity_bps, buffer_bytes)

    @contextlib.contextmanager
    def changed_state(self) -> Iterator[Any]:
        """The port's ``struct weir_port_state``, which is written back with what the test changes in it."""
        states = self.plane.pinned.maps["port_states"]
        key, _ = self.plane.pinned.find_port(PORT)  # on a slow machine, reading all slots outlasts a turn
        state = states.get(key)
        yield state
        states.put(key, state)

    def hold_turns(self) -> None:
        """The next payload begins a turn. From then on a turn ends only when the test ends it."""
        key, port = self.plane.pinned.find_port(PORT)
        port.turn_shift, port.short_turn_ns = _HELD_TURN_SHIFT, 1 << _HELD_TURN_SHIFT
        self.plane.pinned.maps["ports"].put(key, port)
        self.end_turn()

    def skip_turn(self) -> None:
        """A turn begins, without waiting for the end of the last one."""
        with self.changed_state() as state:
            state.turn += 1
            clear_turn(state, state.turn % 2)

    def end_turn(self) -> None:
        """One held turn passes, so that the next payload begins another one."""
        with self.changed_state() as state:
            state.turn_start_ns = (time.monotonic_ns() - (3 << _HELD_TURN_SHIFT - 1)) % (1 << 64)  # 1.5 turns

    def set_queue_bytes(self, nbytes: int) -> None:
        """Set the length of the port's queue, as the tracepoints would."""
        with self.changed_state() as state:
            state.queue_bytes = nbytes

    @property
    def counters(self) -> PortCountersRecord:
        return self.plane.counters(PORT)


def syn(segment: Segment, offer: Offer | None = None) -> Segment:
    """The SYN before a segment."""
    return replace(segment, flags=SYN, seq=segment.seq - 1, payload=b"", options=(offer or Offer()).pack())


def send(bench: Bench, flow: Segment, segments: int = 1) -> None:
    """The remote host sends full segments to the local one."""
    for _ in range(segments):
        bench.egress(replace(reverse(flow), payload=b"x" * 1448))


def reverse(segment: Segment) -> Segment:
    """The answer of the other side, which has received all before the segment."""
    return replace(
        segment,
        seq=segment.ack,
        ack=segment.seq,
        src=segment.dst,
        dst=segment.src,
        src_port=segment.dst_port,
        dst_port=segment.src_port,
    )


def reflex_entry(segment: Segment, window_bytes: int = 4 * 1448) -> Rule:
    """A MOD_WINDOW entry on the 5-tuple of a segment, as a reflex entry is."""
    match = TcpMatch(
        src=ipaddress.IPv4Network(segment.src),
        dst=ipaddress.IPv4Network(segment.dst),
        src_port=segment.src_port,
        dst_port=segment.dst_port,
    )
    return Rule(0, 65535, 9, match, WindowOp.MOD_WINDOW, window_bytes, alpha=1)
