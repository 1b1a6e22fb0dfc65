"""weir_dctcp.h, compiled for the host, against RFC 8257."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import floor
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.data_plane.dctcp_reference import ONE, Reference, section_3_3
from tests.support.data_plane.host_c import compiled

G = Fraction(1, 16)
MODULUS = 2**32
SETTLED_WINDOWS = 139  # the most windows that alpha needs to converge, from 1 to 0

DECLARATIONS = """
struct weir_dctcp {
    uint32_t alpha, window_end, acked_bytes, marked_bytes, una, prior_rcv_nxt, ce, reduction, high_seq;
    uint32_t delivered;
};
void weir_dctcp_start_window(struct weir_dctcp *dctcp, uint32_t una);
uint32_t weir_dctcp_alpha(uint32_t alpha, uint32_t marked_bytes, uint32_t acked_bytes);
void weir_dctcp_on_ack(struct weir_dctcp *dctcp, uint32_t una, uint32_t ece, uint32_t snd_nxt);
uint32_t weir_dctcp_cwnd_after_marks(uint32_t cwnd, uint32_t alpha);
uint32_t weir_dctcp_cwnd_after_loss(uint32_t cwnd);
"""

alphas = st.integers(0, ONE)
windows = st.integers(1, 2**20)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compiled("weir_dctcp.h", DECLARATIONS, tmp_path_factory.mktemp("dctcp"))


@pytest.fixture(scope="module")
def c(built: Any) -> Any:
    return built[1]


@st.composite
def byte_counts(draw: st.DrawFn) -> tuple[int, int]:
    acked = draw(st.integers(1, 2**32 - 1))
    return draw(st.integers(0, acked)), acked


@given(alpha=alphas, counts=byte_counts())
def test_alpha_is_that_of_section_3_3_rounded_down(c: Any, alpha: int, counts: tuple[int, int]) -> None:
    exact = alpha * (1 - G) + ONE * G * Fraction(*counts)
    found = c.weir_dctcp_alpha(alpha, *counts)

    assert found == floor(exact) == section_3_3(alpha, *counts)
    assert 0 <= found <= ONE


@given(alpha=alphas, counts=byte_counts())
@example(alpha=0, counts=(255, 65_536))
@example(alpha=15, counts=(255, 65_536))
@example(alpha=0, counts=(1, 1))
@example(alpha=ONE, counts=(0, 1))
def test_alpha_converges_to_the_marked_fraction(c: Any, alpha: int, counts: tuple[int, int]) -> None:
    """alpha = floor((15 alpha + M) / 16) has the solutions alpha <= M < alpha + 16, in units of 1 / ONE.

    The distance to them falls by a sixteenth per window, and by at least one. So alpha reaches 0 if M is 0
    (section 4.2: SHOULD), and 1 less at most 15 / ONE if all bytes are marked.
    """
    for _ in range(SETTLED_WINDOWS):
        alpha = c.weir_dctcp_alpha(alpha, *counts)

    assert 0 <= ONE * Fraction(*counts) - alpha < 1 / G
    assert c.weir_dctcp_alpha(alpha, *counts) == alpha


def test_window_without_acknowledged_bytes_counts_as_unmarked(c: Any) -> None:
    assert c.weir_dctcp_alpha(ONE, 0, 0) == ONE - ONE // 16


@given(cwnd=windows, alpha=alphas)
def test_marks_reduce_cwnd_by_half_of_alpha(c: Any, cwnd: int, alpha: int) -> None:
    exact = cwnd * (1 - Fraction(alpha, ONE) / 2)
    found = c.weir_dctcp_cwnd_after_marks(cwnd, alpha)

    assert found == 2 if exact < 2 else abs(found - exact) <= Fraction(1, 2)


def mean_window(share: float, after_marks: Callable[[float, float], float], whole: bool) -> float:
    """The mean window of one flow with random marks: one reduction per window of data, growth of RFC 5681."""
    chance = random.Random(share)
    window, alpha, count, total = 10.0, share, 0, 0.0
    marks: deque[bool] = deque()
    sent = arrived = acked = marked = window_end = reduced_until = 0
    for arrived in range(1, 50_001):
        while sent - arrived + 1 < int(window):
            marks.append(chance.random() < share)
            sent += 1
        has_mark = marks.popleft()
        acked, marked = acked + 1, marked + has_mark
        if arrived > window_end:
            alpha = alpha * 15 / 16 + marked / acked / 16
            acked, marked, window_end = 0, 0, sent
        if arrived > reduced_until and has_mark:
            window, reduced_until = max(after_marks(window, alpha), 2), sent
        elif arrived > reduced_until and not whole:
            window += 1 / window
        elif arrived > reduced_until:
            count += 1
            if count >= window:
                window, count = window + 1, 0
        total += int(window)
    return total / arrived


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.2, 0.5])
def test_the_rounding_keeps_the_mean_window_of_exact_arithmetic(c: Any, share: float) -> None:
    """Decision 0120. A decrease that is rounded down, as by Linux, leaves 1.4 to 1.7 times the window."""

    def rounded(cwnd: float, alpha: float) -> float:
        return float(c.weir_dctcp_cwnd_after_marks(int(cwnd), int(alpha * ONE)))

    def exact(cwnd: float, alpha: float) -> float:
        return cwnd * (1 - alpha / 2)

    assert 0.8 < mean_window(share, rounded, True) / mean_window(share, exact, False) < 1.15


@given(cwnd=windows)
def test_marks_on_all_bytes_reduce_cwnd_like_a_loss(c: Any, cwnd: int) -> None:
    assert c.weir_dctcp_cwnd_after_marks(cwnd, ONE) == c.weir_dctcp_cwnd_after_loss(cwnd) == max(cwnd // 2, 2)


@st.composite
def acks(draw: st.DrawFn) -> Iterator[tuple[int, bool, int]]:
    """ACKs of one connection in order: bytes acknowledged, whether with ECE, bytes in flight afterwards."""
    one = st.tuples(st.integers(0, 100_000), st.booleans(), st.integers(0, 200_000))
    return iter(draw(st.lists(one, max_size=60)))


@given(start=st.integers(0, MODULUS - 1), steps=acks())
def test_each_ack_is_counted_as_in_section_3_3(
    built: Any, start: int, steps: Iterator[tuple[int, bool, int]]
) -> None:
    """Including ACKs at which the sequence numbers wrap."""
    ffi, c = built
    state, reference = ffi.new("struct weir_dctcp *", {"alpha": ONE}), Reference(start, start)
    c.weir_dctcp_start_window(state, start)
    una = snd_nxt = start
    for acked, ece, under_way in steps:
        una += acked
        snd_nxt = max(snd_nxt, una + under_way)
        c.weir_dctcp_on_ack(state, una % MODULUS, ece, snd_nxt % MODULUS)
        reference.on_ack(una, ece, snd_nxt)

        assert (state.alpha, state.acked_bytes, state.marked_bytes) == (
            reference.alpha,
            reference.acked,
            reference.marked,
        )
        assert state.window_end == reference.window_end % MODULUS


@given(alpha=alphas, una=st.integers(0, MODULUS - 1))
def test_new_window_discards_marks_and_keeps_alpha(built: Any, alpha: int, una: int) -> None:
    ffi, c = built
    state = ffi.new("struct weir_dctcp *", {"alpha": alpha, "acked_bytes": 9, "marked_bytes": 9})
    c.weir_dctcp_start_window(state, una)

    assert (state.alpha, state.una, state.window_end) == (alpha, una, una)
    assert (state.acked_bytes, state.marked_bytes) == (0, 0)


@given(una=st.integers(0, MODULUS - 1), under_way=st.integers(1, 200_000))
def test_first_ack_starts_a_window_if_init_was_skipped(built: Any, una: int, under_way: int) -> None:
    """A kernel that skips the call of init() leaves zeros."""
    ffi, c = built
    state = ffi.new("struct weir_dctcp *")
    for _ in range(2):
        una = (una + under_way) % MODULUS
        c.weir_dctcp_on_ack(state, una, False, (una + under_way) % MODULUS)
        una = (una + under_way) % MODULUS
        c.weir_dctcp_on_ack(state, una, True, (una + under_way) % MODULUS)

    assert state.alpha > 0
    assert state.una == una
