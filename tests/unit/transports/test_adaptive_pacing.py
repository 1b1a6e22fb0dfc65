"""The model of Adaptive Pacing against values that were worked by hand."""

from __future__ import annotations

import pytest

from transports import adaptive_pacing as model


def test_timeouts_without_and_with_pacing() -> None:
    """(1), (2): two flows of two packets, room for two: half is lost. (3), (4): one more is forwarded."""
    assert model.timeout_probability(2, 2, 2, 1, 0) == 0.25
    assert model.incast_probability(2, 2, 2, 1, 0) == 0.4375
    assert model.timeout_probability(2, 2, 2, 1, 1) == 0.0625
    assert model.incast_probability(2, 2, 2, 1, 1) == 0.12109375


def test_buffer_that_holds_all_packets_loses_none() -> None:
    assert model.timeout_probability(2, 2, 9, 1, 0) == 0
    assert model.incast_probability_of_next_window(2, 1, 9, 1, 1, 1) == 0


def test_completion_times() -> None:
    """(5), (6): an RTT of 1 s and a least RTO of 201 s."""
    assert model.completion_time_s(0.4375, 1, 201, 2, 0) == 88.5
    assert model.completion_time_s(0.12109375, 1, 201, 2, 1) == 26.21875


def test_packets_in_a_time_slot() -> None:
    """(7), (8), (9): ten flows begin within 5 s, a packet takes 2 s; k is 2 x 3 / 5."""
    assert model.concurrent_flows(10, 2, 5) == 4
    assert model.packets_per_slot_of_flow(2, 8) == 0.25
    assert model.packets_per_slot(10, 3, 2, 5) == 12


def test_goodput() -> None:
    """(10), (11), (12): the next window of two packets; half is lost. With B = 3 nothing is."""
    assert model.incast_probability_of_next_window(2, 1, 1, 1, 1, 1) == 0.4375
    assert model.incast_probability_of_next_window(2, 1, 1, 1, 1, 2) == 0.68359375
    assert model.throughput(2, 1, 1, 1, 1, 1) == 0.5625
    assert model.goodput(2, 1, 1, 1, 1, 1, rtt_s=3) == 0.421875
    assert model.throughput(2, 1, 3, 1, 1, 1) == 1
    assert model.goodput(2, 1, 3, 1, 1, 1, rtt_s=3) == 0.75


def test_slope_is_the_derivative_of_the_goodput() -> None:
    """(14) against the difference quotient of (13), with the parameters of figure 3."""
    rate, step = 10e9 / 12_000, 1e-9
    below, above = (model.goodput(60, 3, 100, rate, at, 1, 300e-6) for at in (20e-6 - step, 20e-6 + step))
    slope = model.goodput_slope(60, 3, 100, rate, 20e-6, 1, 300e-6)
    assert slope == pytest.approx((above - below) / (2 * step), rel=1e-3)


@pytest.mark.parametrize(
    ("window", "buffer", "rtt_s", "expected_s"),
    [
        (2, 2, 4, 1),  # (15): (3 x 2 - 2) / (4 x 1)
        (2, 2, 1, 0.5),  # RTT / w is less
        (2, 10, 4, 0),  # all packets fit
        (1, 2, 4, 4),
        (1, 3, 4, 0),
    ],
)
def test_interval(window: int, buffer: int, rtt_s: float, expected_s: float) -> None:
    assert model.interval_s(3, window, buffer, 4, 1, rtt_s) == expected_s
