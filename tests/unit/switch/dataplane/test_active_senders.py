"""The active senders of a port, as weir_share.h counts them, and the length of a turn."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openflow_ext.switch.dataplane.active_senders import (
    SHORTEST_TURN_SHIFT,
    port_active_senders,
    port_fair_share_bytes,
    turn_shift,
)
from openflow_ext.switch.dataplane.structs import constants

SHIFT = 24
TURN_NS = 1 << SHIFT


@pytest.mark.parametrize(
    ("capacity_bps", "buffer_bytes", "turn_ms"),
    [(100_000_000, 150_000, 17), (10_000_000, 150_000, 268), (10**10, 2_000_000, 17)],
)
def test_turn_is_longer_than_a_full_queue_takes_to_drain(
    capacity_bps: int, buffer_bytes: int, turn_ms: int
) -> None:
    assert round(2 ** turn_shift(capacity_bps, buffer_bytes, 7500) / 1e6) == turn_ms


@given(
    capacity_bps=st.integers(1, 10**12), buffer_bytes=st.integers(1, 2**32), bdp_bytes=st.integers(0, 2**32)
)
def test_turn_is_the_shortest_one_that_outlasts_a_full_queue(
    capacity_bps: int, buffer_bytes: int, bdp_bytes: int
) -> None:
    shift = turn_shift(capacity_bps, buffer_bytes, bdp_bytes)
    drained_ns = 10**9 * 8 * (buffer_bytes + bdp_bytes) // capacity_bps
    assert shift >= SHORTEST_TURN_SHIFT
    assert drained_ns * 5 // 4 < 1 << shift
    assert shift == SHORTEST_TURN_SHIFT or drained_ns * 5 // 4 >= 1 << (shift - 1)


def test_all_of_n_i_share_if_the_queue_is_unknown() -> None:
    assert turn_shift(100_000_000, 0, 7500) == turn_shift(0, 150_000, 0) == 0
    assert port_active_senders(SimpleNamespace(link_ns=0, turn_shift=0), SimpleNamespace(n_i=7), 10**12) == 7


def state(n_i: int, turn: int = 50) -> SimpleNamespace:
    """20 flows sent in this turn and 30 in the one before."""
    sent_in_turn = (20, 30) if turn % 2 == 0 else (30, 20)
    return SimpleNamespace(n_i=n_i, turn=turn, turn_start_ns=100 * TURN_NS, sent_in_turn=sent_in_turn)


@pytest.mark.parametrize("turn", [50, 51])
@pytest.mark.parametrize(("turns_passed", "flows"), [(-1, 30), (0, 30), (1, 20), (2, 0), (1000, 0)])
def test_senders_of_this_turn_or_the_last_share(turns_passed: int, flows: int, turn: int) -> None:
    assert (
        port_active_senders(
            SimpleNamespace(link_ns=0, turn_shift=SHIFT), state(100, turn), (100 + turns_passed) * TURN_NS
        )
        == flows
    )


def test_active_senders_are_at_most_n_i() -> None:
    assert port_active_senders(SimpleNamespace(link_ns=0, turn_shift=SHIFT), state(10), 100 * TURN_NS) == 10


@pytest.mark.parametrize(("bdp_bytes", "share_bytes"), [(7_500, 16 * 9_000 // 33), (0, 0)])
def test_the_share_of_a_full_weight_is_stated_if_the_port_sets_shares(
    bdp_bytes: int, share_bytes: int
) -> None:
    """Two flows of full weight and a punished one sent; a port without a common RTT sets no share."""
    port = SimpleNamespace(link_ns=1, turn_shift=SHIFT, bdp_bytes=bdp_bytes)
    weight = 33 * constants.WEIR_FULL_WEIGHT // constants.WEIR_PUNISHED_FRACTION
    sent = SimpleNamespace(
        **vars(state(3)), turn_shift=0, allowance_bytes=9_000, weight_in_turn=(weight, weight)
    )
    assert port_fair_share_bytes(port, sent, 100 * TURN_NS) == share_bytes


def test_the_share_of_a_port_without_flows_is_its_allowance() -> None:
    port = SimpleNamespace(link_ns=1, turn_shift=SHIFT, bdp_bytes=7_500)
    nobody = SimpleNamespace(**vars(state(0)), turn_shift=0, allowance_bytes=0, weight_in_turn=(0, 0))
    assert port_fair_share_bytes(port, nobody, 100 * TURN_NS) == 7_500
