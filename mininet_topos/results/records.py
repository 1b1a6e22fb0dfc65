"""What a run has written, as dictionaries: its own record (run.json) and those of its programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mininet_topos.errors import ProgramFailed

Record = dict[str, Any]


def read_records(path: Path) -> Iterator[Record]:
    """The records of a file of JSON lines. Raises ProgramFailed at a line that is none."""
    with open(path) as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ProgramFailed(f"{path}, line {number}: not a record: {line[:60]!r}") from error


def read_run(run: Path) -> tuple[Record, list[Record]]:
    """A run's own record, and what its traffic programs wrote."""
    return json.loads((run / "run.json").read_text()), list(read_records(run / "traffic.jsonl"))


def goodput_points(records: list[Record]) -> list[tuple[float, float]]:
    """(time in ns, bytes) of the long flows, all sinks together: for as long as each tells its own."""
    told: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        if record["event"] == "goodput":
            told.setdefault(record["host"], []).append((record["t_ns"], record["bytes"]))
    if not told:
        return []
    since = max(points[0][0] for points in told.values())
    until = min(points[-1][0] for points in told.values())
    times = np.array([t_ns for t_ns, _ in next(iter(told.values())) if since <= t_ns <= until])
    total = np.zeros(len(times))
    for points in told.values():
        at, sent = np.array(points).T
        total += np.interp(times, at, sent)
    return list(zip(times.tolist(), total.tolist(), strict=True))


def queries(records: list[Record]) -> list[Record]:
    """The records of the queries, in their order."""
    return [record for record in records if record["event"] == "query"]
