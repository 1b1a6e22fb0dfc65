"""Exposure: what the hypervisor took from a run, and the queries that a stall disturbed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mininet_topos.records.exposure import disturbances, exposure, horizon_ms, switch_backlog, undisturbed
from tests.support.lab.examples import CASE, QUERIES, one_case, query, run_record, stall

HORIZON_MS = 30.0


@pytest.mark.parametrize(
    ("stalls", "disturbed"),
    [
        ([], []),
        ([stall(1029, 1)], [1]),
        ([stall(1030, 500)], []),  # after the horizon, inside the query
        ([stall(998, 1)], []),
        ([stall(998, 3)], [1]),  # since before the query
        ([stall(2000, 2, cpu=1), stall(2010, 4), stall(1010, 1)], [1, 2]),
    ],
)
def test_a_query_is_disturbed_by_a_stall_of_any_cpu_within_the_horizon(
    stalls: list[dict[str, Any]], disturbed: list[int]
) -> None:
    found = disturbances(QUERIES, stalls, HORIZON_MS)
    assert [entry["query"] for entry in found] == disturbed
    assert undisturbed(QUERIES, found) == [q for n, q in enumerate(QUERIES, 1) if n not in disturbed]


def test_a_disturbed_query_is_listed_with_its_longest_stall() -> None:
    found = disturbances(QUERIES, [stall(2000, 2, cpu=1), stall(2010, 4)], HORIZON_MS)
    assert found == [{"query": 2, "qct_ms": 100.0, "cpu": 0, "after_ms": 10.0, "stalled_ms": 4.0}]


@given(
    st.lists(st.tuples(st.integers(900, 2200), st.integers(1, 40), st.integers(0, 1))),
    st.floats(31, 1000),
    st.floats(31, 1000),
)
def test_whether_a_query_is_disturbed_does_not_depend_on_its_length(
    stalls: list[tuple[int, int, int]], one_ms: float, other_ms: float
) -> None:
    watched = [stall(*values) for values in stalls]
    numbers = [
        [entry["query"] for entry in disturbances([query(1) | {"qct_ms": length}], watched, HORIZON_MS)]
        for length in (one_ms, other_ms)
    ]
    assert numbers[0] == numbers[1]


def test_the_horizon_is_the_least_time_of_a_query() -> None:
    experiment = one_case()
    assert horizon_ms(CASE, experiment) == CASE.ideal_ms(100)
    assert horizon_ms(CASE, replace(experiment, delay_ms=15)) == CASE.ideal_ms(100) + 30


def test_only_stalls_of_all_cpus_at_once_and_stolen_time_are_the_hypervisors() -> None:
    stalls = [
        stall(1000, 20),
        stall(1010, 20, cpu=1),
        stall(1500, 25, cpu=1),
        stall(2090, 40),
        stall(2095, 40, 1),
    ]
    shares = exposure(run_record(stalls=stalls, stolen=0.04), QUERIES)
    assert shares == {
        "span_s": 1.1,
        "stolen": 0.04,
        "all_stalled": pytest.approx((10 + 5) / 1100, abs=1e-4),
        "one_stalled": pytest.approx((20 + 25 + 5) / 1100, abs=1e-4),
    }


def test_what_an_older_version_did_not_record_is_none() -> None:
    record = run_record()
    del record["watched_cpus"], record["cpu"][0]["stolen"]
    shares = exposure(record, QUERIES)
    assert (shares["stolen"], shares["all_stalled"], shares["one_stalled"]) == (None, None, 0)


def test_what_waited_for_the_switch_counts_while_a_query_is_under_way() -> None:
    samples = [
        (int(second * 1e9), waiting) for second, waiting in ((0.5, 9), (1.05, 40), (1.5, 9), (2.1, 20))
    ]
    assert switch_backlog(samples, QUERIES) == {"mean": 30, "max": 40}
    assert switch_backlog(samples[:1], QUERIES) is None
