"""weir_ictcp.h, compiled for the host: the window field, the rates, and the quota."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.data_plane.host_c import compiled

DECLARATIONS = """
uint64_t weir_ictcp_free_bps(uint64_t capacity_bps, uint64_t arrived_bps);
uint64_t weir_ictcp_smoothed_bps(uint64_t before_bps, uint64_t sample_bps);
uint64_t weir_ictcp_difference_permille(uint64_t expected_bps, uint64_t measured_bps);
uint32_t weir_ictcp_field(uint32_t field, uint32_t window_bytes, uint32_t mss, uint32_t scale);
"""
rates = st.integers(0, 400_000_000_000)


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compiled("weir_ictcp.h", DECLARATIONS, tmp_path_factory.mktemp("ictcp"))[1]


@given(field=st.integers(1, 65_535), segments=st.integers(2, 700), mss=st.integers(216, 8948))
@pytest.mark.parametrize("scale", range(15))
def test_window_is_never_raised_and_never_closed(
    c: Any, field: int, segments: int, mss: int, scale: int
) -> None:
    lowered = c.weir_ictcp_field(field, segments * mss, mss, scale)

    assert 1 <= lowered <= field
    assert lowered == field or lowered << scale <= max(segments * mss, 1 << scale)


def test_closed_window_stays_closed(c: Any) -> None:
    assert c.weir_ictcp_field(0, 2896, 1448, 7) == 0


@given(capacity=rates, arrived=rates)
def test_a_tenth_of_the_rate_is_never_free(c: Any, capacity: int, arrived: int) -> None:
    assert c.weir_ictcp_free_bps(capacity, arrived) == max(capacity // 10 * 9 - arrived, 0)


@given(before=rates, sample=rates)
def test_throughput_rises_at_once_and_falls_by_a_quarter(c: Any, before: int, sample: int) -> None:
    assert c.weir_ictcp_smoothed_bps(before, sample) == max(sample, (3 * before + sample) // 4)


@given(expected=rates, measured=rates)
def test_difference_is_a_part_of_what_is_expected(c: Any, expected: int, measured: int) -> None:
    found = c.weir_ictcp_difference_permille(expected, measured)

    assert 0 <= found <= 1000
    assert (found == 0) if measured >= expected else found == (expected - measured) * 1000 // expected
