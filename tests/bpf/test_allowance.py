"""The allowance of a port of 1 Mbit/s that corrects it, and of one that does not."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from tests.support.data_plane.bench import BRIDGE, PORT, Bench, reverse
from tests.support.data_plane.packets import Offer, Segment, timestamps, window_of

pytestmark = pytest.mark.beside_others

CAPACITY_BPS, BUFFER_BYTES, COMMON_RTT_US = 1_000_000, 150_000, 24_000
BDP_BYTES = 3_000
SETTINGS = PortSettings(common_rtt_us=COMMON_RTT_US, corrects_allowance=True)
FITS_BYTES = BUFFER_BYTES * 7 // 8
FRAME_S = 0.012
"""The link sends a frame of 1500 bytes in this time."""
PAUSE_S = 0.03
MSS, HEADERS = 1448, 86
FLOW = Segment(src_port=1)
PAYLOAD = 1446
DATA = replace(reverse(FLOW), payload=b"x" * PAYLOAD)


def fits(buffer_bytes: int) -> int:
    """The payload that fits into a queue."""
    return buffer_bytes * 7 // 8 * PAYLOAD // (PAYLOAD + HEADERS)


@pytest.fixture(params=[True])
def bench(bench: Bench, request: pytest.FixtureRequest) -> Bench:
    settings = replace(SETTINGS, corrects_allowance=request.param)
    bench.plane.configure(PORT, settings, CAPACITY_BPS, BUFFER_BYTES)
    bench.count_by_flags()
    bench.put(Rule(1, 50, 0, TcpMatch(flags=0x10, flags_mask=0x10), WindowOp.FAIR_SHARE))
    bench.handshake(FLOW)
    bench.egress(DATA)
    return bench


def allowance(bench: Bench) -> int:
    """The port's allowance: the flow is the only active sender."""
    return bench.counters.fair_share_bytes


def opened(bench: Bench, flow: Segment, rtt_s: float) -> int:
    """Open a connection with this RTT. Returns the allowance afterwards."""
    bench.opening(flow)
    time.sleep(rtt_s)
    bench.ingress(flow)
    return bench.counters.allowance_bytes


REQUEST = replace(FLOW, payload=b"?", ack=DATA.seq + PAYLOAD)


