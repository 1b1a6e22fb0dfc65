"""weir_window.h compiled for the host and held against its definitions on random numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sccp_app.core import PortPolicy, fair_share_bytes
from sdtcp_app.equations import next_window_bytes
from tests.bpf.packets import checksum
from tests.unit.host_c import compiled

DECLARATIONS = """
uint64_t weir_bdp_bytes(uint64_t capacity_bps, uint64_t common_rtt_us);
uint32_t weir_fair_share_bytes(uint64_t bdp_bytes, uint64_t n_i);
uint32_t weir_mod_window_next(uint32_t window_bytes, uint32_t alpha, uint32_t mss);
uint32_t weir_finer(uint32_t scale);
uint32_t weir_fitted_segment(uint64_t room_bytes, uint32_t flows, uint32_t mss, uint32_t scale);
uint32_t weir_window_field(uint32_t window_bytes, uint32_t scale, uint32_t mss, uint32_t least_bytes);
uint32_t weir_clamp_field(uint32_t field, uint32_t window_bytes, uint32_t scale, uint32_t mss,
                          uint32_t least_bytes);
uint16_t weir_checksum_update(uint16_t checksum, uint16_t before, uint16_t after);
"""

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
def test_mod_window_decay(c: Any, window: int, alpha: int, mss: int) -> None:
    assert c.weir_mod_window_next(window, alpha, mss) == max(window - alpha * mss, mss)


@given(capacity=st.integers(1, 10**12), rtt=st.integers(1, 10**6), flows=st.integers(0, 10**6))
def test_sccp_core_says_the_same(c: Any, capacity: int, rtt: int, flows: int) -> None:
    share = c.weir_fair_share_bytes(c.weir_bdp_bytes(capacity, rtt), flows)

    assert share == min(fair_share_bytes(PortPolicy(rtt, capacity), flows), 2**32 - 1)


@given(window=windows, alpha=st.integers(1, 255), mss=segment_sizes)
def test_sdtcp_core_says_the_same(c: Any, window: int, alpha: int, mss: int) -> None:
    assert c.weir_mod_window_next(window, alpha, mss) == next_window_bytes(window, alpha, mss)


@given(window=windows, scale=scales, mss=segment_sizes)
def test_field_lets_out_whole_segments(c: Any, window: int, scale: int, mss: int) -> None:
    field = c.weir_window_field(window, scale, mss, 0)
    said, step, segments = field << scale, 1 << scale, window // mss

    assert field <= 0xFFFF
    if segments < 2:
        assert mss < said <= mss + step
    elif field < 0xFFFF:
        assert segments * mss - step < said <= segments * mss


@given(window=windows, scale=scales, mss=segment_sizes, least=st.integers(1, 9000))
def test_the_floor_is_one_segment_or_what_it_is_told_to_be(
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
def test_the_segments_of_a_crowd_fit_or_are_the_least(
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
def test_a_scale_is_told_as_7_but_by_no_more_than_3_less(c: Any, scale: int) -> None:
    assert scale - c.weir_finer(scale) == max(min(scale, 7), scale - 3)


@given(
    field=st.integers(0, 0xFFFF), window=windows, scale=scales, mss=segment_sizes, least=st.integers(0, 9000)
)
def test_clamp_never_raises_nor_opens(
    c: Any, field: int, window: int, scale: int, mss: int, least: int
) -> None:
    clamped = c.weir_clamp_field(field, window, scale, mss, least)

    assert clamped == min(field, c.weir_window_field(window, scale, mss, least))


@given(
    data=st.binary(min_size=20, max_size=60).filter(lambda b: len(b) % 2 == 0),
    after=st.binary(min_size=2, max_size=2),
)
def test_checksum_update_equals_a_new_sum(c: Any, data: bytes, after: bytes) -> None:
    """RFC 1624: the update gives what summing everything anew gives."""
    before = int.from_bytes(data[14:16])
    changed = data[:14] + after + data[16:]

    updated = c.weir_checksum_update(checksum(data), before, int.from_bytes(after))

    assert updated == checksum(changed) or {updated, checksum(changed)} == {0, 0xFFFF}
