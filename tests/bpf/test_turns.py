"""Active senders on a port with turns of 268 ms, or of 12 ms while the queue is empty."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings
from tests.support.data_plane.bench import PORT, Bench, reverse
from tests.support.data_plane.packets import Segment

pytestmark = pytest.mark.beside_others

BDP_BYTES, FLOWS = 750, 20
STEPS, STEP_S = 5, 0.03
"""Each longer than a tick of the clock and than the round trips; all of them shorter than a turn."""


@pytest.fixture
def bench(bench: Bench) -> Bench:
    """An SCCP port of 1 Mbit/s with flows that have all sent."""
    bench.plane.configure(PORT, PortSettings(common_rtt_us=6000), 1_000_000, 15_000)
    bench.count_by_flags()
    for number in range(FLOWS):
        bench.handshake(flow(number))
    return bench


def flow(number: int) -> Segment:
    return Segment(src_port=1 + number)


def go_on(bench: Bench, flows: int) -> int:
    """Let some flows continue to send. Returns the number of flows among which the port is shared."""
    frames = [replace(reverse(flow(number)), payload=b"x").pack() for number in range(flows)]
    for _ in range(STEPS):
        time.sleep(STEP_S)
        for frame in frames:
            bench.egress_raw(frame)
    return BDP_BYTES // bench.counters.fair_share_bytes


def test_stopped_sender_shares_while_the_queue_may_hold_its_segments(bench: Bench) -> None:
    bench.set_queue_bytes(1514)
    assert go_on(bench, FLOWS) == FLOWS
    assert go_on(bench, 1) == FLOWS
    bench.set_queue_bytes(0)
    assert go_on(bench, 1) == 1


@pytest.mark.parametrize("flows", [1, 3, FLOWS])
def test_only_active_senders_share_while_the_queue_is_empty(bench: Bench, flows: int) -> None:
    bench.set_queue_bytes(1514)
    assert go_on(bench, FLOWS) == FLOWS
    bench.set_queue_bytes(0)
    assert go_on(bench, flows) == flows


def test_resumed_flow_shares_at_once(bench: Bench) -> None:
    assert go_on(bench, 1) == 1
    bench.set_queue_bytes(1514)
    bench.egress(replace(reverse(flow(7)), payload=b"x"))
    assert BDP_BYTES // bench.counters.fair_share_bytes == 2


def test_no_flow_is_an_active_sender_after_two_silent_turns(bench: Bench) -> None:
    assert go_on(bench, 1) == 1
    time.sleep(2 * 0.269)
    assert bench.counters.fair_share_bytes == BDP_BYTES
    bench.egress(replace(reverse(flow(7)), payload=b"x"))
    assert BDP_BYTES // bench.counters.fair_share_bytes == 1
