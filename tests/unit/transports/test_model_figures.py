"""The points of figures 1 and 3 of Adaptive Pacing against values that were worked by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from transports import cli
from transports.adaptive_pacing import interval_s
from transports.model_figures import (
    BUFFER_PACKETS,
    FIGURE_3_RTT_S,
    PACKETS_PER_S,
    goodput,
    window_time_s,
)

PACED_S = 100e-6
"""A window of 4 packets over an RTT of 400 us."""


@pytest.mark.parametrize(
    ("flows", "interval_s", "expected_ms"),
    [
        (25, 0, 0.4),  # 25 x 4 packets fill the buffer: no loss, an RTT
        (50, 0, 192.08),  # half is lost: P = 1 - (15/16)^50 = 0.96032; 0.03968 x 0.4 + 0.96032 x 200
        (25, PACED_S, 0.7),  # the RTT and three intervals
        (50, PACED_S, 0.7),  # the link forwards 250 packets in three intervals
    ],
)
def test_points_of_figure_1(flows: int, interval_s: float, expected_ms: float) -> None:
    assert 1e3 * window_time_s(flows, interval_s) == pytest.approx(expected_ms, rel=1e-4)


@pytest.mark.parametrize(
    ("flows", "interval_s", "expected"),
    [
        (20, 0, 1),  # 80 packets fit
        (40, 0, 0.4498),  # 160 packets: (1 - 0.375^4)^40
        (40, 24.1e-6, 0.8058),  # from 24 us on all fit: 300 / (300 + 3 x 24.1)
        (40, 100e-6, 0.5),  # 300 / (300 + 300)
    ],
)
def test_points_of_figure_3(flows: int, interval_s: float, expected: float) -> None:
    assert goodput(flows, interval_s) == pytest.approx(expected, rel=1e-3)


def test_the_interval_of_equation_16_is_near_the_best_one_of_figure_3() -> None:
    """It is 12 us for 40 flows: (40 x 3 - 100) / (C x 2). The goodput is best with 14 us.

    From 24 us on nothing is lost. The paper says that the goodput rises up to there; it does not.
    """
    best_us = max(range(101), key=lambda us: goodput(40, us * 1e-6))
    chosen_s = interval_s(40, 3, BUFFER_PACKETS, PACKETS_PER_S, 1, FIGURE_3_RTT_S)
    assert best_us == 14
    assert chosen_s == pytest.approx(12e-6)
    assert goodput(40, chosen_s) > 0.99 * goodput(40, best_us * 1e-6)


def test_the_command_draws_both(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.transports, ["figures", str(tmp_path / "new")])
    assert done.exit_code == 0, done.output
    for name in ("figure_1.svg", "figure_3.svg"):
        assert "</svg>" in (tmp_path / "new" / name).read_text()
        assert name in done.stdout
