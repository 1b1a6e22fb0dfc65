"""weir_dctcp_plus.h, compiled for the host, against the model of DCTCP+ in Python."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.data_plane.host_c import compiled
from transports.dctcp_plus import SlowTime, State

DECLARATIONS = """
struct weir_slow { uint32_t state, time_ns; };
uint32_t weir_slow_unit_ns(uint32_t least_rtt_us);
void weir_slow_on_ack(struct weir_slow *slow, uint32_t is_at_floor, uint32_t is_congested, uint32_t unit_ns,
                      uint32_t random);
uint32_t weir_slow_interval_ns(const struct weir_slow *slow, uint32_t cwnd, uint32_t srtt_us);
"""
MOST = 100_000_000
"""The largest slow_time, in ns."""
U32 = 2**32 - 1
FREE, FLOOR, MARKED_FLOOR = (False, False), (True, False), (True, True)
"""Whether cwnd is at its floor, and whether the ACK is congested."""


@pytest.fixture(scope="module")
def plus(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compiled("weir_dctcp_plus.h", DECLARATIONS, tmp_path_factory.mktemp("plus"))


def step(model: SlowTime, floor: bool, congested: bool, unit_ns: int, random: int) -> SlowTime:
    return model.on_ack(
        is_at_floor=floor,
        is_congested=congested,
        unit=Fraction(unit_ns),
        part=Fraction(random, 2**32),
        most=Fraction(MOST),
    )


@given(
    acks=st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, U32)), max_size=200),
    unit_ns=st.integers(100_000, 10_000_000),
)
def test_states_and_slow_time_are_those_of_the_model(
    plus: Any, acks: list[tuple[bool, bool, int]], unit_ns: int
) -> None:
    """Each step loses less than a nanosecond. The model goes on from the rounded slow_time."""
    ffi, c = plus
    slow, model = ffi.new("struct weir_slow *"), SlowTime()
    for floor, congested, random in acks:
        c.weir_slow_on_ack(slow, floor, congested, unit_ns, random)
        model = step(model, floor, congested, unit_ns, random)
        assert State(slow.state) is model.state
        assert 0 <= model.slow_time - slow.time_ns < 1
        assert (slow.state != State.NORMAL) or slow.time_ns == 0
        model = SlowTime(model.state, Fraction(slow.time_ns))


def test_states_by_hand() -> None:
    """A unit of 800: half of it twice, then 400, 200 and 100, of which the last is the threshold."""
    model, seen = SlowTime(), []
    for floor, congested in (FREE, FLOOR, MARKED_FLOOR, MARKED_FLOOR, FREE, FREE, FREE, FREE, MARKED_FLOOR):
        model = step(model, floor, congested, 800, 2**31)
        seen.append((model.state.name, model.slow_time))
    assert seen == [
        ("NORMAL", 0),
        ("NORMAL", 0),
        ("TIME_INC", 400),
        ("TIME_INC", 800),
        ("TIME_DES", 400),
        ("TIME_DES", 200),
        ("TIME_DES", 100),
        ("NORMAL", 0),
        ("TIME_INC", 400),
    ]


def test_marks_without_a_floor_leave_dctcp() -> None:
    assert step(SlowTime(), False, True, 800, U32) == SlowTime()


def test_slow_time_stays_below_its_limit(plus: Any) -> None:
    ffi, c = plus
    slow = ffi.new("struct weir_slow *")
    for _ in range(100):
        c.weir_slow_on_ack(slow, 1, 1, 10_000_000, U32)
    assert slow.time_ns == MOST
    assert c.weir_slow_interval_ns(slow, 0, U32) <= 10**9 + MOST, "no stall"


@pytest.mark.parametrize(
    ("rtt_us", "unit_ns"), [(0, 100_000), (99, 100_000), (300, 300_000), (30_000, 10_000_000), (U32, 10**7)]
)
def test_unit_is_the_shortest_rtt_within_limits(plus: Any, rtt_us: int, unit_ns: int) -> None:
    assert plus[1].weir_slow_unit_ns(rtt_us) == unit_ns


@given(state=st.sampled_from(State), time_ns=st.integers(0, MOST), cwnd=st.integers(1, 100))
def test_interval_is_that_of_the_model_rounded_down(plus: Any, state: State, time_ns: int, cwnd: int) -> None:
    ffi, c = plus
    slow = ffi.new("struct weir_slow *", (state, time_ns))
    exact = SlowTime(state, Fraction(time_ns)).interval(cwnd, Fraction(300_000))
    assert 0 <= exact - c.weir_slow_interval_ns(slow, cwnd, 300) < 1
