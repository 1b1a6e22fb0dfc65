"""Whether a run shows what it says: the reasons why one does not, each in a line."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from mininet_topos.experiment import FULL_SEGMENT_BYTES, Case, Experiment
from mininet_topos.results.records import queries

LEAST_IDLE = 0.03
MOST_STOLEN = 0.05
RATE_TOLERANCE = 0.02
TAKEN = 0.05
TAKEN_OF_FLOWS = 0.10
"""Averages over seconds bear more than one query's time: the stop of a CPU is in them as its share."""
LEAST_STANDING = 0.5


def judge(
    record: dict[str, Any], records: list[dict[str, Any]], case: Case, experiment: Experiment
) -> list[str]:
    """The reasons why a run is void; none: it is valid.

    `record`: the run's own record (run.json); `records`: what its traffic programs wrote.
    """
    checks = (
        _queries_complete(records, case),
        _flows_complete(record, records, case),
        _cpu(record, records),
        _machine(record, records),
        _rate(record, experiment),
        _ovs_drops(record),
        _link_losses(record, experiment),
        _queue_limit(record, experiment),
    )
    return [reason for reason in checks if reason]


def _queries_complete(records: list[dict[str, Any]], case: Case) -> str:
    done = len(queries(records))
    return "" if done == case.queries else f"{done} of {case.queries} queries were completed"


def _flows_complete(record: dict[str, Any], records: list[dict[str, Any]], case: Case) -> str:
    done = sum(entry["event"] == "flow" for entry in records)
    planned = record.get("planned_flows", 0)
    return "" if case.duration_s or done == planned else f"{done} of {planned} planned flows were completed"


def span_ns(records: list[dict[str, Any]]) -> tuple[float, float]:
    """From the first query's start to the last one's end; without queries: while flows were sampled."""
    start_ns, end_ns = query_span_ns(records)
    sampled = [entry["t_ns"] for entry in records if entry["event"] == "sample"]
    if end_ns or not sampled:
        return start_ns, end_ns
    return min(sampled), max(sampled)


def query_span_ns(records: list[dict[str, Any]]) -> tuple[int, int]:
    """From the first query's start to the last one's end."""
    done = queries(records)
    if not done:
        return 0, 0
    return done[0]["start_ns"], done[-1]["start_ns"] + int(done[-1]["qct_ms"] * 1e6)


def standing_queries(records: list[dict[str, Any]], stalls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The queries that show the network and not the machine, which a hypervisor may share with others.

    Left out are those for over a twentieth of whose time a CPU stood still, or the switch's forwarding thread
    waited for one. How long a query took plays no part.
    """
    return [
        query
        for query in queries(records)
        if max(_still_ns(query, stalls), query["switch_waited_ms"] * 1e6) <= TAKEN * query["qct_ms"] * 1e6
    ]


def _still_ns(query: dict[str, Any], stalls: list[dict[str, Any]]) -> float:
    """For how long a CPU, the worst of them, stood still during a query."""
    return _still_between(*query_span_ns([query]), stalls)


def _still_between(start_ns: float, end_ns: float, stalls: list[dict[str, Any]]) -> float:
    still: dict[int, float] = {}
    for stall in stalls:
        common_ns = min(end_ns, stall["start_ns"] + stall["ns"]) - max(start_ns, stall["start_ns"])
        still[stall["cpu"]] = still.get(stall["cpu"], 0) + max(0, common_ns)
    return max(still.values(), default=0)


def _machine(record: dict[str, Any], records: list[dict[str, Any]]) -> str:
    done = len(queries(records))
    if not done:
        start_ns, end_ns = span_ns(records)
        still_ns = _still_between(start_ns, end_ns, record["stalls"])
        if still_ns > TAKEN_OF_FLOWS * (end_ns - start_ns):
            return f"a CPU stood still for {still_ns / (end_ns - start_ns):.0%} of the time"
        return ""
    standing = len(standing_queries(records, record["stalls"]))
    if standing >= LEAST_STANDING * done:
        return ""
    return f"a CPU stood still, or the switch had none, during {done - standing} of {done} queries"


def _cpu(record: dict[str, Any], records: list[dict[str, Any]]) -> str:
    start, end = span_ns(records)
    during = [sample for sample in record["cpu"] if start <= sample["t_ns"] <= end + 1e9]
    idle = min((sample["idle"] for sample in during), default=1.0)
    if idle < LEAST_IDLE:
        return f"the machine was starved of CPU: {idle:.0%} idle in the busiest second"
    stolen = fmean(sample.get("stolen", 0.0) for sample in during) if during else 0.0
    if stolen > MOST_STOLEN:
        return f"the machine was starved of CPU: the hypervisor took {stolen:.0%} of the CPUs' time"
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


def _link_losses(record: dict[str, Any], experiment: Experiment) -> str:
    """A link that only delays must not lose: what waits would have outgrown netem's limit."""
    lost = record["counters"].get("link_losses", 0)
    if lost and not experiment.loss_percent:
        return f"links that only delay lost {lost} packets"
    return ""


def _queue_limit(record: dict[str, Any], experiment: Experiment) -> str:
    """A queue that drops must have been full, and none may be longer than its limit."""
    longest, limit = record["queue_max_bytes"], experiment.queue_bytes
    if longest > limit:
        return f"the queue held {longest} bytes, more than its limit of {limit}"
    if record["counters"]["queue_drops"] and longest < limit - FULL_SEGMENT_BYTES:
        return f"the queue dropped at {longest} bytes, not at its limit of {limit}"
    return ""
