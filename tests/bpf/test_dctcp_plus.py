"""weir_dctcp_plus between two network namespaces: slow_time while marks go on at the least window."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.data_plane.scripted_wire import MSS, Step, Wire, scripted_wire

NAME = "weir_dctcp_plus"
MARKED = 80
LEAST_CWND = 2
MOST_SLOW_US = 100_000
LEAST_UNIT_US = 100


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with scripted_wire(tmp_path_factory.mktemp("script"), NAME) as wire:
        yield wire


def test_marks_at_the_least_window_delay_packets_and_their_end_ends_that(wire: Wire) -> None:
    wire.play(bytes([Step.MARK]) * MARKED)
    with wire.connection(NAME, NAME) as connection:
        connection.send(MARKED)
        slow = wire.sender_state(connection)
        assert (slow.control, slow.cwnd) == (NAME, LEAST_CWND)
        congested = sum(ack.ece for ack in wire.acks())
        unit_us = max(slow.srtt_us, LEAST_UNIT_US)  # the shortest RTT is at most the smoothed one
        assert 0 < slow.slow_time_us <= min(congested * unit_us, MOST_SLOW_US)
        assert slow.interval_us > slow.slow_time_us / 4, "as of the last packet, before its ACK"
        assert slow.pacing_rate_bps > 0

        connection.send(60)
        after = wire.sender_state(connection)
        assert after.slow_time_us == 0
        connection.send(60)
        assert wire.sender_state(connection).interval_us == 0
        assert wire.sender_state(connection).cwnd > LEAST_CWND


def test_few_marks_leave_the_window_to_dctcp(wire: Wire) -> None:
    wire.play(bytes(100) + bytes([Step.MARK]))
    with wire.connection(NAME, NAME) as connection:
        connection.send(300)
        found = wire.sender_state(connection)
    assert (found.slow_time_us, found.interval_us) == (0, 0)
    assert found.ssthresh > LEAST_CWND


def test_a_pause_ends_slow_time(wire: Wire) -> None:
    """The receiver may echo the last mark once more after the pause, which adds a part of a unit.

    Without the end of slow_time, the ACK of one segment would leave at least half of it.
    """
    wire.play(bytes([Step.MARK]) * MARKED)
    with wire.connection(NAME, NAME) as connection:
        connection.send(MARKED)
        before = wire.sender_state(connection)
        time.sleep(0.6)  # longer than an RTO of 200 ms
        connection.send(1)
        found = wire.sender_state(connection)
    assert found.slow_time_us < before.slow_time_us / 4


def test_packets_leave_at_intervals_while_there_is_a_slow_time(wire: Wire) -> None:
    """With slow_time the rate is below that of a window per RTT."""
    wire.play(bytes([Step.MARK]) * MARKED)
    with wire.connection(NAME, NAME) as connection:
        connection.send(MARKED)
        found = wire.sender_state(connection)
    window_per_rtt_bps = found.cwnd * MSS * 8 / (found.srtt_us * 1e-6)
    assert 8 * MSS / (found.interval_us * 1e-6) < window_per_rtt_bps
