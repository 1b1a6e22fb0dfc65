"""weir_window.h, compiled for the host, against its definitions and weir_base/window.py, on random input."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.data_plane.host_c import compiled
from tests.support.data_plane.packets import checksum
from weir_base import window as python

DECLARATIONS = """
uint64_t weir_bdp_bytes(uint64_t capacity_bps, uint64_t rtt_us);
uint32_t weir_fair_share_bytes(uint64_t bdp_bytes, uint64_t flows);
uint64_t weir_active_senders(const uint64_t sent_in_turn[2], uint32_t turn, int64_t turns_passed,
                             uint64_t n_i);
uint64_t weir_drain_ns(uint64_t bytes, uint64_t capacity_bps);
uint32_t weir_mod_window_next(uint32_t window_bytes, uint32_t alpha, uint32_t mss);
uint32_t weir_finer(uint32_t scale);
uint32_t weir_fitted_segment(uint64_t room_bytes, uint32_t flows, uint32_t mss, uint32_t scale);
uint32_t weir_field_above_one_segment(uint32_t mss, uint32_t scale);
uint32_t weir_window_field(uint32_t window_bytes, uint32_t scale, uint32_t mss, uint32_t least_bytes);
uint32_t weir_clamp_field(uint32_t field, uint32_t window_bytes, uint32_t scale, uint32_t mss,
                          uint32_t least_bytes);
