"""Workloads: size distributions by their moments, pairings, plans, traces; bad input."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mininet_topos.errors import BadExperiment
from mininet_topos.workloads.flow import Flow
from mininet_topos.workloads.pairings import permutation, random_pair, shuffle
from mininet_topos.workloads.plan import (
    PartitionAggregate,
    Permutation,
    RandomFlows,
    Replay,
    Shuffle,
    StaggeredFlows,
    WithDeadlines,
    plan,
)
from mininet_topos.workloads.sizes import DATA_MINING, DISTRIBUTIONS, WEB_SEARCH, SizeDistribution, fixed
from mininet_topos.workloads.trace import parse_trace, read_trace, write_trace

HOSTS = [f"h{number}" for number in range(1, 9)]
SAMPLES = 20_000

names = st.sampled_from(sorted(DISTRIBUTIONS))
seeds = st.integers(0, 2**32)
host_lists = st.lists(st.sampled_from([f"h{n}" for n in range(40)]), min_size=2, unique=True)


def samples(sizes: SizeDistribution, seed: int = 1) -> list[int]:
    chance = random.Random(seed)
    return [sizes.sample(chance) for _ in range(SAMPLES)]


# -- sizes ------------------------------------------------------------------------------------------


def test_distributions_have_the_papers_means() -> None:
    """Means of 1.7 and 12.7 MB; four of five flows of data mining are mice."""
    assert WEB_SEARCH.mean_bytes == pytest.approx(1_711_250)
    assert DATA_MINING.mean_bytes == pytest.approx(12_661_000, rel=0.001)
    assert DATA_MINING.quantile(0.8) == 10_000


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("most_bytes", [None, 2_500_000])
def test_samples_have_the_moments(name: str, most_bytes: int | None) -> None:
    """Mean within 4 standard errors, second moment within 4 of its own."""
    sizes = DISTRIBUTIONS[name].capped(most_bytes) if most_bytes else DISTRIBUTIONS[name]
    drawn = samples(sizes)
    squares = [size**2 for size in drawn]
    second = sizes.deviation_bytes**2 + sizes.mean_bytes**2
    spread = math.sqrt(sum((square - second) ** 2 for square in squares) / SAMPLES)

    assert sum(drawn) / SAMPLES == pytest.approx(
        sizes.mean_bytes, abs=4 * sizes.deviation_bytes / math.sqrt(SAMPLES)
    )
    assert sum(squares) / SAMPLES == pytest.approx(second, abs=4 * spread / math.sqrt(SAMPLES))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_samples_have_the_shares_of_the_table(name: str) -> None:
    drawn = samples(DISTRIBUTIONS[name], seed=2)
    for size, share in DISTRIBUTIONS[name].points:
        error = 4 * math.sqrt(share * (1 - share) / SAMPLES)
        assert sum(one <= size for one in drawn) / SAMPLES == pytest.approx(share, abs=error + 1e-9)


@given(name=names, shares=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_quantiles_rise_from_1_byte_to_the_largest(name: str, shares: tuple[float, float]) -> None:
    sizes = DISTRIBUTIONS[name]
    low, high = map(sizes.quantile, sorted(shares))
    assert 1 <= low <= high <= sizes.points[-1][0]


@given(name=names, cap=st.integers(1, 2 * 10**9), share=st.floats(0, 1))
def test_a_limit_changes_only_larger_flows(name: str, cap: int, share: float) -> None:
    sizes = DISTRIBUTIONS[name]
    assert sizes.capped(cap).quantile(share) == pytest.approx(min(sizes.quantile(share), cap), abs=1)
    assert sizes.capped(cap).mean_bytes <= sizes.mean_bytes * (1 + 1e-9)


def test_a_fixed_size_is_a_distribution() -> None:
    assert set(samples(fixed(1500))) == {1500}
    assert (fixed(1500).mean_bytes, fixed(1500).deviation_bytes) == (1500, 0)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (((0, 0.0),), "from 0 to 1"),
        (((0, 0.1), (5, 1.0)), "from 0 to 1"),
        (((9, 0.0), (5, 1.0)), "sizes must not fall"),
        (((0, 0.0), (5, 0.5), (6, 0.5), (7, 1.0)), "shares must rise"),
        (((-1, 0.0), (5, 1.0)), "sizes must not fall"),
    ],
)
def test_a_bad_distribution_is_refused(points: Any, message: str) -> None:
    with pytest.raises(BadExperiment, match=message):
        SizeDistribution("t", "", points)


def test_a_limit_of_zero_is_refused() -> None:
    with pytest.raises(BadExperiment, match="most_bytes is 0; want more than the smallest size"):
        WEB_SEARCH.capped(0)


# -- pairings ---------------------------------------------------------------------------------------


@given(hosts=host_lists, seed=seeds)
def test_a_permutation_sends_and_receives_once_and_never_to_itself(hosts: list[str], seed: int) -> None:
    pairs = permutation(hosts, random.Random(seed))
    assert [src for src, _ in pairs] == hosts
    assert sorted(dst for _, dst in pairs) == sorted(hosts)
    assert all(src != dst for src, dst in pairs)


def test_all_permutations_have_the_same_probability() -> None:
    """Of four hosts there are nine without a fixed point."""
    chance = random.Random(3)
    seen = Counter(tuple(permutation(HOSTS[:4], chance)) for _ in range(9000))
    assert len(seen) == 9
    assert all(abs(count - 1000) < 5 * math.sqrt(1000) for count in seen.values())


@given(mappers=host_lists, reducers=host_lists, seed=seeds)
def test_a_shuffle_has_every_pair_once(mappers: list[str], reducers: list[str], seed: int) -> None:
    pairs = shuffle(mappers, reducers, random.Random(seed))
    assert sorted(pairs) == sorted((m, r) for m in mappers for r in reducers if m != r)


@given(hosts=host_lists, seed=seeds)
def test_a_random_pair_has_two_different_hosts(hosts: list[str], seed: int) -> None:
    src, dst = random_pair(hosts, random.Random(seed))
    assert src != dst
    assert {src, dst} <= set(hosts)


# -- plans ------------------------------------------------------------------------------------------

WORKLOADS = [
    RandomFlows(WEB_SEARCH, 0.5, 100_000_000, 20_000_000),
    PartitionAggregate(workers=5, queries=3, gap_us=100_000, total_bytes=1_000_003),
    StaggeredFlows(count=10, every_us=500_000, size_bytes=1_000_000),
    Permutation(size_bytes=1000, rounds=3, gap_us=50),
    Shuffle(size_bytes=1000, every_us=10),
    WithDeadlines(Shuffle(size_bytes=1000), mean_us=20_000, least_us=3_000),
]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: type(workload).__name__)
def test_a_seed_gives_one_plan_ordered_by_start(workload: Any) -> None:
    first = plan(workload, HOSTS, seed=7)
    assert first == plan(workload, HOSTS, seed=7)
    assert [flow.start_us for flow in first] == sorted(flow.start_us for flow in first)
    if not isinstance(workload, StaggeredFlows):
        assert first != plan(workload, HOSTS, seed=8)


@pytest.mark.parametrize("load", [0.1, 0.6])
def test_random_flows_load_the_links_as_configured(load: float) -> None:
    """Flows arrive as a Poisson process: their count is within 4 of its standard errors, so are gaps."""
    sizes, link_bps, duration_us = fixed(10_000), 100_000_000, 10_000_000
    flows = plan(RandomFlows(sizes, load, link_bps, duration_us), HOSTS, seed=1)
    expected = load * link_bps * len(HOSTS) * 10 / (8 * 10_000)
    starts = [flow.start_us for flow in flows]
    gaps = [b - a for a, b in pairwise(starts)]
    mean = sum(gaps) / len(gaps)

    assert len(flows) == pytest.approx(expected, abs=4 * math.sqrt(expected))
    assert starts[-1] < duration_us
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert deviation == pytest.approx(mean, rel=0.1)  # as an exponential's is
    senders = Counter(flow.src for flow in flows)
    assert all(
        count == pytest.approx(expected / 8, abs=5 * math.sqrt(expected / 8)) for count in senders.values()
    )


def test_an_incast_with_a_size_for_each_worker() -> None:
    flows = plan(PartitionAggregate(workers=5, queries=4, gap_us=1000, size_bytes=32_000), HOSTS, seed=1)
    assert Counter(flow.start_us for flow in flows) == {0: 5, 1000: 5, 2000: 5, 3000: 5}
    assert {flow.dst for flow in flows} == {"h1"}
    assert {flow.size_bytes for flow in flows} == {32_000}


def test_an_incast_with_a_total_size_and_several_roots() -> None:
    workload = PartitionAggregate(workers=6, queries=2, gap_us=1000, total_bytes=1_000_003, roots=2)
    flows = plan(workload, HOSTS, seed=1)
    for start_us in (0, 1000):
        for root in ("h1", "h2"):
            asked = [flow for flow in flows if (flow.start_us, flow.dst) == (start_us, root)]
            assert sum(flow.size_bytes for flow in asked) == 1_000_003
            assert {flow.src for flow in asked} == set(HOSTS[2:])


def test_staggered_flows_start_one_after_the_other() -> None:
    flows = plan(StaggeredFlows(count=3, every_us=500, size_bytes=9), HOSTS[:3], seed=1)
    assert flows == [Flow(0, "h2", "h1", 9), Flow(500, "h3", "h1", 9), Flow(1000, "h2", "h1", 9)]


def test_a_shuffle_spreads_each_senders_flows() -> None:
    flows = plan(Shuffle(size_bytes=9, every_us=10, mappers=3), HOSTS, seed=1)
    assert {flow.src for flow in flows} == set(HOSTS[:3])
    for src in HOSTS[:3]:
        assert [flow.start_us for flow in flows if flow.src == src] == [0, 10, 20, 30, 40]


@pytest.mark.parametrize(
    ("workload", "sources", "destinations"),
    [
        (Shuffle(9, mappers=1, reducers=3), 1, 3),
        (Shuffle(9, mappers=1), 1, 7),
        (Shuffle(9), 8, 8),
    ],
    ids=["one-to-several", "one-to-all", "all-to-all"],
)
def test_the_thesis_patterns_are_shuffles(workload: Shuffle, sources: int, destinations: int) -> None:
    flows = plan(workload, HOSTS, seed=1)
    assert len({flow.src for flow in flows}) == sources
    assert len({flow.dst for flow in flows}) == destinations
    assert len(flows) == len({(flow.src, flow.dst) for flow in flows})
    assert len(flows) == (56 if sources > 1 else destinations)


def test_several_are_others_with_another_seed() -> None:
    chosen = {
        frozenset(flow.dst for flow in plan(Shuffle(9, mappers=1, reducers=3), HOSTS, seed))
        for seed in range(10)
    }
    assert len(chosen) > 1


def test_deadlines_are_exponential_above_the_least() -> None:
    base = RandomFlows(fixed(10_000), 0.6, 100_000_000, 10_000_000)
    drawn = [f.deadline_us for f in plan(WithDeadlines(base, 20_000, least_us=3_000), HOSTS, seed=1)]
    known = [deadline for deadline in drawn if deadline is not None]
    assert len(known) == len(drawn) > 1000
    assert min(known) >= 3_000
    assert sum(known) / len(known) == pytest.approx(20_000, abs=4 * 17_000 / math.sqrt(len(known)))


def test_large_flows_have_no_deadline() -> None:
    base = RandomFlows(WEB_SEARCH, 0.8, 100_000_000, 60_000_000)
    flows = plan(WithDeadlines(base, 20_000, most_bytes=50_000), HOSTS, seed=1)
    assert {flow.deadline_us for flow in flows if flow.size_bytes <= 50_000} == {20_000}
    assert {flow.deadline_us for flow in flows if flow.size_bytes > 50_000} == {None}


INCAST = {"workers": 2, "queries": 1, "gap_us": 1}


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (RandomFlows(WEB_SEARCH, 0, 10**8, 10**6), "load is 0; want more than 0"),
        (RandomFlows(WEB_SEARCH, 1.5, 10**8, 10**6), "at most 1"),
        (RandomFlows(WEB_SEARCH, 0.5, 0, 10**6), "link_bps is 0"),
        (PartitionAggregate(**INCAST), "either size_bytes \\(per worker\\) or total_bytes"),
        (PartitionAggregate(**INCAST, size_bytes=1, total_bytes=1), "an incast needs either"),
        (PartitionAggregate(**INCAST, total_bytes=1), "a flow has 0 bytes"),
        (PartitionAggregate(**(INCAST | {"workers": 8}), size_bytes=1), "8 hosts; want 9"),
        (PartitionAggregate(**(INCAST | {"queries": 0}), size_bytes=1), "queries is 0; want 1 or more"),
        (StaggeredFlows(0, 1, 1), "count is 0"),
        (StaggeredFlows(2, -1, 1), "start_us of a flow is -1"),
        (Permutation(1, rounds=0), "rounds is 0"),
        (Shuffle(1, mappers=8), "a shuffle needs a mapper and another host"),
        (Shuffle(1, mappers=1, reducers=8), "reducers is 8; want 1 to 7"),
        (Shuffle(1, reducers=0), "reducers is 0; want 1 to 7"),
        (WithDeadlines(Shuffle(1), 0), "mean_us is 0"),
        (WithDeadlines(Shuffle(1), 10, least_us=10), "less than mean_us \\(10\\)"),
        (Replay((Flow(0, "h1", "x9", 1),)), "no such host: x9; use h1, h2"),
    ],
)
def test_a_bad_workload_is_refused(workload: Any, message: str) -> None:
    with pytest.raises(BadExperiment, match=message):
        plan(workload, HOSTS, seed=1)


def test_a_plan_for_one_host_is_refused() -> None:
    with pytest.raises(BadExperiment, match="hosts: 1, different: 1; want two or more"):
        plan(Permutation(1), ["h1"], seed=1)
    with pytest.raises(BadExperiment, match="a second host that sends"):
        plan(StaggeredFlows(1, 1, 1), ["h1"], seed=1)


# -- traces -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: type(workload).__name__)
def test_a_written_plan_reads_back(workload: Any, tmp_path: Path) -> None:
    flows = plan(workload, HOSTS, seed=1)
    write_trace(tmp_path / "t.csv", flows)
    assert plan(Replay(tuple(read_trace(tmp_path / "t.csv"))), HOSTS, seed=2) == flows


def test_a_flow_has_the_same_number_in_the_plan_and_in_its_file(tmp_path: Path) -> None:
    flows = (Flow(0, "h1", "h2", 1_000_000), Flow(0, "h1", "h2", 1_000))
    made = plan(Replay(flows), HOSTS, 1)
    write_trace(tmp_path / "plan.csv", made)
    assert read_trace(tmp_path / "plan.csv") == made


def test_a_trace_may_have_comments_and_any_order() -> None:
    text = "# a trace\n\nbytes, src, dst, start_us\n 7, h2, h1, 20\n# later\n9,h1,h2,10\n"
    assert parse_trace(text.splitlines()) == [Flow(10, "h1", "h2", 9), Flow(20, "h2", "h1", 7)]


HEADER = "start_us,src,dst,bytes"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"t\.csv, line 1: want the header start_us,src,dst,bytes\[,deadline_us\]"),
        ("# c\nstart,src,dst,bytes\n", r"t\.csv, line 2: want the header"),
        (f"{HEADER},bytes\n", "line 1: want the header"),
        (HEADER, r"t\.csv has no flow"),
        (f"{HEADER}\n1,a,b\n", "line 2: 3 fields: want 4"),
        (f"{HEADER}\n1,a,b,2\n\n1.5,a,b,2\n", r"line 4: start_us is '1\.5': want a whole number"),
        (f"{HEADER}\n-1,a,b,2\n", "line 2: start_us is '-1'"),
        (f"{HEADER}\n1,a,b,\n", "line 2: bytes is missing"),
        (f"{HEADER}\n1,,b,2\n", "line 2: src is missing"),
        (f"{HEADER}\n1,a,a,2\n", "line 2: a flow leads from a to itself"),
        (f"{HEADER}\n1,a,b,0\n", "line 2: a flow has 0 bytes"),
        (f"{HEADER},deadline_us\n1,a,b,2,0\n", "line 2: deadline_us of a flow is 0"),
        (f"{HEADER},deadline_us\n1,a,b,2,soon\n", "line 2: deadline_us is 'soon'"),
    ],
)
def test_a_bad_trace_is_refused_by_file_and_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(BadExperiment, match=message):
        read_trace(path)


def test_an_unreadable_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadExperiment, match=r"cannot read the trace .*No such file"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadExperiment, match="cannot read the trace"):
        read_trace(tmp_path / "binary")
