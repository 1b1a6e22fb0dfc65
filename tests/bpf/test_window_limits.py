"""Whether the window that the port sets is what limits a flow (weir_limit.h)."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from tests.support.data_plane.bench import PORT, Bench, reverse
from tests.support.data_plane.packets import Offer, Segment, timestamps, window_of

pytestmark = pytest.mark.beside_others

CAPACITY_BPS, BUFFER_BYTES = 100_000_000, 150_000
ALLOWANCE_BYTES = 100_000
SCALE, MSS = 7, 1448
UNIT_NS = 1 << 18
"""Of round trips."""
FLOW = Segment(src_port=1)


class Watched:
    """A flow whose ACKs the port lowers, and what its sender answers."""

    def __init__(self, bench: Bench, allowance_bytes: int = ALLOWANCE_BYTES, first_seq: int = 1) -> None:
        self.bench, self.acked = bench, first_seq
        settings = PortSettings(common_rtt_us=1000, corrects_allowance=True)
        bench.plane.configure(PORT, settings, CAPACITY_BPS, BUFFER_BYTES)
        bench.count_by_flags()
        bench.put(Rule(1, 50, 0, TcpMatch(flags=0x10, flags_mask=0x10), WindowOp.FAIR_SHARE))
        bench.handshake(FLOW, Offer(scale=SCALE), Offer(scale=SCALE))
        self.send(first_seq + MSS, None)
        self.acknowledge(None)
        with bench.changed_state() as state:
            state.allowance_bytes, state.window_limits = allowance_bytes, 0

    def acknowledge(self, value: int | None, window: int = 65535) -> int:
        """The receiver's ACK. Returns the sequence number up to which the sender may send."""
        options = b"" if value is None else timestamps(value, 0)
        ack = replace(FLOW, ack=self.acked % 2**32, options=options, window=window)
        return self.acked + (window_of(self.bench.ingress(ack), ack) << SCALE)

    def send(self, end: int, echo: int | None) -> None:
        """A full segment that ends at this sequence number."""
        options = b"" if echo is None else timestamps(0, echo)
        self.bench.egress(
            replace(reverse(FLOW), seq=(end - MSS) % 2**32, options=options, payload=b"x" * MSS)
        )

    @property
    def round_trips(self) -> tuple[int, int]:
        """The shortest ones, in units: of the current second, and of the one before."""
        with self.bench.changed_state() as state:
            return state.round_trip[0], state.round_trip[1]

    @property
    def limits(self) -> bool:
        with self.bench.changed_state() as state:
            return bool(state.window_limits & 1)


@pytest.fixture
def watched(bench: Bench) -> Watched:
    return Watched(bench)


@pytest.mark.parametrize("stamp", [1000, 2**32 - 1])
def test_a_sender_that_answers_up_to_the_edge_is_limited(watched: Watched, stamp: int) -> None:
    edge = watched.acknowledge(stamp)
    watched.send(edge - MSS, stamp - 1)
    assert not watched.limits, "this segment was sent before the ACK arrived"
    watched.send(edge, stamp)
    assert watched.limits


@pytest.mark.parametrize("kept_back", [0.0, 0.3])
def test_a_sender_may_keep_back_a_third_of_its_window(watched: Watched, kept_back: float) -> None:
    edge = watched.acknowledge(1000)
    watched.send(round(edge - kept_back * ALLOWANCE_BYTES), 1000)
    assert watched.limits


@pytest.mark.parametrize("part", [0.1, 0.5])
def test_a_sender_whose_cwnd_is_smaller_is_not_limited(watched: Watched, part: float) -> None:
    """It goes on only after later ACKs, which have later timestamps."""
    edge = watched.acknowledge(1000)
    watched.send(round(part * ALLOWANCE_BYTES), 1000)
    watched.send(edge, 1001)
    assert not watched.limits


def test_the_next_lowered_window_is_watched_after_an_answer(watched: Watched) -> None:
    watched.acknowledge(1000)
    watched.send(MSS, 1001)
    watched.acked += MSS
    edge = watched.acknowledge(1002)
    watched.send(edge, 1002)
    assert watched.limits


def test_sequence_numbers_may_wrap(bench: Bench) -> None:
    watched = Watched(bench, first_seq=2**32 - 50_000)
    edge = watched.acknowledge(1000)
    assert edge > 2**32
    watched.send(edge - ALLOWANCE_BYTES // 2, 1000)
    assert not watched.limits
    watched.send(edge, 1000)
    assert watched.limits


def test_a_window_that_the_receiver_limits_is_not_watched(watched: Watched) -> None:
    edge = watched.acknowledge(1000, window=20)
    watched.send(edge, 1000)
    assert not watched.limits


def test_an_allowance_that_fits_into_half_of_the_queue_needs_no_watch(bench: Bench) -> None:
    watched = Watched(bench, allowance_bytes=BUFFER_BYTES // 2)
    edge = watched.acknowledge(1000)
    watched.send(edge, 1000)
    assert not watched.limits


def test_a_flow_without_timestamps_counts_as_limited(watched: Watched) -> None:
    watched.acknowledge(None)
    assert watched.limits


def took_units(watched: Watched, lasts_s: float, queue_bytes: int = 0, stamp: int = 1000) -> float:
    """A round trip of a flow that its window limits. Returns how long it took, in units."""
    begun_ns = time.monotonic_ns()
    edge = watched.acknowledge(stamp)
    watched.bench.set_queue_bytes(queue_bytes)
    watched.send(edge, stamp)
    time.sleep(lasts_s)
    watched.acked = edge
    watched.acknowledge(stamp + 1)
    return (time.monotonic_ns() - begun_ns) / UNIT_NS


def test_the_round_trip_of_a_limited_flow_ends_with_the_ack_of_its_last_segment(watched: Watched) -> None:
    took = took_units(watched, 0.02)
    assert watched.round_trips[0] == pytest.approx(took, abs=took / 4)


def test_the_shortest_round_trip_counts(watched: Watched) -> None:
    took_units(watched, 0.005)
    shortest = watched.round_trips[0]
    with watched.bench.changed_state() as state:
        state.allowance_bytes, state.departed_bytes = ALLOWANCE_BYTES, 0
    took_units(watched, 0.02, stamp=1010)
    assert watched.round_trips[0] == shortest > 0


def test_the_time_in_the_queue_is_no_part_of_the_round_trip(watched: Watched) -> None:
    """125 kB take 10 ms at 100 Mbit/s."""
    took = took_units(watched, 0.03, queue_bytes=125_000)
    assert watched.round_trips[0] == pytest.approx(took - 0.01e9 / UNIT_NS, abs=took / 4)


def test_an_earlier_ack_ends_no_round_trip(watched: Watched) -> None:
    edge = watched.acknowledge(1000)
    watched.send(edge, 1000)
    watched.acked = edge - MSS
    watched.acknowledge(1001)
    assert watched.round_trips == (0, 0)


def test_a_flow_that_is_not_limited_has_no_round_trip(watched: Watched) -> None:
    edge = watched.acknowledge(1000)
    watched.send(edge // 2, 1000)
    watched.send(edge, 1001)
    watched.acked = edge
    watched.acknowledge(1002)
    assert watched.round_trips == (0, 0)
