"""Equations (1) to (5): a worked example, the bounds, and the data plane's own arithmetic for (4)."""

from hypothesis import given
from hypothesis import strategies as st

from sdtcp_app import equations as eq

BYTES = st.integers(0, 2**32)
MSS = st.integers(1, 65535)


def test_worked_example():
    """100 Mbit/s, 1 ms, 45,000 bytes queued, 10 flows of 1460-byte segments."""
    assert eq.total_window_bytes(100_000_000, 1000, 45_000) == 57_500
    wc = eq.average_window_bytes(100_000_000, 1000, 45_000, 10)
    assert wc == 5_750
    assert eq.punished_window_bytes(wc, 65535 << 7, 1460) == 2_875
    assert eq.shared_window_bytes(wc, 65535 << 7, 1460) == 5_750
    assert eq.shared_window_bytes(wc, 4000, 1460) == 4_000
    assert eq.punished_window_bytes(wc, None, 1460) == 2_875


def test_equation_4_falls_by_alpha_mss_to_one_mss():
    windows = [30_000]
    for _ in range(5):
        windows.append(eq.next_window_bytes(windows[-1], 5, 1460))
    assert windows == [30_000, 22_700, 15_400, 8_100, 1_460, 1_460]


@given(BYTES, st.one_of(st.none(), BYTES), MSS)
def test_never_under_one_mss_never_over_the_receiver(wc, wr, mss):
    for window in (eq.punished_window_bytes(wc, wr, mss), eq.shared_window_bytes(wc, wr, mss)):
        assert window >= mss
        assert window == mss or window <= (eq.LARGEST_WINDOW_BYTES if wr is None else wr)


@given(st.integers(1, 10**13), st.integers(1, 10**6), BYTES, st.integers(1, 10**5))
def test_the_average_times_n_is_the_total(capacity, rtt, queue, n):
    total = eq.total_window_bytes(capacity, rtt, queue)
    assert 0 <= total - n * eq.average_window_bytes(capacity, rtt, queue, n) < n
