"""Who shares a port: the agent's reading of what weir_share.h counts, and how long a turn is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openflow_ext.switch.share import LEAST_TURN_SHIFT, sharers, turn_shift

SHIFT = 24
TURN_NS = 1 << SHIFT


@pytest.mark.parametrize(
    ("capacity_bps", "buffer_bytes", "turn_ms"),
    [(100_000_000, 150_000, 17), (10_000_000, 150_000, 268), (10**10, 2_000_000, 17)],
)
def test_a_turn_outlasts_a_full_queue(capacity_bps: int, buffer_bytes: int, turn_ms: int) -> None:
    assert round(2 ** turn_shift(capacity_bps, buffer_bytes, 7500) / 1e6) == turn_ms


@given(
    capacity_bps=st.integers(1, 10**12), buffer_bytes=st.integers(1, 2**32), bdp_bytes=st.integers(0, 2**32)
)
def test_a_turn_is_the_shortest_that_does(capacity_bps: int, buffer_bytes: int, bdp_bytes: int) -> None:
    shift = turn_shift(capacity_bps, buffer_bytes, bdp_bytes)
    drained_ns = 10**9 * 8 * (buffer_bytes + bdp_bytes) // capacity_bps
    assert shift >= LEAST_TURN_SHIFT
    assert drained_ns * 5 // 4 < 1 << shift
    assert shift == LEAST_TURN_SHIFT or drained_ns * 5 // 4 >= 1 << (shift - 1)


def test_where_the_queue_is_not_known_all_of_n_i_share() -> None:
    assert turn_shift(100_000_000, 0, 7500) == turn_shift(0, 150_000, 0) == 0
    assert sharers(SimpleNamespace(turn_shift=0), SimpleNamespace(n_i=7), 10**12) == 7


def state(n_i: int, turn: int = 50) -> SimpleNamespace:
    """20 flows sent in this turn and 30 in the one before."""
    sharing = (20, 30) if turn % 2 == 0 else (30, 20)
    return SimpleNamespace(n_i=n_i, turn=turn, turn_ns=100 * TURN_NS, sharing=sharing)


@pytest.mark.parametrize("turn", [50, 51])
@pytest.mark.parametrize(("age", "flows"), [(-1, 30), (0, 30), (1, 20), (2, 0), (1000, 0)])
def test_those_of_this_turn_or_of_the_last_share(age: int, flows: int, turn: int) -> None:
    assert sharers(SimpleNamespace(turn_shift=SHIFT), state(100, turn), (100 + age) * TURN_NS) == flows


def test_no_more_share_than_are_open() -> None:
    assert sharers(SimpleNamespace(turn_shift=SHIFT), state(10), 100 * TURN_NS) == 10
