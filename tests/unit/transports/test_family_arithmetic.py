"""The arithmetic of D2TCP and L2DCT, compiled for the host, against the papers' formulas in Python."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.data_plane.dctcp_reference import ONE
from tests.support.data_plane.host_c import compiled

ERROR = 0.501
"""The stated error of alpha^d, in units of 1 / ONE."""

POWER = "uint32_t weir_power(uint32_t alpha, uint32_t exponent);"
D2TCP = """
struct weir_deadline_option { uint64_t size_bytes, time_left_us; };
int weir_deadline_check(const struct weir_deadline_option *option);
uint64_t weir_d2tcp_time_needed_us(uint64_t left_bytes, uint32_t cwnd, uint32_t mss, uint32_t srtt_us);
uint32_t weir_d2tcp_imminence(uint64_t needed_us, uint64_t left_us);
"""
L2DCT = """
uint32_t weir_l2dct_weight(uint64_t sent_bytes);
uint32_t weir_l2dct_counted(uint32_t acked, uint32_t weight, uint32_t *credit);
"""
SET, CLEARED, REFUSED = range(3)


@pytest.fixture(scope="module")
def power(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compiled("weir_power.h", POWER, tmp_path_factory.mktemp("power"))[1]


@pytest.fixture(scope="module")
def d2tcp(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compiled("weir_d2tcp.h", D2TCP, tmp_path_factory.mktemp("d2tcp"))


@pytest.fixture(scope="module")
def l2dct(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compiled("weir_l2dct.h", L2DCT, tmp_path_factory.mktemp("l2dct"))


@pytest.mark.parametrize(
    "exponent", [ONE // 8, ONE // 2, ONE // 2 + 1, 50_000, ONE * 3 // 2, ONE * 2, 163_840]
)
def test_power_of_every_alpha_has_the_stated_error(power: Any, exponent: int) -> None:
    worst = max(
        abs(power.weir_power(alpha, exponent) - ONE * (alpha / ONE) ** (exponent / ONE))
        for alpha in range(ONE + 1)
    )
    assert worst <= ERROR


@given(alpha=st.integers(0, ONE), exponent=st.integers(ONE // 8, ONE * 5 // 2))
def test_power_has_the_stated_error(power: Any, alpha: int, exponent: int) -> None:
    exact = ONE * (alpha / ONE) ** (exponent / ONE)
    assert abs(power.weir_power(alpha, exponent) - exact) <= ERROR


def test_exponent_of_1_gives_alpha_itself(power: Any) -> None:
    assert all(power.weir_power(alpha, ONE) == alpha for alpha in range(ONE + 1))


def test_exponents_beyond_the_limit_count_as_the_limit(power: Any) -> None:
    assert power.weir_power(ONE // 2, 2**32 - 1) == power.weir_power(ONE // 2, 4 * ONE) == ONE // 16


@given(
    left_bytes=st.integers(1, 2**40), cwnd=st.integers(1, 2**20), mss=st.integers(48, 65_535),
    srtt_us=st.integers(0, 2**26),
)  # fmt: skip
def test_time_needed_is_that_of_three_quarters_of_the_window_per_rtt(
    d2tcp: Any, left_bytes: int, cwnd: int, mss: int, srtt_us: int
) -> None:
    segments = ceil(Fraction(left_bytes, mss))
    exact = Fraction(segments * srtt_us) / (Fraction(3, 4) * cwnd)
    assert d2tcp[1].weir_d2tcp_time_needed_us(left_bytes, cwnd, mss, srtt_us) == floor(exact)


def test_time_needed_by_hand(d2tcp: Any) -> None:
    """30 segments, 7.5 of them per RTT of 300 µs: four RTTs."""
    assert d2tcp[1].weir_d2tcp_time_needed_us(30 * 1448, 10, 1448, 300) == 1200


@given(needed_us=st.integers(0, 2**63), left_us=st.integers(1, 3_600_000_000))
@example(needed_us=2**63, left_us=1)
def test_imminence_is_the_quotient_between_a_half_and_two(d2tcp: Any, needed_us: int, left_us: int) -> None:
    exact = min(max(Fraction(needed_us, left_us), Fraction(1, 2)), Fraction(2))
    assert (
        abs(d2tcp[1].weir_d2tcp_imminence(needed_us, left_us) - ONE * exact) <= Fraction(ONE, 2 * left_us) + 1
    )


def test_missed_deadline_has_the_least_imminence(d2tcp: Any) -> None:
    assert d2tcp[1].weir_d2tcp_imminence(10**9, 0) == ONE // 2


@pytest.mark.parametrize(
    ("size_bytes", "left_us", "verdict"),
    [
        (1, 0, SET),
        (2**40, 3_600_000_000, SET),
        (0, 0, CLEARED),
        (0, 1, REFUSED),
        (2**40 + 1, 1, REFUSED),
        (1, 3_600_000_001, REFUSED),
    ],
)
def test_deadlines_that_cannot_be_are_refused(
    d2tcp: Any, size_bytes: int, left_us: int, verdict: int
) -> None:
    ffi, c = d2tcp
    assert c.weir_deadline_check(ffi.new("struct weir_deadline_option *", (size_bytes, left_us))) == verdict


@given(sent_bytes=st.integers(0, 2**40))
@example(sent_bytes=200_000)
@example(sent_bytes=1_000_000)
def test_weight_falls_linearly_between_200_kb_and_1_mb(l2dct: Any, sent_bytes: int) -> None:
    part = min(max(Fraction(sent_bytes - 200_000, 800_000), Fraction(0)), Fraction(1))
    exact = Fraction(5, 2) - part * (Fraction(5, 2) - Fraction(1, 8))
    assert l2dct[1].weir_l2dct_weight(sent_bytes) == ceil(ONE * exact)


def test_weight_by_hand(l2dct: Any) -> None:
    """Half of the way from 2.5 to 0.125."""
    assert l2dct[1].weir_l2dct_weight(600_000) == 1.3125 * ONE


@given(acks=st.lists(st.integers(0, 1000), max_size=50), weight=st.integers(ONE // 8, ONE * 5 // 2))
def test_growth_is_the_weight_over_its_most(l2dct: Any, acks: list[int], weight: int) -> None:
    """Each ACK loses less than 1 / ONE of a segment."""
    ffi, c = l2dct
    credit = ffi.new("uint32_t *")
    counted = sum(c.weir_l2dct_counted(acked, weight, credit) for acked in acks)
    exact = Fraction(sum(acks) * weight, ONE) / Fraction(5, 2)
    assert exact - Fraction(len(acks), ONE) <= counted + Fraction(credit[0], ONE) <= exact
