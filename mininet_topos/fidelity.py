"""Whether a run shows what it says: the reasons why one does not, each in a line."""

from __future__ import annotations

from typing import Any

from mininet_topos.experiment import FULL_SEGMENT_BYTES, Case, Experiment

LEAST_IDLE = 0.03
RATE_TOLERANCE = 0.02


def judge(
    record: dict[str, Any], records: list[dict[str, Any]], case: Case, experiment: Experiment
) -> list[str]:
    """The reasons why a run is void; none: it is valid.

    `record`: the run's own record (run.json); `records`: what its traffic programs wrote.
    """
    checks = (
        _queries_complete(records, case),
        _cpu(record, records),
        _rate(record, experiment),
        _ovs_drops(record),
        _queue_limit(record, experiment),
    )
    return [reason for reason in checks if reason]


def _queries_complete(records: list[dict[str, Any]], case: Case) -> str:
    done = sum(record["event"] == "query" for record in records)
    return "" if done == case.queries else f"{done} of {case.queries} queries were completed"


def query_span_ns(records: list[dict[str, Any]]) -> tuple[int, int]:
    """From the first query's start to the last one's end."""
    queries = [record for record in records if record["event"] == "query"]
    if not queries:
        return 0, 0
    return queries[0]["start_ns"], queries[-1]["start_ns"] + int(queries[-1]["qct_ms"] * 1e6)


def _cpu(record: dict[str, Any], records: list[dict[str, Any]]) -> str:
    start, end = query_span_ns(records)
    during = [sample for sample in record["cpu"] if start <= sample["t_ns"] <= end + 1e9]
    idle = min((sample["idle"] for sample in during), default=1.0)
    if idle < LEAST_IDLE:
        return f"the machine was starved of CPU: {idle:.0%} idle in the busiest second"
    return ""


def _rate(record: dict[str, Any], experiment: Experiment) -> str:
    rate = record["busy_rate_bps"]
    if rate is None:
        return ""
    wanted = experiment.bandwidth_mbps * 1e6
    if abs(rate - wanted) <= RATE_TOLERANCE * wanted:
        return ""
    return f"the busy bottleneck sent {rate / 1e6:.1f} Mbit/s, not {experiment.bandwidth_mbps:g}"


def _ovs_drops(record: dict[str, Any]) -> str:
    """OVS may lose packets only together with one that the queue refused (then it drops their batch)."""
    counters = record["counters"]
    if counters["ovs_receive_drops"]:
        return f"ovs-vswitchd was too slow to receive {counters['ovs_receive_drops']} packets"
    if counters["ovs_drops"] and not counters["queue_drops"]:
        return f"Open vSwitch lost {counters['ovs_drops']} packets although the queue refused none"
    return ""


def _queue_limit(record: dict[str, Any], experiment: Experiment) -> str:
    """A queue that drops must have been full, and none may be longer than its limit."""
    longest, limit = record["queue_max_bytes"], experiment.queue_bytes
    if longest > limit:
        return f"the queue held {longest} bytes, more than its limit of {limit}"
    if record["counters"]["queue_drops"] and longest < limit - FULL_SEGMENT_BYTES:
        return f"the queue dropped at {longest} bytes, not at its limit of {limit}"
    return ""
