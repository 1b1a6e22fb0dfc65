"""The checks that make a run void: the same for all schemes."""

from __future__ import annotations

from typing import Any

import pytest

from mininet_topos.records.validity import judge
from tests.support.lab.examples import CASE, QUERIES, one_case, run_record, stall


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"idle": 0.01}, "starved of CPU: 1% idle"),
        ({"stolen": 0.08}, "the hypervisor took 8% of the CPUs' time"),
        ({"busy_rate_bps": 90e6}, "sent 90.0 Mbit/s, not 100"),
        ({"busy_rate_bps": None}, None),
        ({"counters": {"ovs_receive_drops": 3}}, "too slow to receive 3"),
        ({"counters": {"ovs_drops": 5}}, None),
        ({"counters": {"ovs_drops": 5, "queue_drops": 2}}, None),
        ({"counters": {"ovs_receive_drops": 3, "queue_drops": 2}}, "too slow to receive 3"),
        ({"queue_max_bytes": 150_001}, "more than its limit"),
        ({"queue_max_bytes": 90_000, "counters": {"queue_drops": 1}}, "dropped at 90000 bytes"),
        ({"queue_max_bytes": 90_000}, None),
        ({"trace_is_cut": True}, "it took longer than the queue can be recorded: split the case"),
        ({"stalls": [stall(1000 + 100 * n, 9) for n in range(11)]}, None),  # 99 of 1100 ms
        ({"stalls": [stall(1000 + 100 * n, 11) for n in range(11)]}, "a CPU stood still for 11% of the time"),
        ({"stalls": [stall(1000 + 100 * n, 9, cpu=n % 2) for n in range(11)]}, None),
        ({"stalls": [stall(900, 90), stall(2101, 500)]}, None),  # before and after the queries
    ],
)
def test_a_run_is_void_for_a_reason(changes: dict[str, Any], reason: str | None) -> None:
    found = judge(run_record(**changes), QUERIES, CASE, one_case())
    assert (found == []) if reason is None else (len(found) == 1 and reason in found[0])


@pytest.mark.parametrize("own", [{}, {"controller": 0.3, "agent": 0.2}])
def test_cpu_time_of_the_schemes_own_programs_makes_no_run_void(own: dict[str, float]) -> None:
    found = judge(run_record(idle=0.01, own=own), QUERIES, CASE, one_case())
    assert bool(found) is (not own)


def test_losses_inside_open_vswitch_are_judged_alike_with_and_without_drops_of_the_queue() -> None:
    """Plain TCP overflows the queue, SCCP does not: the rule may not depend on it."""
    for name in ("ovs_drops", "ovs_receive_drops"):
        verdicts = {
            bool(judge(run_record(counters={name: 40, "queue_drops": drops}), QUERIES, CASE, one_case()))
            for drops in (0, 300)
        }
        assert len(verdicts) == 1, name


def test_what_disturbs_planned_flows_after_the_last_query_counts() -> None:
    """Their completion times are figures of the run, so the machine must not have decided them."""
    flows = [
        {"event": "sample", "t_ns": 2.5e9, "endless": False},
        {"event": "flow", "host": "worker1", "flow": 0, "t_ns": 4e9},
    ]
    record = run_record(stalls=[stall(2101, 500)]) | {"planned_flows": 1}
    (found,) = judge(record, [*QUERIES, *flows], CASE, one_case())
    assert found == "a CPU stood still for 17% of the time"
    long_flow = {"event": "sample", "t_ns": 4e9, "endless": True}
    assert judge(record | {"planned_flows": 0}, [*QUERIES, long_flow], CASE, one_case()) == []


def test_an_incomplete_run_is_void() -> None:
    assert judge(run_record(), QUERIES[:1], CASE, one_case()) == ["1 of 2 queries were completed"]
