"""The share of active senders: waiting flows take no share, and a new sender counts at once."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from tests.support.data_plane.bench import PORT, Bench, reverse
from tests.support.data_plane.packets import ACK, FIN, PSH, SYN, Offer, Segment, window_of

pytestmark = pytest.mark.beside_others

LOCAL = Segment()
FLOWS = 6
BDP_BYTES = 1_000_000
CAPACITY_BPS = 800_000_000
BUFFER_BYTES = 5_000_000
PAYLOAD = 100
ALONE_BYTES = BDP_BYTES + BUFFER_BYTES // 16
TURN_S = 0.135
"""2^27 ns: 6 MB take 60 ms; long enough for a busy machine to run a test's segments in one."""


def flow(number: int) -> Segment:
    return replace(LOCAL, src_port=1 + number)


def configure(bench: Bench) -> None:
    settings = PortSettings(common_rtt_us=8 * BDP_BYTES * 1_000_000 // CAPACITY_BPS)
    bench.plane.configure(PORT, settings, CAPACITY_BPS, BUFFER_BYTES)


def begin(bench: Bench) -> None:
    """Open flows with window scale 7."""
    bench.count_by_flags()
    share = TcpMatch(ip_version=4, flags=0, flags_mask=SYN)
    bench.put(Rule(1, 100, 0, share, window_op=WindowOp.FAIR_SHARE))
    for number in range(FLOWS):
        bench.handshake_in(flow(number), Offer(scale=7), Offer(scale=7))
    assert bench.counters.n_i == FLOWS


@pytest.fixture
def shared(bench: Bench) -> Bench:
    """A port with open flows, none of which has sent in the last two turns."""
    configure(bench)
    begin(bench)
    time.sleep(2.1 * TURN_S)
    return bench


def send(bench: Bench, number: int) -> None:
    bench.egress(replace(reverse(flow(number)), payload=bytes(PAYLOAD)))


def window_bytes(bench: Bench, number: int) -> int:
    return window_of(bench.ingress(flow(number)), flow(number)) << 7


def test_waiting_flows_take_no_share(shared: Bench) -> None:
    assert shared.counters.fair_share_bytes == BDP_BYTES
    send(shared, 0)
    assert shared.counters.fair_share_bytes == BDP_BYTES
    assert window_bytes(shared, 0) == pytest.approx(ALONE_BYTES, rel=0.01)


def test_flows_from_before_the_configuration_take_no_share(bench: Bench) -> None:
    begin(bench)
    configure(bench)
    time.sleep(2.1 * TURN_S)
    send(bench, 0)
    assert window_bytes(bench, 0) == pytest.approx(BDP_BYTES, rel=0.01), (
        "without segment fitting there is no headroom"
    )


def test_round_starts_with_the_share_of_all_except_for_the_first_flow(shared: Bench) -> None:
    asked = replace(flow(0), payload=b"?")
    of_a_round = window_of(shared.ingress(asked), asked) << 7
    assert of_a_round == pytest.approx(BDP_BYTES / FLOWS, rel=0.02), "the share of the next round"
    windows, took_s = begin_all(shared)
    for _ in range(20):
        if took_s < TURN_S / 10:
            break
        time.sleep(2.1 * TURN_S)  # the machine was too busy
        windows, took_s = begin_all(shared)
    assert windows == pytest.approx([ALONE_BYTES] + [BDP_BYTES / FLOWS] * (FLOWS - 1), rel=0.02)
    assert shared.counters.fair_share_bytes == BDP_BYTES // FLOWS


def test_the_answer_to_a_request_belongs_to_the_next_round(shared: Bench) -> None:
    """Also if the flow's last payload was a moment ago. Else the first of a crowd would get too much."""
    send(shared, 0)
    assert window_bytes(shared, 0) == pytest.approx(ALONE_BYTES, rel=0.01)
    asked = replace(flow(0), payload=b"?", ack=flow(0).ack + PAYLOAD)
    assert window_of(shared.ingress(asked), asked) << 7 == pytest.approx(BDP_BYTES / FLOWS, rel=0.02)
    with shared.changed_state() as state:
        state.next_growth_ns = (1 << 63) - 1
    send(shared, 0)
    assert window_bytes(shared, 0) == pytest.approx(BDP_BYTES / FLOWS, rel=0.02)
    with shared.changed_state() as state:
        state.next_growth_ns = 0
    assert window_bytes(shared, 0) == pytest.approx(ALONE_BYTES, rel=0.01)


def test_the_end_of_an_answer_has_the_share_of_the_next_round(shared: Bench) -> None:
    """A pushed segment shorter than others ends it. Linux would ignore a lower window in the next request."""
    whole = reverse(flow(0))
    shared.egress(replace(whole, payload=bytes(PAYLOAD)))
    seen = replace(flow(0), ack=flow(0).ack + PAYLOAD)
    assert window_of(shared.ingress(seen), seen) << 7 == pytest.approx(ALONE_BYTES, rel=0.01)
    last = replace(whole, seq=whole.seq + PAYLOAD, payload=bytes(PAYLOAD - 1), flags=ACK | PSH)
    shared.egress(last)
    assert window_of(shared.ingress(seen), seen) << 7 == pytest.approx(ALONE_BYTES, rel=0.01), "not yet all"
    every = replace(seen, ack=seen.ack + PAYLOAD - 1)
    assert window_of(shared.ingress(every), every) << 7 == pytest.approx(BDP_BYTES / FLOWS, rel=0.02)
    shared.egress(replace(last, seq=last.seq + PAYLOAD - 1, payload=bytes(PAYLOAD)))
    assert window_of(shared.ingress(every), every) << 7 == pytest.approx(ALONE_BYTES, rel=0.01)


def test_an_ack_with_payload_is_no_request_while_the_flow_sends(shared: Bench) -> None:
    send(shared, 0)
    ack = replace(flow(0), payload=b"?", ack=flow(0).ack + PAYLOAD - 1)
    assert window_of(shared.ingress(ack), ack) << 7 == pytest.approx(ALONE_BYTES, rel=0.01)


def test_next_flow_gets_its_share_after_twice_the_drain_time(shared: Bench) -> None:
    send(shared, 0)
    assert window_bytes(shared, 0) == pytest.approx(ALONE_BYTES, rel=0.01)
    send(shared, 1)
    time.sleep(2.1 * BDP_BYTES * 8 / CAPACITY_BPS)
    assert window_bytes(shared, 1) == pytest.approx(BDP_BYTES / 2, rel=0.01)


def begin_all(bench: Bench) -> tuple[list[int], float]:
    """Each flow sends and is acknowledged, one after the other. Returns the windows and the time in s."""
    began_s = time.monotonic()
    windows = []
    for number in range(FLOWS):
        send(bench, number)
        windows.append(window_bytes(bench, number))
    return windows, time.monotonic() - began_s


def test_one_active_sender_has_the_whole_bdp_after_two_turns(shared: Bench) -> None:
    for number in range(FLOWS):
        send(shared, number)
    until = time.monotonic() + 2.1 * TURN_S
    while time.monotonic() < until:
        send(shared, 0)
        time.sleep(TURN_S / 10)
    assert window_bytes(shared, 0) == pytest.approx(ALONE_BYTES, rel=0.01)
    assert shared.counters.n_i == FLOWS


def test_turns_are_short_while_the_queue_is_empty(shared: Bench) -> None:
    """With an empty queue a turn lasts two RTTs of 10 ms."""
    for number in range(FLOWS):
        send(shared, number)
    for _ in range(5):
        time.sleep(0.025)
        send(shared, 0)
    assert window_bytes(shared, 0) == pytest.approx(ALONE_BYTES, rel=0.01)
    assert window_bytes(shared, 1) == pytest.approx(BDP_BYTES / FLOWS, rel=0.02), (
        "the share of the next round"
    )


def senders_of_this_turn(bench: Bench) -> int:
    with bench.changed_state() as state:
        return int(state.sent_in_turn[state.turn % 2])


def begin_turn(bench: Bench, queue_bytes: int) -> None:
    with bench.changed_state() as state:
        state.turn += 1
        state.turn_start_ns, state.queue_bytes = time.monotonic_ns(), queue_bytes
        state.sent_in_turn[0] = state.sent_in_turn[1] = 0


@pytest.mark.parametrize(("queue_bytes", "left"), [(0, 1), (BUFFER_BYTES // 2, FLOWS)])
def test_a_flow_that_ends_releases_its_share_while_the_queue_is_short(
    shared: Bench, queue_bytes: int, left: int
) -> None:
    """Beside a long queue its last segments may still wait, and the turn decides."""
    for _ in range(20):
        began_s = time.monotonic()
        begin_turn(shared, queue_bytes)
        for number in range(FLOWS):
            send(shared, number)
        for number in range(1, FLOWS):
            shared.egress(replace(reverse(flow(number)), flags=FIN | ACK))
        after_ends = senders_of_this_turn(shared)
        send(shared, 1)
        if time.monotonic() - began_s < TURN_S / 2:
            break
    assert after_ends == left
    assert senders_of_this_turn(shared) == min(left + 1, FLOWS), "a flow that sends on counts again"


def test_ended_flow_takes_no_share(shared: Bench) -> None:
    for number in range(FLOWS):
        send(shared, number)
    for number in range(1, FLOWS):
        shared.ingress(replace(flow(number), flags=0x14))
    assert shared.counters.fair_share_bytes == BDP_BYTES