uint16_t weir_checksum_update(uint16_t checksum, uint16_t before, uint16_t after);
"""

counts = st.integers(0, 2**40)
windows = st.integers(0, 2**31)
scales = st.integers(0, 14)
segment_sizes = st.integers(88, 9000)


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compiled("weir_window.h", DECLARATIONS, tmp_path_factory.mktemp("window"))[1]


@given(capacity=st.integers(0, 10**13), rtt=st.integers(0, 10**6), flows=st.integers(0, 10**6))
def test_fair_share_is_equation_1(c: Any, capacity: int, rtt: int, flows: int) -> None:
    """SCCP equation (1), in whole bytes."""
    share = c.weir_fair_share_bytes(c.weir_bdp_bytes(capacity, rtt), flows)

    assert share == min(capacity * rtt // 8_000_000 // max(flows, 1), 2**32 - 1)


@given(window=windows, alpha=st.integers(0, 255), mss=segment_sizes)
def test_mod_window_decreases_by_alpha_segments_to_one(c: Any, window: int, alpha: int, mss: int) -> None:
    assert c.weir_mod_window_next(window, alpha, mss) == max(window - alpha * mss, mss)


@given(capacity_bps=st.integers(0, 10**13), rtt_us=st.integers(0, 10**6), flows=st.integers(0, 2**64 - 1))
def test_fair_share_is_the_same_in_python(c: Any, capacity_bps: int, rtt_us: int, flows: int) -> None:
    bdp_bytes = c.weir_bdp_bytes(capacity_bps, rtt_us)

    assert bdp_bytes == python.bdp_bytes(capacity_bps, rtt_us)
    assert c.weir_fair_share_bytes(bdp_bytes, flows) == python.fair_share_bytes(bdp_bytes, flows)


@given(
    sent_in_turn=st.tuples(counts, counts),
    turn=st.integers(0, 2**32 - 1),
    turns_passed=st.integers(-3, 5),
    n_i=counts,
)
def test_active_senders_are_the_same_in_python(
    c: Any, sent_in_turn: tuple[int, int], turn: int, turns_passed: int, n_i: int
) -> None:
    """If no flow has sent, the data plane divides by N_i."""
    flows = c.weir_active_senders(sent_in_turn, turn, turns_passed, n_i)

    assert flows == (python.active_senders(sent_in_turn, turn, turns_passed, n_i) or n_i)


@given(queued_bytes=st.integers(0, 2**31), capacity_bps=st.integers(1, 10**13))
def test_drain_time_is_the_same_in_python(c: Any, queued_bytes: int, capacity_bps: int) -> None:
    assert c.weir_drain_ns(queued_bytes, capacity_bps) == python.drain_ns(queued_bytes, capacity_bps)


@given(window=windows, alpha=st.integers(0, 255), mss=segment_sizes)
def test_mod_window_is_the_same_in_python(c: Any, window: int, alpha: int, mss: int) -> None:
    assert c.weir_mod_window_next(window, alpha, mss) == python.mod_window_next_bytes(window, alpha, mss)


def test_largest_window_is_the_largest_field_at_the_largest_scale(c: Any) -> None:
    field = c.weir_window_field(2**32 - 1, python.MAX_WINDOW_SCALE, 1, 0)

    assert field << python.MAX_WINDOW_SCALE == python.LARGEST_WINDOW_BYTES


@given(scale=scales, mss=segment_sizes)
def test_field_above_one_segment_is_the_least_one(c: Any, scale: int, mss: int) -> None:
    field = c.weir_field_above_one_segment(mss, scale)

    assert (field - 1) << scale <= mss < field << scale


@given(window=windows, scale=scales, mss=segment_sizes)
def test_field_allows_whole_segments(c: Any, window: int, scale: int, mss: int) -> None:
    field = c.weir_window_field(window, scale, mss, 0)
    advertised, step, segments = field << scale, 1 << scale, window // mss

    assert field <= 0xFFFF
    if segments < 2:
        assert mss < advertised <= mss + step
    elif field < 0xFFFF:
        assert segments * mss - step < advertised <= segments * mss


@given(window=windows, scale=scales, mss=segment_sizes, least=st.integers(1, 9000))
def test_floor_is_one_segment_or_the_configured_least_window(
    c: Any, window: int, scale: int, mss: int, least: int
) -> None:
    field = c.weir_window_field(window, scale, mss, least)

    if least < mss and window < mss:
        assert field == max(max(window, least) >> scale, 1)
    elif least >= mss and window // mss * mss <= least:
        assert field == min(-(-least >> scale), 0xFFFF)
    else:
        assert field == c.weir_window_field(window, scale, mss, 0)


@given(room=st.integers(0, 10**9), flows=st.integers(0, 10_000), mss=segment_sizes, scale=st.integers(0, 20))
def test_fitted_segments_of_all_flows_fit_or_are_the_smallest(
    c: Any, room: int, flows: int, mss: int, scale: int
) -> None:
    segment = c.weir_fitted_segment(room, flows, mss, scale)
    step, flows = 1 << min(scale, 14), max(flows, 1)
    least = min(max(step, 256), mss)

    assert least <= segment <= mss
    if segment != mss:
        assert segment % step == 0
    if least < segment and segment % step == 0:
        assert flows * (segment + 86) <= room
    elif least < segment:
        assert mss % step > mss / 8
        assert flows * (c.weir_window_field(0, scale, mss, 0) * step + 2 * 86) <= room


@given(scale=st.integers(0, 14))
def test_translated_scale_is_7_but_at_most_3_less(c: Any, scale: int) -> None:
    assert scale - c.weir_finer(scale) == max(min(scale, 7), scale - 3)


@given(
    field=st.integers(0, 0xFFFF), window=windows, scale=scales, mss=segment_sizes, least=st.integers(0, 9000)
)
def test_clamp_never_raises_or_opens_a_window(
    c: Any, field: int, window: int, scale: int, mss: int, least: int
) -> None:
    clamped = c.weir_clamp_field(field, window, scale, mss, least)

    assert clamped == min(field, c.weir_window_field(window, scale, mss, least))


@given(
    data=st.binary(min_size=20, max_size=60).filter(lambda b: len(b) % 2 == 0),
    after=st.binary(min_size=2, max_size=2),
)
def test_checksum_update_equals_a_recomputed_checksum(c: Any, data: bytes, after: bytes) -> None:
    """RFC 1624: updating the checksum gives the same result as computing it again."""
    before = int.from_bytes(data[14:16])
    changed = data[:14] + after + data[16:]

    updated = c.weir_checksum_update(checksum(data), before, int.from_bytes(after))

    assert updated == checksum(changed) or {updated, checksum(changed)} == {0, 0xFFFF}
