"""CE at egress: the step, the ramp, packets that are never marked, the checksum of the IPv4 header."""

from __future__ import annotations

import errno

import pytest

from libbpf_cffi import libbpf
from libbpf_cffi.libbpf import BpfError
from tests.support.data_plane.bench import Bench
from tests.support.data_plane.packets import Segment, checksum

pytestmark = pytest.mark.beside_others

ECT0, ECT1, CE, NOT_ECT = 2, 1, 3, 0
V4, V6 = Segment(), Segment(src="fd00::1", dst="fd00::2")
STEP, RAMP = 1, 2
TEST_CHECKSUM_COMPLETE = 1 << 2
"""BPF_F_TEST_SKB_CHECKSUM_COMPLETE (Linux 6.17): the run fails unless the sum follows each change."""


def with_queue(bench: Bench, pkts: int) -> None:
    """Set the length of the port's queue, as the tracepoints would."""
    with bench.changed_state() as state:
        state.queue_pkts = pkts


def with_ecn(segment: Segment, ecn: int) -> bytes:
    frame = bytearray(segment.pack())
    if segment is V4:
        frame[15] = ecn
        frame[24:26] = bytes(2)
        frame[24:26] = checksum(bytes(frame[14:34])).to_bytes(2)
    else:
        frame[15] |= ecn << 4
    return bytes(frame)


def ecn_of(frame: bytes, segment: Segment) -> int:
    return frame[15] & 3 if segment is V4 else frame[15] >> 4 & 3


@pytest.mark.parametrize("segment", [V4, V6], ids=["v4", "v6"])
@pytest.mark.parametrize(("ecn", "after"), [(ECT0, CE), (ECT1, CE), (CE, CE), (NOT_ECT, NOT_ECT)])
def test_step_marks_ecn_capable_packets_above_k(bench: Bench, segment: Segment, ecn: int, after: int) -> None:
    """DCTCP, section 3.1: an arriving packet is marked if the queue is longer than K."""
    bench.configure(mark_mode=STEP, mark_min_pkts=20)
    with_queue(bench, 21)
    frame = with_ecn(segment, ecn)

    out = bench.egress_raw(frame)

    assert ecn_of(out, segment) == after
    if segment is V4:
        assert checksum(out[14:34]) == 0
    assert bench.counters.marked == (after != ecn)


def test_step_marks_nothing_in_a_queue_of_k(bench: Bench) -> None:
    bench.configure(mark_mode=STEP, mark_min_pkts=20)
    with_queue(bench, 20)
    assert bench.egress_raw(with_ecn(V4, ECT0)) == with_ecn(V4, ECT0)


@pytest.mark.parametrize(
    ("queue", "share"), [(10, 0.0), (20, 0.0), (40, 0.25), (60, 0.5), (100, 1.0), (200, 1.0)]
)
def test_ramp_marks_in_proportion_to_the_queue(bench: Bench, queue: int, share: float) -> None:
    """DCUDP: from th_min (20) to th_max (100)."""
    bench.configure(mark_mode=RAMP, mark_min_pkts=20, mark_max_pkts=100)
    with_queue(bench, queue)

    for _ in range(2000):
        bench.egress_raw(with_ecn(V4, ECT0))

    assert bench.counters.marked == pytest.approx(2000 * share, abs=120 if 0 < share < 1 else 0)


def test_packets_of_any_transport_are_marked(bench: Bench) -> None:
    bench.configure(mark_mode=STEP, mark_min_pkts=1)
    with_queue(bench, 2)
    udp = bytearray(with_ecn(V4, ECT0))
    udp[23] = 17

    assert bench.egress_raw(bytes(udp))[15] & 3 == CE


@pytest.mark.parametrize("segment", [V4, V6], ids=["v4", "v6"])
def test_the_sum_of_the_whole_packet_follows_a_mark(bench: Bench, segment: Segment) -> None:
    """As a NIC hands over a packet whose bytes it has summed up (CHECKSUM_COMPLETE)."""
    bench.configure(mark_mode=STEP, mark_min_pkts=20)
    with_queue(bench, 21)
    egress, frame = bench.plane.program("weir_egress"), with_ecn(segment, ECT0)

    try:
        _, out = libbpf.run(egress, frame, flags=TEST_CHECKSUM_COMPLETE)
    except BpfError as error:
        if error.errno == errno.EINVAL:
            pytest.skip("the kernel has no BPF_F_TEST_SKB_CHECKSUM_COMPLETE")
        raise

    assert ecn_of(out, segment) == CE