def windows(bench: Bench, rounds: int, ack: Segment = FLOW) -> None:
    """The flow sends a window, stops until it is acknowledged with ``ack``, and pauses."""
    for _ in range(rounds):
        time.sleep(PAUSE_S)
        bench.ingress(ack)
        for _ in range(allowance(bench) // 1500 + 1):
            bench.egress(DATA)


def let_turns_pass(bench: Bench) -> None:
    """No flow has sent in the last turns."""
    with bench.changed_state() as state:
        state.turn += 3


def test_the_allowance_begins_at_capacity_times_common_rtt(bench: Bench) -> None:
    assert allowance(bench) == bench.counters.allowance_bytes == BDP_BYTES
    assert bench.counters.allowance_limit == "handshake"


@pytest.mark.parametrize(
    ("capacity_bps", "common_rtt_us"),
    [(10_000_000_000, 3_435_974), (2**64 - 1, 2**32 - 1)],
    ids=["4 GB and 204 bytes", "the largest settings"],
)
def test_capacity_times_common_rtt_is_at_most_4_gb(
    bench: Bench, capacity_bps: int, common_rtt_us: int
) -> None:
    bench.begin_anew(replace(SETTINGS, common_rtt_us=common_rtt_us), capacity_bps, BUFFER_BYTES)
    bench.handshake(replace(FLOW, src_port=2))
    assert bench.counters.allowance_bytes == 2**32 - 1


def test_it_begins_with_the_shortest_rtt_of_the_handshakes(bench: Bench) -> None:
    bench.begin_anew(SETTINGS, CAPACITY_BPS, BUFFER_BYTES)
    slow, slower, quick = (replace(FLOW, src_port=number) for number in (2, 3, 4))
    begun = [opened(bench, flow, rtt_s) for flow, rtt_s in ((slow, 0.1), (slower, 0.2), (quick, 0))]
    first = 0.1 * CAPACITY_BPS / 8
    assert begun == [pytest.approx(first, rel=0.3), begun[0], BDP_BYTES]


def test_a_handshake_promises_at_most_what_fits_into_the_queue(bench: Bench) -> None:
    small_queue = 8_000
    bench.begin_anew(SETTINGS, CAPACITY_BPS, small_queue)
    assert opened(bench, FLOW, 0.2) == small_queue * 7 // 8


@pytest.mark.parametrize("sends", [False, True])
def test_a_flow_that_is_not_in_n_i_has_at_most_the_allowance(bench: Bench, sends: bool) -> None:
    for rule, _ in bench.plane.rules(BRIDGE):
        bench.plane.remove(BRIDGE, rule)
    bench.put(Rule(1, 50, 0, TcpMatch(flags=0x10, flags_mask=0x10), WindowOp.FAIR_SHARE))
    uncounted = replace(FLOW, src_port=9)
    bench.begin_anew(SETTINGS, CAPACITY_BPS, BUFFER_BYTES)
    bench.handshake(uncounted, Offer(scale=7), Offer(scale=7))
    if sends:
        bench.egress(replace(reverse(uncounted), payload=b"x" * 1446))
    assert bench.counters.n_i == 0
    assert window_of(bench.ingress(uncounted), uncounted) << 7 <= BDP_BYTES


def test_idle_flows_are_promised_what_fits_into_the_queue_with_its_headers(bench: Bench) -> None:
    """The allowance is larger than the queue. Two flows may start at once."""
    bench.begin_anew(replace(SETTINGS, common_rtt_us=4_000_000), CAPACITY_BPS, BUFFER_BYTES)
    flows = [replace(FLOW, src_port=number) for number in (2, 3)]
    for flow in flows:
        bench.handshake(flow, Offer(scale=7), Offer(scale=7))
        bench.egress(replace(reverse(flow), payload=b"x" * MSS))
    let_turns_pass(bench)
    segments = sum(window_of(bench.ingress(flow), flow) * 128 / MSS for flow in flows)
    assert segments * (MSS + HEADERS) == pytest.approx(FITS_BYTES, abs=len(flows) * (MSS + HEADERS))


def test_it_grows_while_the_link_is_idle_and_a_flow_waits(bench: Bench) -> None:
    windows(bench, 12)
    assert allowance(bench) > 1.5 * BDP_BYTES


def test_a_correction_adds_no_more_than_half_of_what_fits_into_the_queue(bench: Bench) -> None:
    """Otherwise what the senders send at once after it would overflow the queue."""
    small_buffer_bytes = 16_000
    bench.plane.configure(PORT, SETTINGS, 100_000_000, small_buffer_bytes)
    with bench.changed_state() as state:
        state.allowance_bytes = 60_000
    sizes = [allowance(bench)]
    for _ in range(12):
        windows(bench, 1)
        sizes.append(allowance(bench))
    growth = [later - earlier for earlier, later in pairwise(sizes)]
    assert max(growth) == fits(small_buffer_bytes) // 2
    assert sum(step > 0 for step in growth) >= 2


@pytest.mark.parametrize(("pause_s", "left"), [(0.5, FITS_BYTES), (0.0, 2 * FITS_BYTES)])
def test_a_port_that_was_idle_for_long_promises_what_fits_into_its_queue(
    bench: Bench, pause_s: float, left: int
) -> None:
    """Flows start in bursts, which only the queue absorbs. The allowance is that of 21 ms."""
    bench.plane.configure(PORT, replace(SETTINGS, common_rtt_us=1000), 100_000_000, BUFFER_BYTES)
    bench.egress(DATA)
    with bench.changed_state() as state:
        state.allowance_bytes = 2 * FITS_BYTES
    time.sleep(pause_s)
    bench.egress(DATA)
    assert bench.counters.allowance_bytes == left
    if pause_s:
        with bench.changed_state() as state:
            assert state.short_turn_ns == pytest.approx(left * 80, rel=0.001), "a byte takes 80 ns"


@pytest.mark.parametrize("bench", [False], indirect=True)
def test_it_stays_if_the_port_does_not_correct_it(bench: Bench) -> None:
    windows(bench, 12)
    assert allowance(bench) == BDP_BYTES
    assert bench.counters.allowance_limit == "fixed"


def test_a_pause_before_an_answer_is_not_starvation(bench: Bench) -> None:
    windows(bench, 12, ack=REQUEST)
    assert allowance(bench) <= 1.25 * BDP_BYTES


def test_hosts_that_both_send_on_and_on_do_not_ask(bench: Bench) -> None:
    """The ACK has payload, but other segments are on their way to its sender."""
    windows(bench, 12, ack=replace(REQUEST, ack=DATA.seq))
    assert allowance(bench) > 1.5 * BDP_BYTES


def test_what_always_stands_in_the_queue_is_taken_off(bench: Bench) -> None:
    windows(bench, 16)
    grown = allowance(bench)
    bench.set_queue_bytes(20_000)
    for _ in range(4 * grown // 1500):
        bench.egress(DATA)
    assert allowance(bench) < grown


def test_application_limited_flows_do_not_raise_it_above_what_fits_into_the_queue(bench: Bench) -> None:
    """The first segments of a long window after each pause: the flow stops for another reason."""
    for _ in range(400):
        bench.ingress(FLOW)
        bench.egress(DATA)
        time.sleep(0.002)
    assert allowance(bench) <= FITS_BYTES


def test_the_counters_state_that_the_queue_limits_an_application_limited_flow(bench: Bench) -> None:
    """The flow sends one segment after each pause, whatever its window is."""
    small_queue = 16_000
    bench.plane.configure(PORT, SETTINGS, CAPACITY_BPS, small_queue)
    for number in range(60):
        bench.ingress(replace(FLOW, options=timestamps(number, 0)))
        bench.egress(replace(DATA, options=timestamps(0, number)))
        time.sleep(2 * FRAME_S)
    assert bench.counters.allowance_bytes == fits(small_queue)
    assert bench.counters.allowance_limit == "queue"


@pytest.mark.parametrize(
    ("round_trips", "limit"), [((40, 0), "round trip"), ((0, 40), "round trip"), ((0, 0), "loop")]
)
def test_the_allowance_is_at_most_what_the_shortest_round_trip_needs(
    bench: Bench, round_trips: tuple[int, int], limit: str
) -> None:
    """The window limits the flow, and the link is idle most of the time: a busy host answers late."""
    small_queue, rate_bps = 16_000, 10_000_000
    bench.plane.configure(PORT, replace(SETTINGS, common_rtt_us=1000), rate_bps, small_queue)
    round_trip_ns = 41 << 18
    for _ in range(60):
        with bench.changed_state() as state:
            state.window_limits = 1
            state.round_trip, state.round_trip_ns = round_trips, time.monotonic_ns()
        windows(bench, 1)
    longest = round_trip_ns * rate_bps // 8 // 10**9 * PAYLOAD // (PAYLOAD + HEADERS)
    if limit == "loop":
        assert bench.counters.allowance_bytes > 2 * (fits(small_queue) + longest)
    else:
        assert bench.counters.allowance_bytes == pytest.approx(fits(small_queue) + longest, rel=0.001)
        assert bench.counters.allowance_limit == limit


def test_what_flows_do_not_use_is_added_to_the_largest_allowance(bench: Bench) -> None:
    """Half of the weights are of flows that use at most 7/16 of their windows."""
    small_queue, rate_bps = 16_000, 10_000_000
    bench.plane.configure(PORT, replace(SETTINGS, common_rtt_us=1000), rate_bps, small_queue)
    for _ in range(60):
        with bench.changed_state() as state:
            state.window_limits = 1
            state.round_trip, state.round_trip_ns = (40, 0), time.monotonic_ns()
            for turn, weight in enumerate(state.weight_in_turn):
                state.little_in_turn[turn] = weight // 2
        windows(bench, 1)
    longest = (41 << 18) * rate_bps // 8 // 10**9 * PAYLOAD // (PAYLOAD + HEADERS)
    used = 1 - 1 / 2 * 9 / 16
    assert bench.counters.allowance_bytes == pytest.approx((fits(small_queue) + longest) / used, rel=0.01)


def test_it_never_falls_below_two_frames(bench: Bench) -> None:
    bench.set_queue_bytes(100_000)
    for _ in range(50):
        bench.egress(DATA)
    assert allowance(bench) >= 2 * 1500
    assert bench.counters.allowance_limit == "segments"


def test_settings_survive_the_agent(bench: Bench) -> None:
    settings, _ = bench.plane.settings(PORT)
    assert settings.corrects_allowance
    assert settings.common_rtt_us == COMMON_RTT_US


def test_the_shortest_round_trip_counts_for_two_seconds_at_most(bench: Bench) -> None:
    """Each correction after a second begins another second."""
    with bench.changed_state() as state:
        state.round_trip = (40, 30)
        state.round_trip_ns = time.monotonic_ns() - 1_100_000_000
    windows(bench, 4)
    with bench.changed_state() as state:
        assert tuple(state.round_trip) == (0, 40)
        state.round_trip_ns -= 1_100_000_000
    windows(bench, 4)
    with bench.changed_state() as state:
        assert tuple(state.round_trip) == (0, 0)
