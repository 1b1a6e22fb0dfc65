"""The share of flows that send: those that wait hold nothing back, those that begin are taken in at once."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane import PortSettings
from openflow_ext.switch.rules import Rule, TcpMatch, WindowOp
from tests.bpf.conftest import PORT, Bench, reverse
from tests.bpf.packets import SYN, Offer, Segment, window_of

LOCAL = Segment()
FLOWS = 6
BDP_BYTES = 1_000_000
CAPACITY_BPS = 800_000_000
BUFFER_BYTES = 5_000_000
ALONE_BYTES = BDP_BYTES + BUFFER_BYTES // 16
TURN_S = 0.135
"""2^27 ns: 6 MB take 60 ms; long enough for a busy machine to run a test's segments in one."""


def flow(number: int) -> Segment:
    return replace(LOCAL, src_port=1 + number)


def configure(bench: Bench) -> None:
    settings = PortSettings(common_rtt_us=8 * BDP_BYTES * 1_000_000 // CAPACITY_BPS)
    bench.plane.configure(PORT, settings, CAPACITY_BPS, BUFFER_BYTES)


def begin(bench: Bench) -> None:
    """Some open flows of scale 7."""
    bench.count_by_flags()
    share = TcpMatch(ip_version=4, flags=0, flags_mask=SYN)
    bench.put(Rule(1, 100, 0, share, window_op=WindowOp.FAIR_SHARE))
    for number in range(FLOWS):
        bench.handshake(flow(number), Offer(scale=7), Offer(scale=7))
    assert bench.counters.n_i == FLOWS


@pytest.fixture
def shared(bench: Bench) -> Bench:
    """A port with open flows none of which has sent of late."""
    configure(bench)
    begin(bench)
    time.sleep(2.1 * TURN_S)
    return bench


def send(bench: Bench, number: int) -> None:
    bench.egress(replace(reverse(flow(number)), payload=bytes(100)))


def window_bytes(bench: Bench, number: int) -> int:
    return window_of(bench.ingress(flow(number)), flow(number)) << 7


def test_flows_that_wait_take_no_share(shared: Bench) -> None:
    assert shared.counters.fair_share_bytes == BDP_BYTES
    send(shared, 0)
    assert shared.counters.fair_share_bytes == BDP_BYTES
    assert window_bytes(shared, 0) == pytest.approx(ALONE_BYTES, rel=0.01)


def test_flows_counted_before_the_port_was_configured_take_none_either(bench: Bench) -> None:
    begin(bench)
    configure(bench)
    time.sleep(2.1 * TURN_S)
    send(bench, 0)
    assert window_bytes(bench, 0) == pytest.approx(BDP_BYTES, rel=0.01), "not fitted: no more"


def test_a_round_begins_with_the_share_of_all_but_for_the_first(shared: Bench) -> None:
    asked = replace(flow(0), payload=b"?")
    of_a_round = window_of(shared.ingress(asked), asked) << 7
    assert of_a_round == pytest.approx(BDP_BYTES / FLOWS, rel=0.02), "of a whole round to come"
    windows, took_s = begin_all(shared)
    for _ in range(20):
        if took_s < TURN_S / 10:
            break
        time.sleep(2.1 * TURN_S)  # the machine was too busy
        windows, took_s = begin_all(shared)
    assert windows == pytest.approx([ALONE_BYTES] + [BDP_BYTES / FLOWS] * (FLOWS - 1), rel=0.02)
    assert shared.counters.fair_share_bytes == BDP_BYTES // FLOWS


def test_the_next_has_its_share_when_the_link_has_had_time_twice(shared: Bench) -> None:
    send(shared, 0)
    assert window_bytes(shared, 0) == pytest.approx(ALONE_BYTES, rel=0.01)
    send(shared, 1)
    time.sleep(2.1 * BDP_BYTES * 8 / CAPACITY_BPS)
    assert window_bytes(shared, 1) == pytest.approx(BDP_BYTES / 2, rel=0.01)


def begin_all(bench: Bench) -> tuple[list[int], float]:
    """Each flow sends and is acknowledged, one after the other: the windows, and the seconds it took."""
    began_s = time.monotonic()
    windows = []
    for number in range(FLOWS):
        send(bench, number)
        windows.append(window_bytes(bench, number))
    return windows, time.monotonic() - began_s


def test_two_turns_later_the_one_that_goes_on_has_all(shared: Bench) -> None:
    for number in range(FLOWS):
        send(shared, number)
    until = time.monotonic() + 2.1 * TURN_S
    while time.monotonic() < until:
        send(shared, 0)
        time.sleep(TURN_S / 10)
    assert window_bytes(shared, 0) == pytest.approx(ALONE_BYTES, rel=0.01)
    assert shared.counters.n_i == FLOWS


def test_who_stopped_sending_while_the_queue_was_empty_waits_like_all_others(shared: Bench) -> None:
    """Round trips of 10 ms, of which a turn lasts two there."""
    for number in range(FLOWS):
        send(shared, number)
    for _ in range(5):
        time.sleep(0.025)
        send(shared, 0)
    assert window_bytes(shared, 0) == pytest.approx(ALONE_BYTES, rel=0.01)
    assert window_bytes(shared, 1) == pytest.approx(BDP_BYTES / FLOWS, rel=0.02), "of a round to come"


def test_a_flow_that_ends_shares_no_more(shared: Bench) -> None:
    for number in range(FLOWS):
        send(shared, number)
    for number in range(1, FLOWS):
        shared.ingress(replace(flow(number), flags=0x14))
    assert shared.counters.fair_share_bytes == BDP_BYTES
