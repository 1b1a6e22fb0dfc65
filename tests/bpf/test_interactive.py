"""Runt segments for a receiver that delays its ACKs: only while it is interactive (weir_ato.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from tests.support.data_plane.bench import PORT, Bench, reverse
from tests.support.data_plane.packets import Offer, Segment, window_of

pytestmark = pytest.mark.beside_others

LOCAL = Segment(src="fd00::1", dst="fd00::2")
"""An IPv6 flow is in the map other_flows, where the test can change it."""
MSS = 1408
TOLD_SCALE = 7
ONE, WITH_RUNT = MSS, MSS + (1 << TOLD_SCALE)
"""Windows of one segment, and of one with a runt segment."""
QUEUE_BYTES = 2000
"""Room for a segment and a runt segment, not for two segments."""
SOON_S = 0.065
"""Within 80 ms after payload, and not within 40 ms, also on a host with ticks of 10 ms."""
LATE_S = 0.03
"""The receiver has delayed its ACK."""


class Exchange:
    """Queries and answers of a connection whose window holds one segment."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        bench.count_by_flags()
        bench.put(Rule(1, 1, 0, TcpMatch(ip_version=6), WindowOp.FAIR_SHARE))
        self.acked = 1
        self.flows = bench.plane.pinned.maps["other_flows"]
        bench.plane.configure(PORT, PortSettings(common_rtt_us=10_000), 100_000_000, 10**7)
        bench.handshake(LOCAL, Offer(scale=9))
        self.answer()  # full segments, and a window of more than four
        bench.plane.configure(PORT, PortSettings(common_rtt_us=10), 100_000_000, QUEUE_BYTES)
        self.answer(4)

    def pause(self, pause_s: float) -> None:
        """Make the last payload so much older. A sleep would take longer on a busy machine."""
        for key, flow in self.flows.items():
            flow.last_payload_ns -= int(pause_s * 1e9)
            self.flows.put(key, flow)

    def window(self, payload: bytes = b"") -> int:
        segment = replace(LOCAL, ack=self.acked, payload=payload)
        return window_of(self.bench.ingress(segment), segment) << TOLD_SCALE

    def answer(self, segments: int = 1, pause_s: float = 0, acked_after_s: float = 0) -> None:
        """Segments of an answer, each after a pause, and an ACK for each after another one."""
        for _ in range(segments):
            self.pause(pause_s)
            self.bench.egress(replace(reverse(LOCAL), seq=self.acked, payload=bytes(MSS)))
            self.pause(acked_after_s)
            self.acked += MSS
            self.window()

    def query_after(self, pause_s: float) -> int:
        """The window that follows a query, so long after the last segment."""
        self.pause(pause_s)
        self.window(b"query")
        return self.window()


@pytest.fixture
def exchange(bench: Bench) -> Exchange:
    return Exchange(bench)


def windows_after(exchange: Exchange, pauses_s: Sequence[float]) -> list[int]:
    found = []
    for pause_s in pauses_s:
        found.append(exchange.query_after(pause_s))
        exchange.answer(2)
    return found


def test_queries_at_once_get_runt_segments_and_queries_after_a_pause_do_not(exchange: Exchange) -> None:
    assert windows_after(exchange, [SOON_S, SOON_S, 0.1]) == [ONE] * 3
    assert windows_after(exchange, [0, 0]) == [WITH_RUNT] * 2


def test_a_connection_is_interactive_until_a_delayed_ack(exchange: Exchange) -> None:
    assert windows_after(exchange, [0, SOON_S, 0.3]) == [WITH_RUNT] * 3, "no timer has run out"
    exchange.answer(acked_after_s=LATE_S)
    exchange.answer()  # at once, so it had waited for the ACK; but such a wait ends with the timer
    assert windows_after(exchange, [SOON_S]) == [ONE]


def test_segments_far_apart_let_a_later_query_make_it_interactive(exchange: Exchange) -> None:
    """The time follows the pauses: 40, 55, 62, 66 ms. Segments without pauses make it 40 ms again."""
    exchange.answer(3, pause_s=0.035)
    exchange.answer(3)
    assert exchange.query_after(SOON_S) == ONE
    exchange.answer(3, pause_s=0.035)
    assert exchange.query_after(SOON_S) == WITH_RUNT


def test_a_delayed_ack_doubles_the_time(exchange: Exchange) -> None:
    """The ACK is that of the last segment, so that it says nothing about those before it."""
    exchange.answer(acked_after_s=LATE_S)
    assert exchange.query_after(SOON_S - LATE_S) == WITH_RUNT


def test_a_receiver_that_delays_acks_otherwise_keeps_its_runt_segments(exchange: Exchange) -> None:
    exchange.answer(acked_after_s=LATE_S)
    exchange.answer()  # at once, so it had waited for the ACK
    assert windows_after(exchange, [0.3, 0.3]) == [WITH_RUNT] * 2
