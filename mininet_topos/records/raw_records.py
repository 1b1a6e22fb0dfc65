"""The raw records of a run: its own record (run.json) and its programs' records, as dictionaries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mininet_topos.errors import ProgramFailed
from mininet_topos.records.result_folder import read_json

Record = dict[str, Any]


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of a file of JSON lines. Raises ProgramFailed at a line that is not JSON."""
    with open(path) as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ProgramFailed(f"{path}, line {number}: not a record: {line[:60]!r}") from error


def read_run(run: Path) -> tuple[Record, list[Record]]:
    """Return the record of a run, and the records of its traffic programs."""
    return read_json(run / "run.json"), list(read_records(run / "traffic.jsonl"))


def goodput_points(records: list[Record]) -> list[tuple[float, float]]:
    """Return (time in ns, bytes) of the long flows: the sum over all sinks, while every sink reports.

    A host has a sink for each transport.
    """
    by_sink: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for record in records:
        if record["event"] == "goodput":
            sink = record["host"], record.get("port", 0)  # an older version had one sink in a host
            by_sink.setdefault(sink, []).append((record["t_ns"], record["bytes"]))
    if not by_sink:
        return []
    since = max(points[0][0] for points in by_sink.values())
    until = min(points[-1][0] for points in by_sink.values())
    times = np.array([t_ns for t_ns, _ in next(iter(by_sink.values())) if since <= t_ns <= until])
    total = np.zeros(len(times))
    for points in by_sink.values():
        at, received = np.array(points).T
        total += np.interp(times, at, received)
    return list(zip(times.tolist(), total.tolist(), strict=True))


def queries(records: list[Record]) -> list[Record]:
    """Return the records of the queries, in their order."""
    return [record for record in records if record["event"] == "query"]


def query_span_ns(records: list[Record]) -> tuple[int, int]:
    """Return the start of the first query and the end of the last one."""
    done = queries(records)
    if not done:
        return 0, 0
    return min(query["start_ns"] for query in done), max(map(query_end_ns, done))


def query_end_ns(query: Record) -> int:
    """Return the end of a query."""
    return int(query["start_ns"]) + int(query["qct_ms"] * 1e6)


def querying_ns(records: list[Record]) -> int:
    """Return how long at least one root waited for responses."""
    total, until = 0, 0
    for query in sorted(queries(records), key=lambda one: int(one["start_ns"])):
        end = query_end_ns(query)
        total += max(0, end - max(query["start_ns"], until))
        until = max(until, end)
    return total


def span_ns(records: list[Record]) -> tuple[float, float]:
    """Return start and end of the traffic: of the queries, and of the samples and ends of the flows.

    Beside queries, long flows do not count: they send before the first query and after the last one too.
    """
    asked = query_span_ns(records)
    times = [
        float(entry["t_ns"])
        for entry in records
        if entry["event"] in ("sample", "flow") and not (asked[1] and entry.get("endless"))
    ]
    times += asked if asked[1] else ()
    return (min(times), max(times)) if times else (0.0, 0.0)
