"""The window arithmetic against the papers' examples; test_window_arithmetic.py compares with C."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weir_base import window


def test_example_of_the_sccp_paper() -> None:
    """Section III.D, figure 2: a BDP of 25,000 bytes (1 Gbit/s, 200 µs) and 10 flows."""
    bdp_bytes = window.bdp_bytes(10**9, 200)

    assert window.fair_share_bytes(bdp_bytes, 10) == 2_500
    assert window.fair_share_bytes(bdp_bytes, 5) == 5_000
    assert window.fair_share_bytes(bdp_bytes, 0) == 25_000
    assert window.fair_share_bytes(window.bdp_bytes(10**10, 200), 10) == 25_000


@given(capacity_bps=st.integers(1, 10**10), rtt_us=st.integers(1, 10**6), flows=st.integers(1, 10**5))
def test_shares_of_all_flows_add_up_to_the_bdp(capacity_bps: int, rtt_us: int, flows: int) -> None:
    share_bytes = window.fair_share_bytes(window.bdp_bytes(capacity_bps, rtt_us), flows)

    assert 0 <= capacity_bps * rtt_us // 8_000_000 - share_bytes * flows < flows


def test_mod_window_falls_by_alpha_mss_to_one_mss() -> None:
    """SDTCP, equation (4)."""
    windows = [30_000]
    for _ in range(5):
        windows.append(window.mod_window_next_bytes(windows[-1], 5, 1460))

    assert windows == [30_000, 22_700, 15_400, 8_100, 1_460, 1_460]


def test_active_senders_are_those_of_the_busier_of_two_turns() -> None:
    assert window.active_senders((3, 5), 6, 0, 9) == 5
    assert window.active_senders((3, 5), 6, 1, 9) == 3
    assert window.active_senders((3, 5), 6, 2, 9) == 0
    assert window.active_senders((3, 5), 6, 0, 4) == 4


def test_drain_time_of_a_full_segment_at_100_mbit() -> None:
    assert window.drain_ns(1500, 100_000_000) == 120_000
