"""The law of the allowance: the same in C and in Python, and stable and fast on a simulated link."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.data_plane.allowance_simulation import (
    BUFFER_BYTES,
    MOST_BYTES,
    SEGMENT_BYTES,
    Simulation,
    law_of,
)
from tests.support.data_plane.host_c import compiled
from weir_base import window as python

DECLARATIONS = """
struct weir_interval {
    uint64_t length_ns;
    uint64_t starved_ns;
    uint64_t departed_bytes;
    uint32_t queue_min_bytes;
    uint32_t starved_before;
};
uint64_t weir_next_allowance(uint64_t allowance_bytes, const struct weir_interval *seen,
                             uint64_t target_bytes, uint64_t least_bytes, uint64_t most_bytes);
"""
MS = 1_000_000
Law = Callable[..., int]
sizes = st.integers(0, 2**30)
times = st.integers(0, 10**10)


@pytest.fixture(scope="module")
def law(tmp_path_factory: pytest.TempPathFactory) -> Law:
    return law_of(*compiled("weir_window.h", DECLARATIONS, tmp_path_factory.mktemp("law")))


@given(
    allowance=sizes, length_ns=times, starved_ns=times, departed=sizes, queue_min=sizes, before=st.booleans(),
    target=sizes, least=sizes, most=sizes,
)  # fmt: skip
def test_the_law_is_the_same_in_python(
    law: Law, allowance: int, length_ns: int, starved_ns: int, departed: int, queue_min: int, before: bool,
    target: int, least: int, most: int,
) -> None:  # fmt: skip
    arguments = (allowance, length_ns, starved_ns, departed, queue_min, before, target, least, most)
    assert law(*arguments) == python.next_allowance_bytes(*arguments)


@given(
    allowance=sizes,
    length_ns=times,
    starved_ns=times,
    departed=sizes,
    queue_min=sizes,
    least=sizes,
    most=sizes,
)
def test_the_allowance_stays_within_its_bounds(
    law: Law,
    allowance: int,
    length_ns: int,
    starved_ns: int,
    departed: int,
    queue_min: int,
    least: int,
    most: int,
) -> None:
    """At least ``least``; growth is at most to twice the allowance, to ``most`` and by what departed."""
    following = law(allowance, length_ns, starved_ns, departed, queue_min, True, 3000, least, most)
    assert following >= least
    assert following <= max(least, allowance, min(2 * allowance, most, allowance + departed))


@pytest.mark.parametrize("flows", [1, 8, 60])
@pytest.mark.parametrize("rtt_us", [50, 600, 10_000, 30_000])
@pytest.mark.parametrize("jitter", [0.0, 0.2])
def test_the_link_is_full_and_its_queue_short_at_any_rtt(
    law: Law, flows: int, rtt_us: int, jitter: float
) -> None:
    """After 30 round trips; the queue holds at most a fifth of the buffer, or a segment of each flow."""
    end_ns = 60 * max(rtt_us, 1000) * 1000.0
    link = Simulation(law, lambda _: rtt_us * 1000, flows, jitter)
    link.run(end_ns)
    assert link.utilisation(end_ns / 2, end_ns) >= 0.99
    bdp_bytes = rtt_us * 1000 / 80
    bound = max(BUFFER_BYTES / 5, 10 * SEGMENT_BYTES, flows * SEGMENT_BYTES, 2 * jitter * bdp_bytes)
    assert link.queue_p95(end_ns / 2) <= bound


@pytest.mark.parametrize("rtt_ns", [10_000, 10_000 * MS], ids=["10 us", "10 s"])
def test_an_extreme_rtt_starves_no_flow_and_breaks_no_bound(law: Law, rtt_ns: int) -> None:
    """At 10 us the link is full at once. At 10 s its BDP is 125 MB, towards which the allowance grows."""
    flows, end_ns = 4, max(60 * MS, 40 * rtt_ns)
    link = Simulation(law, lambda _: rtt_ns, flows)
    link.run(end_ns)
    allowances = [allowance for _, allowance, _ in link.sent]
    assert min(allowances) >= flows * SEGMENT_BYTES
    assert max(allowances) <= MOST_BYTES
    assert link.utilisation(end_ns / 2, end_ns) >= min(0.99, 4 * link.utilisation(0, end_ns / 4))


def test_an_rtt_that_grows_tenfold_is_followed_within_a_second(law: Law) -> None:
    link = Simulation(law, lambda now_ns: (1 if now_ns < 200 * MS else 10) * MS, 4)
    link.run(2000 * MS)
    assert link.utilisation(1200 * MS, 2000 * MS) >= 0.98


def test_the_last_of_many_flows_fills_the_link_at_once(law: Law) -> None:
    link = Simulation(law, lambda _: 1 * MS, 21)
    link.run(200 * MS)
    link.pause(20)
    link.run(300 * MS)
    assert link.utilisation(207 * MS, 300 * MS) >= 0.99


def test_a_host_that_stands_still_once_lets_the_allowance_grow_by_a_quarter_at_most(law: Law) -> None:
    link = Simulation(law, lambda now_ns: (50 if 100 * MS < now_ns < 100.1 * MS else 2) * MS, 4)
    link.run(99 * MS)
    before = link.allowance
    link.run(150 * MS)
    assert max(allowance for at, allowance, _ in link.sent if at > 99 * MS) <= 1.25 * before
