"""Exposure: the time that the hypervisor took from a run, and the queries that a CPU's stall disturbed.

The primary figures count every query. These values are reported beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from mininet_topos.experiments.experiment import Case, Experiment
from mininet_topos.records.raw_records import Record, queries, query_end_ns, span_ns

NS_PER_MS = 1e6


def horizon_ms(case: Case, experiment: Experiment) -> float:
    """Return how long after its start a query counts as disturbed by a stall: the same for all schemes.

    It is the least time that a query can take: a round trip, and all responses at the bottleneck's rate.
    A longer horizon would end after some queries and inside others, so that the rule would depend on the
    length of a query.
    """
    return experiment.ideal_ms(case) + experiment.impairment.round_trip_ms


def disturbances(records: list[Record], stalls: Sequence[Record], horizon: float) -> list[dict[str, Any]]:
    """Return the queries within whose first `horizon` ms a CPU stood still, with the longest such stall.

    `query` is the query's number, from 1 on. `cpu` stood still for `stalled_ms`, from `after_ms` after the
    start of the query on (negative: it stood still already).
    """
    found = []
    for number, query in enumerate(queries(records), 1):
        start_ns = query["start_ns"]
        during = [
            stall
            for stall in stalls
            if stall["start_ns"] < start_ns + horizon * NS_PER_MS
            and stall["start_ns"] + stall["ns"] > start_ns
        ]
        if during:
            longest = max(during, key=lambda stall: stall["ns"])
            after_ms = (longest["start_ns"] - start_ns) / NS_PER_MS
            found.append(
                {"query": number, "qct_ms": query["qct_ms"], "cpu": longest["cpu"]}
                | {"after_ms": round(after_ms, 1), "stalled_ms": round(longest["ns"] / NS_PER_MS, 1)}
            )
    return found


def undisturbed(records: list[Record], disturbed: Sequence[dict[str, Any]]) -> list[Record]:
    """Return the queries that are not among the disturbed ones."""
    numbers = {entry["query"] for entry in disturbed}
    return [query for number, query in enumerate(queries(records), 1) if number not in numbers]


def exposure(record: Record, records: list[Record]) -> dict[str, float | None]:
    """Return the shares of a run's time in which the hypervisor, or something else, had the CPUs.

    ``stolen``: of the CPUs' time, as the hypervisor states it. ``all_stalled``: of the time, in which all
    CPUs stood still at once. ``one_stalled``: of the time, in which the CPU with the longest stalls stood
    still. None: an older version recorded the run, or the run ended before its first sample. ``span_s``:
    the run's time, from the first query or sample of a planned flow to the end of the last one. With long
    flows only, it is the time of their samples.
    """
    start_ns, end_ns = span_ns(records)
    span = end_ns - start_ns
    stolen = [sample["stolen"] for sample in samples_within(record, records) if "stolen" in sample]
    stalls = list(_within(record["stalls"], start_ns, end_ns))
    watched = record.get("watched_cpus")
    shares = {
        "stolen": fmean(stolen) if stolen else None,
        "all_stalled": _all_at_once_ns(stalls, len(watched)) / span if watched and span else None,
        "one_stalled": _worst_cpu_ns(stalls) / span if span else None,
    }
    rounded = {name: None if share is None else round(share, 4) for name, share in shares.items()}
    return {"span_s": round(span / 1e9, 3)} | rounded


def switch_backlog(samples: Sequence[tuple[int, int]], records: list[Record]) -> dict[str, int] | None:
    """Return what waited for the switch while a query was under way or, without queries, during the flows.

    ``samples``: times in ns and bytes. Returns the ``mean`` and the ``max`` of the bytes; None without a
    sample in that time.
    """
    of_queries = [(float(query["start_ns"]), float(query_end_ns(query))) for query in queries(records)]
    times = of_queries or [span_ns(records)]
    bytes_then = [
        waiting for t_ns, waiting in samples if any(start_ns <= t_ns <= end_ns for start_ns, end_ns in times)
    ]
    return {"mean": round(fmean(bytes_then)), "max": max(bytes_then)} if bytes_then else None


def samples_within(record: Record, records: list[Record]) -> list[dict[str, float]]:
    """Return the samples of the CPUs' time that were taken during the traffic of a run."""
    start_ns, end_ns = span_ns(records)
    return [sample for sample in record["cpu"] if start_ns <= sample["t_ns"] <= end_ns + 1e9]


def _within(stalls: Sequence[Record], start_ns: float, end_ns: float) -> Iterator[tuple[int, float, float]]:
    """Yield CPU, start and end of the stalls' parts between two times."""
    for stall in stalls:
        since, until = max(start_ns, stall["start_ns"]), min(end_ns, stall["start_ns"] + stall["ns"])
        if since < until:
            yield stall["cpu"], since, until


def _worst_cpu_ns(stalls: Sequence[tuple[int, float, float]]) -> float:
    """Return how long the CPU with the longest stalls stood still."""
    of_cpu = groupby(sorted(stalls), key=lambda stall: stall[0])
    return max((sum(until - since for _, since, until in some) for _, some in of_cpu), default=0.0)


def _all_at_once_ns(stalls: Sequence[tuple[int, float, float]], cpus: int) -> float:
    """Return how long all CPUs stood still at once. The stalls of one CPU do not overlap."""
    changes = sorted(change for _, since, until in stalls for change in ((since, 1), (until, -1)))
    still, total, last = 0, 0.0, 0.0
    for at_ns, change in changes:
        if still == cpus:
            total += at_ns - last
        still, last = still + change, at_ns
    return total
