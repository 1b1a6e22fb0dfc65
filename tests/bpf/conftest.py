"""A data plane of the tests' own with one port: number 1, where BPF_PROG_TEST_RUN puts packets."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from openflow_ext.switch import libbpf
from openflow_ext.switch.dataplane import HostSettings, PortCounters, PortSettings
from openflow_ext.switch.kernel import KernelDataPlane
from openflow_ext.switch.rules import CountOp, Rule, TcpMatch, WindowOp
from tests.bpf.packets import ACK, SYN, Offer, Segment

PORT, BRIDGE, OFPORT = 1, 3, 7


class Bench:
    """Segments in, verdicts out. `local` sends into the port, `remote` answers through its egress."""

    def __init__(self, plane: KernelDataPlane) -> None:
        self.plane = plane
        self._ingress = plane.program("weir_ingress")
        self._ingress_tc = plane.program("weir_ingress_tc")
        self._egress = plane.program("weir_egress")

    def ingress(self, segment: Segment) -> bytes:
        return libbpf.run(self._ingress, packet=segment.pack())[1]

    def egress(self, segment: Segment) -> bytes:
        return self.egress_raw(segment.pack())

    def egress_raw(self, frame: bytes) -> bytes:
        return libbpf.run(self._egress, packet=frame)[1]

    def ingress_tc(self, segment: Segment) -> bytes:
        return libbpf.run(self._ingress_tc, packet=segment.pack())[1]

    def handshake(self, local: Segment, ours: Offer | None = None, theirs: Offer | None = None) -> None:
        """The local host opens: SYN in, SYN-ACK out."""
        self.ingress(replace(local, flags=SYN, options=(ours or Offer()).pack()))
        self.egress(replace(reverse(local), flags=SYN | ACK, options=(theirs or Offer()).pack()))

    def configure(self, **settings: Any) -> None:
        self.plane.configure(PORT, PortSettings(**settings), 100_000_000)

    def put(self, rule: Rule) -> None:
        self.plane.put(BRIDGE, rule)

    def clamp_all_to(self, window_bytes: int) -> None:
        self.put(Rule(0, 1, 0, TcpMatch(), WindowOp.SET_WINDOW, window_bytes))

    @contextlib.contextmanager
    def unclamped(self) -> Iterator[None]:
        """Meanwhile no rule is there."""
        rules = [rule for rule, _ in self.plane.rules(BRIDGE)]
        for rule in rules:
            self.plane.remove(BRIDGE, rule)
        try:
            yield
        finally:
            for rule in rules:
                self.put(rule)

    def count_by_flags(self) -> None:
        """SCCP's Table I at the egress."""
        for flags, op in (
            (0x02, CountOp.INCREMENT_NI),
            (0x01, CountOp.DECREMENT_NI),
            (0x04, CountOp.DECREMENT_NI),
        ):
            for version in (4, 6):
                match = TcpMatch(ip_version=version, flags=flags, flags_mask=flags)
                self.put(Rule(1, 100, 0, match, count_op=op))

    def let_wait(self, nbytes: int) -> None:
        """So many bytes wait in the port's queue, as its programs are told."""
        states = self.plane._maps["port_states"]
        key, _ = self.plane._find_port(PORT)  # a walk over all places takes a slow machine more than a turn
        state = states.get(key)
        state.queue_bytes = nbytes
        states.put(key, state)

    @property
    def counters(self) -> PortCounters:
        return self.plane.counters(PORT)


def reverse(segment: Segment) -> Segment:
    return replace(
        segment,
        src=segment.dst,
        dst=segment.src,
        src_port=segment.dst_port,
        dst_port=segment.src_port,
    )


@pytest.fixture(scope="session")
def plane() -> Iterator[KernelDataPlane]:
    """One data plane for all tests that run programs: loading it takes the verifier a second."""
    plane = KernelDataPlane(f"weir-test-{os.getpid()}", max_flows=1000)
    try:
        yield plane
    finally:
        plane.destroy()


@pytest.fixture
def bench(plane: KernelDataPlane) -> Iterator[Bench]:
    """The plane with its one port as new; afterwards the port, its flows and rules are gone."""
    plane.enter_port(PORT, BRIDGE, OFPORT)
    plane.configure(PORT, PortSettings(), 100_000_000)
    try:
        yield Bench(plane)
    finally:
        plane.arm(PORT, BRIDGE, [])
        plane.detach(PORT)
        for rule, _ in plane.rules(BRIDGE):
            plane.remove(BRIDGE, rule)
        plane.configure_host(HostSettings())
        plane.reports()
