"""Validity: the reasons that make a run void, and the queries that count.

A run is void if the machine, and not the network, may have caused its figures.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

from mininet_topos.experiments.experiment import FULL_SEGMENT_BYTES, Case, Experiment
from mininet_topos.network.impairment import bound_us
from mininet_topos.records.raw_records import queries

LEAST_IDLE = 0.03
"""Of the hosts' CPUs, in each second."""
MOST_STOLEN = 0.05
"""Of all CPUs, over the run."""
RATE_TOLERANCE = 0.02
MOST_STALLED_OF_QUERY = 0.05
MOST_STALLED_OF_FLOWS = 0.10
"""Higher than for a query: an average over seconds changes only by the stall's share of that time."""
MOST_LATE_OF_DELAY = 0.05
"""How much later than its delay a packet may leave the delay line, at the 99th percentile of a run."""
LEAST_COUNTED = 0.5
"""The share of the queries that must count."""


def judge(
    record: dict[str, Any], records: list[dict[str, Any]], case: Case, experiment: Experiment
) -> list[str]:
    """Return the reasons that make a run void; an empty list if the run is valid.

    `record` is the run's own record (run.json); `records` are the records of its traffic programs.
    """
    checks = (
        _queries_complete(records, case),
        _flows_complete(record, records, case),
        _cpu(record, records),
        _stalls(record, records),
        _rate(record, experiment),
        _ovs_drops(record),
        _link_losses(record, experiment),
        _link_delay(record),
        _delay_line(record, experiment),
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
    """Return start and end of the queries or, without queries, of the samples of flows."""
    start_ns, end_ns = query_span_ns(records)
    sampled = [entry["t_ns"] for entry in records if entry["event"] == "sample"]
    if end_ns or not sampled:
        return start_ns, end_ns
    return min(sampled), max(sampled)


def query_span_ns(records: list[dict[str, Any]]) -> tuple[int, int]:
    """Return the start of the first query and the end of the last one."""
    done = queries(records)
    if not done:
        return 0, 0
    return done[0]["start_ns"], done[-1]["start_ns"] + int(done[-1]["qct_ms"] * 1e6)


def counted_queries(records: list[dict[str, Any]], stalls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the queries whose duration shows the network and not the machine.

    A query does not count if, for more than MOST_STALLED_OF_QUERY of its duration, a CPU stood still (a
    hypervisor may give it to others) or the switch's forwarding thread waited for a CPU. The duration of a
    query itself does not matter.
    """
    return [
        query
        for query in queries(records)
        if max(_stalled_ns(query, stalls), query["switch_waited_ms"] * 1e6)
        <= MOST_STALLED_OF_QUERY * query["qct_ms"] * 1e6
    ]


def _stalled_ns(query: dict[str, Any], stalls: list[dict[str, Any]]) -> float:
    """Return how long the CPU with the longest stalls stood still during a query."""
    return _stalled_between(*query_span_ns([query]), stalls)


def _stalled_between(start_ns: float, end_ns: float, stalls: list[dict[str, Any]]) -> float:
    stalled: dict[int, float] = {}
    for stall in stalls:
        common_ns = min(end_ns, stall["start_ns"] + stall["ns"]) - max(start_ns, stall["start_ns"])
        stalled[stall["cpu"]] = stalled.get(stall["cpu"], 0) + max(0, common_ns)
    return max(stalled.values(), default=0)


def _stalls(record: dict[str, Any], records: list[dict[str, Any]]) -> str:
    done = len(queries(records))
    if not done:
        start_ns, end_ns = span_ns(records)
        stalled_ns = _stalled_between(start_ns, end_ns, record["stalls"])
        if stalled_ns > MOST_STALLED_OF_FLOWS * (end_ns - start_ns):
            return f"a CPU stood still for {stalled_ns / (end_ns - start_ns):.0%} of the time"
        return ""
    counted = len(counted_queries(records, record["stalls"]))
    if counted >= LEAST_COUNTED * done:
        return ""
    return f"a CPU stood still, or the switch had none, during {done - counted} of {done} queries"


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
    """Open vSwitch may drop packets only if the queue refused one: it then drops the rest of the batch."""
    counters = record["counters"]
    if counters["ovs_receive_drops"]:
        return f"ovs-vswitchd was too slow to receive {counters['ovs_receive_drops']} packets"
    if counters["ovs_drops"] and not counters["queue_drops"]:
        return f"Open vSwitch lost {counters['ovs_drops']} packets although the queue refused none"
    return ""


def _link_losses(record: dict[str, Any], experiment: Experiment) -> str:
    """A link with a delay only must not lose packets; a loss would mean that a limit is too low."""
    lost = record["counters"].get("link_losses", 0)
    if lost and not experiment.loss_percent:
        return f"links that only delay lost {lost} packets"
    return ""


def _link_delay(record: dict[str, Any]) -> str:
    """The delay that was measured at the start of the run must be the stated one."""
    measured = (record.get("links") or {}).get("measured") or {}
    return f"the measured delay is wrong: {measured['wrong']}" if measured.get("wrong") else ""


def _delay_line(record: dict[str, Any], experiment: Experiment) -> str:
    """The delay line must lose no packet except on purpose, and must not be late."""
    links = record.get("links") or {}
    if lost := links.get("not_on_purpose"):
        return f"the delay line lost packets: {', '.join(f'{n} {name}' for name, n in lost.items())}"
    late_us = links.get("lateness_us", {}).get("p99", 0.0)
    delay_us = 1000 * experiment.delay_ms
    most_us = max(bound_us(delay_us), MOST_LATE_OF_DELAY * delay_us)
    if delay_us and late_us > most_us:
        return (
            f"the delay line was late by {late_us:.0f} us at the 99th percentile; {most_us:.0f} are allowed"
        )
    return ""


def _queue_limit(record: dict[str, Any], experiment: Experiment) -> str:
    """A queue may drop packets only if it is full, and must not be longer than its limit."""
    longest, limit = record["queue_max_bytes"], experiment.queue_bytes
    if longest > limit:
        return f"the queue held {longest} bytes, more than its limit of {limit}"
    if record["counters"]["queue_drops"] and longest < limit - FULL_SEGMENT_BYTES:
        return f"the queue dropped at {longest} bytes, not at its limit of {limit}"
    return ""
