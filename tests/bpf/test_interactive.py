"""Keep-alives for a receiver that delays its ACKs: only while it is interactive (weir_ato.h)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings
from tests.support.data_plane.bench import PORT, Bench, reverse
from tests.support.data_plane.interactive import MSS, ROOM_FOR_ONE, share_fairly
from tests.support.data_plane.packets import Offer, Segment, window_of

pytestmark = pytest.mark.beside_others

LOCAL = Segment(src="fd00::1", dst="fd00::2")
"""An IPv6 flow is in the map other_flows, where the test can change it."""
TOLD_SCALE = 7
SOON_S = 0.065
"""Within 80 ms after payload, and not within 40 ms, also on a host with ticks of 10 ms."""
LATE_S = 0.03
"""The receiver has delayed its ACK."""


class Exchange:
    """Queries and answers of a connection whose window holds one segment."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        share_fairly(bench)
        self.acked = 1
        self.flows = bench.plane.pinned.maps["other_flows"]
        bench.plane.configure(PORT, PortSettings(common_rtt_us=10_000), 100_000_000, 10**7)
        bench.handshake(LOCAL, Offer(timestamps=False), Offer(timestamps=False))
        self.answer()  # full segments, and a window of more than four
        self.set_queue_size(ROOM_FOR_ONE)
        self.answer(4)

    def set_queue_size(self, buffer_bytes: int) -> None:
        self.bench.plane.configure(PORT, PortSettings(common_rtt_us=10), 100_000_000, buffer_bytes)

    def pause(self, pause_s: float) -> None:
        """Make the last payload so much older. A sleep would take longer on a busy machine."""
        for key, flow in self.flows.items():
            flow.last_payload_ns -= int(pause_s * 1e9)
            self.flows.put(key, flow)

    def window(self, payload: bytes = b"") -> int:
        segment = replace(LOCAL, ack=self.acked, payload=payload)
        return window_of(self.bench.ingress(segment), segment) << TOLD_SCALE

    def answer(self, segments: int = 1, pause_s: float = 0, acked_after_s: float = 0) -> list[bool]:
        """Segments of an answer, each after a pause, and an ACK for each after another one.

        Returns for each whether a keep-alive followed it.
        """
        followed = []
        for _ in range(segments):
            self.pause(pause_s)
            segment = replace(reverse(LOCAL), seq=self.acked, payload=bytes(MSS))
            followed.append(len(self.bench.egress(segment)) < MSS)
            self.pause(acked_after_s)
            self.acked += MSS
            self.window()
        return followed

    def query_after(self, pause_s: float) -> None:
        """A query, so long after the last segment, and an ACK."""
        self.pause(pause_s)
        self.window(b"query")
        assert self.window() == MSS, "a window of one segment"

    def query_and_answer(self, pause_s: float) -> list[bool]:
        """As ``query_after`` and ``answer`` with two segments."""
        self.query_after(pause_s)
        return self.answer(2)


@pytest.fixture
def exchange(bench: Bench) -> Exchange:
    return Exchange(bench)


ALWAYS, ONCE, NEVER = [True, True], [True, False], [False, False]


def test_queries_at_once_get_a_keep_alive_and_queries_after_a_pause_do_not(exchange: Exchange) -> None:
    assert [exchange.query_and_answer(pause_s) for pause_s in (SOON_S, SOON_S, 0.1)] == [NEVER] * 3
    assert [exchange.query_and_answer(0) for _ in range(2)] == [ONCE] * 2


def test_a_connection_is_interactive_until_a_keep_alive_or_a_delayed_ack(exchange: Exchange) -> None:
    exchange.query_after(0)
    exchange.query_after(0.3)
    assert exchange.answer() == [True], "no timer has run out"
    assert exchange.query_and_answer(SOON_S) == NEVER
    exchange.query_after(0)
    exchange.set_queue_size(10**7)
    assert exchange.window() > MSS
    assert exchange.answer(acked_after_s=LATE_S) == [False]
    exchange.set_queue_size(ROOM_FOR_ONE)
    exchange.answer()
    assert exchange.query_and_answer(SOON_S) == NEVER


def test_segments_far_apart_let_a_later_query_make_it_interactive(exchange: Exchange) -> None:
    """The time follows the pauses: 40, 55, 62, 66 ms. Segments without pauses make it 40 ms again."""
    exchange.answer(3, pause_s=0.035)
    exchange.answer(3)
    assert exchange.query_and_answer(SOON_S) == NEVER
    exchange.answer(3, pause_s=0.035)
    assert exchange.query_and_answer(SOON_S) == ONCE


def test_a_delayed_ack_doubles_the_time(exchange: Exchange) -> None:
    """The ACK is that of the last segment, so that it says nothing about those before it."""
    exchange.answer(acked_after_s=LATE_S)
    assert exchange.query_and_answer(SOON_S - LATE_S) == ONCE


def test_a_receiver_that_delays_acks_otherwise_keeps_its_keep_alives(exchange: Exchange) -> None:
    exchange.answer(acked_after_s=LATE_S)
    exchange.answer()  # at once, so it had waited for the ACK
    assert [exchange.query_and_answer(0.3) for _ in range(2)] == [ALWAYS] * 2
