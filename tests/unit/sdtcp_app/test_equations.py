"""Equations (1) to (3) and (5): a worked example and the bounds."""

from hypothesis import given
from hypothesis import strategies as st

from sdtcp_app import equations as eq
from weir_base.window import LARGEST_WINDOW_BYTES, bdp_bytes

BYTES = st.integers(0, 2**32)
MSS = st.integers(1, 65535)


def test_the_equations_on_a_worked_example():
    """100 Mbit/s, 1 ms, 45,000 bytes queued, 10 flows of 1460-byte segments."""
    assert eq.average_window_bytes(bdp_bytes(100_000_000, 1000), 45_000, 1) == 57_500, "equation (1)"
    wc = eq.average_window_bytes(bdp_bytes(100_000_000, 1000), 45_000, 10)
    assert wc == 5_750
    assert eq.punished_window_bytes(wc, 65535 << 7, 1460) == 2_875
    assert eq.shared_window_bytes(wc, 65535 << 7, 1460) == 5_750
    assert eq.shared_window_bytes(wc, 4000, 1460) == 4_000
    assert eq.punished_window_bytes(wc, None, 1460) == 2_875


@given(BYTES, st.one_of(st.none(), BYTES), MSS)
def test_a_window_is_at_least_one_mss_and_at_most_the_receiver_s(wc, wr, mss):
    for window in (eq.punished_window_bytes(wc, wr, mss), eq.shared_window_bytes(wc, wr, mss)):
        assert window >= mss
        assert window == mss or window <= (LARGEST_WINDOW_BYTES if wr is None else wr)


@given(st.integers(1, 10**13), st.integers(1, 10**6), BYTES, st.integers(1, 10**5))
def test_the_average_times_n_is_the_total(capacity, rtt, queue, n):
    link = bdp_bytes(capacity, rtt)
    assert 0 <= link + queue - n * eq.average_window_bytes(link, queue, n) < n
