"""weir_dctcp.h compiled for the host and held against RFC 8257."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import floor
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.dctcp_reference import ONE, Reference, section_3_3
from tests.unit.host_c import compiled

G = Fraction(1, 16)
MODULUS = 2**32
SETTLED_WINDOWS = 139  # from 1 to 0, the longest way: counted for every M from both ends

DECLARATIONS = """
struct weir_dctcp {
    uint32_t alpha, window_end, acked_bytes, marked_bytes, una, prior_rcv_nxt, ce, cut, high_seq, delivered;
};
void weir_dctcp_observe_anew(struct weir_dctcp *dctcp, uint32_t una);
uint32_t weir_dctcp_alpha(uint32_t alpha, uint32_t marked_bytes, uint32_t acked_bytes);
void weir_dctcp_on_ack(struct weir_dctcp *dctcp, uint32_t una, uint32_t ece, uint32_t snd_nxt);
uint32_t weir_dctcp_cwnd_marked(uint32_t cwnd, uint32_t alpha);
uint32_t weir_dctcp_cwnd_lost(uint32_t cwnd);
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
def test_alpha_is_section_3_3_rounded_down(c: Any, alpha: int, counts: tuple[int, int]) -> None:
    exact = alpha * (1 - G) + ONE * G * Fraction(*counts)
    found = c.weir_dctcp_alpha(alpha, *counts)

    assert found == floor(exact) == section_3_3(alpha, *counts)
    assert 0 <= found <= ONE


@given(alpha=alphas, counts=byte_counts())
@example(alpha=0, counts=(255, 65_536))
@example(alpha=15, counts=(255, 65_536))
@example(alpha=0, counts=(1, 1))
@example(alpha=ONE, counts=(0, 1))
def test_alpha_settles_at_the_marked_fraction(c: Any, alpha: int, counts: tuple[int, int]) -> None:
    """alpha = floor((15 alpha + M) / 16) has the solutions alpha <= M < alpha + 16, in units of 1 / ONE.

    The distance to them falls by a sixteenth a window, and by one at least: 0 is reached where M is 0
    (section 4.2: SHOULD), and 1 up to 15 / ONE where all is marked.
    """
    for _ in range(SETTLED_WINDOWS):
        alpha = c.weir_dctcp_alpha(alpha, *counts)

    assert 0 <= ONE * Fraction(*counts) - alpha < 1 / G
    assert c.weir_dctcp_alpha(alpha, *counts) == alpha


def test_nothing_acknowledged_is_nothing_marked(c: Any) -> None:
    assert c.weir_dctcp_alpha(ONE, 0, 0) == ONE - ONE // 16


@given(cwnd=windows, alpha=alphas)
def test_cwnd_falls_by_half_of_alpha(c: Any, cwnd: int, alpha: int) -> None:
    exact = cwnd * (1 - Fraction(alpha, ONE) / 2)
    found = c.weir_dctcp_cwnd_marked(cwnd, alpha)

    assert found == 2 if exact < 2 else abs(found - exact) <= Fraction(1, 2)


@given(cwnd=windows)
def test_where_all_is_marked_it_is_as_a_loss(c: Any, cwnd: int) -> None:
    assert c.weir_dctcp_cwnd_marked(cwnd, ONE) == c.weir_dctcp_cwnd_lost(cwnd) == max(cwnd // 2, 2)


@st.composite
def acks(draw: st.DrawFn) -> Iterator[tuple[int, bool, int]]:
    """ACKs of one connection in order: how many bytes, with ECE or without, how much is under way then."""
    one = st.tuples(st.integers(0, 100_000), st.booleans(), st.integers(0, 200_000))
    return iter(draw(st.lists(one, max_size=60)))


@given(start=st.integers(0, MODULUS - 1), steps=acks())
def test_every_ack_is_counted_as_section_3_3_says(
    built: Any, start: int, steps: Iterator[tuple[int, bool, int]]
) -> None:
    """Also where the sequence numbers wrap."""
    ffi, c = built
    state, reference = ffi.new("struct weir_dctcp *", {"alpha": ONE}), Reference(start, start)
    c.weir_dctcp_observe_anew(state, start)
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
def test_observing_anew_forgets_marks_but_not_alpha(built: Any, alpha: int, una: int) -> None:
    ffi, c = built
    state = ffi.new("struct weir_dctcp *", {"alpha": alpha, "acked_bytes": 9, "marked_bytes": 9})
    c.weir_dctcp_observe_anew(state, una)

    assert (state.alpha, state.una, state.window_end) == (alpha, una, una)
    assert (state.acked_bytes, state.marked_bytes) == (0, 0)


@given(una=st.integers(0, MODULUS - 1), under_way=st.integers(1, 200_000))
def test_what_was_never_begun_begins_with_an_ack(built: Any, una: int, under_way: int) -> None:
    """The kernel's zeros, where it left out the call that begins a connection."""
    ffi, c = built
    state = ffi.new("struct weir_dctcp *")
    for _ in range(2):
        una = (una + under_way) % MODULUS
        c.weir_dctcp_on_ack(state, una, False, (una + under_way) % MODULUS)
        una = (una + under_way) % MODULUS
        c.weir_dctcp_on_ack(state, una, True, (una + under_way) % MODULUS)

    assert state.alpha > 0
    assert state.una == una
