"""Super-packets: one packet in the kernel that becomes several segments on the wire."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from libbpf_cffi import libbpf
from openflow_ext.switch.dataplane.interface import PortSettings
from tests.support.data_plane.bench import BRIDGE, PORT, Bench, reverse
from tests.support.data_plane.packets import Segment

pytestmark = pytest.mark.beside_others

LOCAL = Segment(src="fd00::1", dst="fd00::2")
"""An IPv6 flow is in the map other_flows."""
SEGMENTS, SEGMENT_BYTES = 6, 500
PAYLOAD = bytes(SEGMENTS * SEGMENT_BYTES)
_SK_BUFF = struct.Struct("=164xI8xI12x")
"""struct __sk_buff: gso_segs and gso_size; the fields before, between and behind them are 0."""


def run(bench: Bench, program: str, segment: Segment, gso_segs: int, gso_size: int) -> None:
    libbpf.run(bench.plane.program(program), segment.pack(), _SK_BUFF.pack(gso_segs, gso_size))


@pytest.mark.parametrize(
    ("gso_segs", "gso_size", "segment_bytes"),
    [
        (SEGMENTS, SEGMENT_BYTES, SEGMENT_BYTES),
        (0, SEGMENT_BYTES, SEGMENT_BYTES),
        (0, 2 * len(PAYLOAD), len(PAYLOAD)),
        (0, 0, len(PAYLOAD)),
    ],
    ids=["counted", "not counted", "one segment", "no super-packet"],
)
def test_the_largest_segment_of_a_flow_is_one_of_the_wire(
    bench: Bench, gso_segs: int, gso_size: int, segment_bytes: int
) -> None:
    """A tap device or a packet socket states the size of the segments and leaves their number 0."""
    bench.handshake(LOCAL)
    run(bench, "weir_egress", replace(reverse(LOCAL), payload=PAYLOAD), gso_segs, gso_size)
    [(_, flow)] = bench.plane.pinned.maps["other_flows"].items()
    assert flow.max_payload == segment_bytes


@pytest.mark.parametrize(
    ("gso_segs", "payload", "packets"), [(0, PAYLOAD, SEGMENTS), (3, PAYLOAD, 3), (0, b"", 1)]
)
def test_a_super_packet_counts_as_its_segments(
    bench: Bench, gso_segs: int, payload: bytes, packets: int
) -> None:
    bench.handshake(LOCAL)
    seen = bench.counters.acks_seen
    run(bench, "weir_ingress_tc", replace(LOCAL, payload=payload), gso_segs, SEGMENT_BYTES)
    assert bench.counters.acks_seen == seen + packets


def test_a_super_packet_is_clamped_and_marked_as_its_segments(bench: Bench) -> None:
    local = Segment()
    bench.handshake(local)
    bench.clamp_all_to(SEGMENT_BYTES)
    bench.configure(mark_mode=1, mark_min_pkts=1)
    with bench.changed_state() as state:
        state.queue_pkts = 2
    run(bench, "weir_ingress_tc", replace(local, payload=PAYLOAD), SEGMENTS, SEGMENT_BYTES)
    [(_, entry)] = bench.plane.rules(BRIDGE)
    assert (entry.packets, entry.clamped, bench.counters.clamped) == (SEGMENTS, SEGMENTS, SEGMENTS)
    frame = bytearray(replace(reverse(local), payload=PAYLOAD).pack())
    frame[15] |= 2  # ECT(0)
    libbpf.run(bench.plane.program("weir_egress"), bytes(frame), _SK_BUFF.pack(SEGMENTS, SEGMENT_BYTES))
    assert bench.counters.marked == SEGMENTS


def test_a_super_packet_is_unscaled_or_observed_as_its_segments(bench: Bench) -> None:
    local = Segment()
    run(bench, "weir_ingress_tc", replace(local, payload=PAYLOAD), SEGMENTS, SEGMENT_BYTES)
    assert bench.counters.unscaled == SEGMENTS
    bench.handshake(local)
    bench.clamp_all_to(SEGMENT_BYTES)
    bench.plane.configure(PORT, PortSettings(), 100_000_000, observes=True)
    run(bench, "weir_ingress_tc", replace(local, payload=PAYLOAD), SEGMENTS, SEGMENT_BYTES)
    [(_, entry)] = bench.plane.rules(BRIDGE)
    assert (entry.clamped, bench.counters.clamped) == (SEGMENTS, SEGMENTS)
