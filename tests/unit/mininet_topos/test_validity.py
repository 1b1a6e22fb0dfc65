"""The checks that make a run void, and the queries that are left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mininet_topos.records.validity import counted_queries, judge
from tests.support.lab.examples import CASE, QUERIES, one_case, query, run_record, stall


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"idle": 0.01}, "starved of CPU: 1% idle"),
        ({"stolen": 0.08}, "the hypervisor took 8% of the CPUs' time"),
        ({"busy_rate_bps": 90e6}, "sent 90.0 Mbit/s, not 100"),
        ({"busy_rate_bps": None}, None),
        ({"counters": {"ovs_receive_drops": 3}}, "too slow to receive 3"),
        ({"counters": {"ovs_drops": 5}}, "lost 5 packets although the queue refused none"),
        ({"counters": {"ovs_drops": 5, "queue_drops": 2}}, None),
        ({"queue_max_bytes": 150_001}, "more than its limit"),
        ({"queue_max_bytes": 90_000, "counters": {"queue_drops": 1}}, "dropped at 90000 bytes"),
        ({"queue_max_bytes": 90_000}, None),
        ({"stalls": [stall(1000, 6)]}, None),
        ({"stalls": [stall(1000, 6), stall(2098, 8)]}, None),
        ({"stalls": [stall(1000, 6), stall(2000, 3), stall(2050, 3)]}, "during 2 of 2 queries"),
        ({"stalls": [stall(1000, 6), stall(2000, 3), stall(2050, 3, cpu=1)]}, None),
        ({"stalls": [stall(990, 16), stall(2094, 8)]}, "during 2 of 2 queries"),
    ],
)
def test_a_run_is_void_for_a_reason(changes: dict[str, Any], reason: str | None) -> None:
    found = judge(run_record(**changes), QUERIES, CASE, one_case())
    assert (found == []) if reason is None else (len(found) == 1 and reason in found[0])


def test_a_query_without_a_cpu_for_the_switch_does_not_count() -> None:
    queries = [query(1), query(2, waited_ms=4.9), query(3, waited_ms=5.1), query(4)]
    assert counted_queries(queries, []) == [*queries[:2], queries[3]]
    assert judge(run_record(), queries, replace(CASE, queries=4), one_case()) == []


def test_an_incomplete_run_is_void() -> None:
    assert judge(run_record(), QUERIES[:1], CASE, one_case()) == ["1 of 2 queries were completed"]
