"""Who shares a port: those that send. A turn of 268 ms, or of 12 where the queue is empty."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane import PortSettings
from tests.bpf.conftest import PORT, Bench, reverse
from tests.bpf.packets import Segment

BDP_BYTES, FLOWS = 750, 20
STEPS, STEP_S = 5, 0.03
"""Each longer than a tick of the clock and than the round trips; all of them shorter than a turn."""


@pytest.fixture
def bench(bench: Bench) -> Bench:
    """A port of 1 Mbit/s under SCCP and flows of which each has sent."""
    bench.plane.configure(PORT, PortSettings(common_rtt_us=6000), 1_000_000, 15_000)
    bench.count_by_flags()
    for number in range(FLOWS):
        bench.handshake(flow(number))
    return bench


def flow(number: int) -> Segment:
    return Segment(src_port=1 + number)


def go_on(bench: Bench, flows: int) -> int:
    """So many flows go on sending; how many share the port then."""
    frames = [replace(reverse(flow(number)), payload=b"x").pack() for number in range(flows)]
    for _ in range(STEPS):
        time.sleep(STEP_S)
        for frame in frames:
            bench.egress_raw(frame)
    return BDP_BYTES // bench.counters.fair_share_bytes


def test_who_sends_no_more_shares_as_long_as_the_queue_may_hold_its_segments(bench: Bench) -> None:
    bench.let_wait(1514)
    assert go_on(bench, FLOWS) == FLOWS
    assert go_on(bench, 1) == FLOWS
    bench.let_wait(0)
    assert go_on(bench, 1) == 1


@pytest.mark.parametrize("flows", [1, 3, FLOWS])
def test_where_the_queue_is_empty_all_that_go_on_share(bench: Bench, flows: int) -> None:
    bench.let_wait(1514)
    assert go_on(bench, FLOWS) == FLOWS
    bench.let_wait(0)
    assert go_on(bench, flows) == flows


def test_one_that_comes_back_shares_at_once(bench: Bench) -> None:
    assert go_on(bench, 1) == 1
    bench.let_wait(1514)
    bench.egress(replace(reverse(flow(7)), payload=b"x"))
    assert BDP_BYTES // bench.counters.fair_share_bytes == 2


def test_after_a_long_silence_nobody_is_known_to_send(bench: Bench) -> None:
    assert go_on(bench, 1) == 1
    time.sleep(2 * 0.269)
    assert bench.counters.fair_share_bytes == BDP_BYTES
    bench.egress(replace(reverse(flow(7)), payload=b"x"))
    assert BDP_BYTES // bench.counters.fair_share_bytes == 1
