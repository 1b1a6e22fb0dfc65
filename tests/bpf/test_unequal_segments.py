"""Flows of one port whose segments differ, because the port learnt of the crowd while it opened."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings, SweepTimes
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from tests.support.data_plane.bench import PORT, Bench, reverse, syn
from tests.support.data_plane.packets import ACK, RST, Offer, Segment, mss_of, timestamps, window_of

pytestmark = pytest.mark.beside_others

CAPACITY_BPS, QUEUE_BYTES, HEADERS, OPTIONS, SCALE = 100_000_000, 150_000, 86, 12, 7
LOCAL = Segment()
LARGE, SMALL = 1408, 384


@pytest.fixture
def port(bench: Bench) -> Bench:
    settings = PortSettings(common_rtt_us=600, corrects_allowance=True)
    bench.plane.configure(PORT, settings, CAPACITY_BPS, QUEUE_BYTES)
    bench.count_by_flags()
    bench.put(Rule(1, 50, 0, TcpMatch(flags=ACK, flags_mask=ACK), WindowOp.FAIR_SHARE))
    return bench


def flow(number: int) -> Segment:
    return replace(LOCAL, src_port=1 + number)


def open_flows(bench: Bench, flows: int) -> list[int]:
    """Open so many flows, and let each be an active sender in one held turn. The queue then holds one frame.

    Returns the segment of each: the port makes the segments of the later flows smaller.
    """
    sizes = []
    for number in range(flows):
        opening = syn(flow(number))
        sizes.append(mss_of(bench.ingress(opening), opening) - OPTIONS)
        bench.handshake(flow(number))
    bench.set_queue_bytes(1514)
    bench.hold_turns()
    for number, size in enumerate(sizes):
        bench.egress(answer(number, size))
    return sizes


def answer(number: int, segment_bytes: int) -> Segment:
    return replace(reverse(flow(number)), options=timestamps(1, 1), payload=bytes(segment_bytes))


def window_bytes(bench: Bench, number: int) -> int:
    """The window of two ACKs in a row. A flow may receive two segments once, when none else does."""
    sent = flow(number)
    windows = (window_of(bench.ingress(sent), sent) << SCALE for _ in range(10))
    return next(window for window, following in pairwise(windows) if window == following)


@pytest.mark.parametrize("flows", [80, 100, 120, 140])
def test_windows_of_unequal_segments_fit_into_the_queue(port: Bench, flows: int) -> None:
    sizes = open_flows(port, flows)
    assert min(sizes) < max(sizes) == LARGE
    segments = [max(1, window_bytes(port, number) // size) for number, size in enumerate(sizes)]
    held = sum(count * (size + HEADERS) for count, size in zip(segments, sizes, strict=True))
    assert held <= QUEUE_BYTES


def test_few_flows_have_a_segment_and_an_equal_part_of_the_rest(port: Bench) -> None:
    for number, size in enumerate([LARGE, SMALL]):
        port.handshake(flow(number), theirs=Offer(mss=size + OPTIONS))
        port.egress(answer(number, size))
    large, small = (window_bytes(port, number) for number in range(2))
    assert abs((large - LARGE) - (small - SMALL)) <= 2 * LARGE, "windows hold whole segments"


def test_small_segments_that_wait_for_acks_get_keep_alives_beside_large_ones(port: Bench) -> None:
    """Two segments of this flow would fit into its part of the queue, but two of the others do not."""
    sizes = open_flows(port, 120)
    last, size = 119, sizes[119]
    assert 2 * (size + HEADERS) < QUEUE_BYTES * 7 / 8 / 120
    acknowledges = replace(flow(last), ack=LOCAL.ack + size)
    port.ingress(replace(acknowledges, payload=b"?"))
    following = replace(answer(last, size), seq=answer(last, size).seq + size)
    assert len(port.egress(following)) < size, "a keep-alive follows"
    assert window_of(port.ingress(acknowledges), acknowledges) << SCALE == size


def segments_bytes(bench: Bench) -> int:
    with bench.changed_state() as state:
        return int(state.segments_bytes)


def test_the_sum_of_segments_follows_the_flows_of_n_i(port: Bench) -> None:
    for number, size in enumerate([LARGE, SMALL]):
        port.handshake(flow(number), theirs=Offer(mss=size + OPTIONS))
    assert segments_bytes(port) == LARGE + SMALL
    port.ingress(replace(flow(0), flags=RST | ACK))
    assert segments_bytes(port) == SMALL
    port.plane.sweep(SweepTimes(idle_s=1e-9))
    assert segments_bytes(port) == 0
    port.egress(answer(1, SMALL))
    assert segments_bytes(port) == SMALL, "it is no longer idle"


def test_a_flow_that_begins_anew_has_its_new_segment(port: Bench) -> None:
    port.handshake(flow(0))
    anew = replace(flow(0), seq=7777)
    port.handshake(anew, theirs=Offer(mss=SMALL + OPTIONS))
    assert (segments_bytes(port), port.counters.n_i) == (SMALL, 1)
