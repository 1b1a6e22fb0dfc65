"""Trace files: flows as CSV with the header `start_us,src,dst,bytes` and, optionally, `deadline_us`.

Empty lines and lines that start with # are ignored. The lines may have any order.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from mininet_topos.errors import BadExperiment
from mininet_topos.workloads.flow import Flow, by_start

COLUMNS = ("start_us", "src", "dst", "bytes")
DEADLINE = "deadline_us"


def read_trace(path: Path) -> list[Flow]:
    """Return the flows of a file, ordered by start. Raises BadExperiment, which names file and line."""
    try:
        return parse_trace(path.read_text().splitlines(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise BadExperiment(f"cannot read the trace {path}: {error}") from error


def parse_trace(lines: Iterable[str], name: str = "trace") -> list[Flow]:
    """Return the flows of a trace's lines, ordered by start. Raises BadExperiment."""
    rows = (
        (number, line) for number, line in enumerate(lines, 1) if line.strip() and line.lstrip()[0] != "#"
    )
    number, header = next(rows, (1, ""))
    columns = _cells(header)
    if set(COLUMNS) - set(columns) or set(columns) - {*COLUMNS, DEADLINE} or len(set(columns)) < len(columns):
        raise BadExperiment(f"{name}, line {number}: want the header {','.join(COLUMNS)}[,{DEADLINE}]")
    flows = [_flow(f"{name}, line {number}", columns, _cells(line)) for number, line in rows]
    if not flows:
        raise BadExperiment(f"{name} has no flow: add a line below the header")
    return sorted(flows, key=by_start)


def write_trace(path: Path, flows: Iterable[Flow]) -> None:
    """Write flows to a trace file, which `read_trace` can read."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow((*COLUMNS, DEADLINE))
        for flow in flows:
            writer.writerow((flow.start_us, flow.src, flow.dst, flow.size_bytes, flow.deadline_us or ""))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line]), [])]


def _flow(where: str, columns: list[str], cells: list[str]) -> Flow:
    if len(cells) != len(columns):
        raise BadExperiment(f"{where}: {len(cells)} fields: want {len(columns)}, as in the header")
    row = dict(zip(columns, cells, strict=True))
    numbers = {name: row[name] for name in ("start_us", "bytes", DEADLINE) if row.get(name)}
    for name, text in numbers.items():
        if not text.isdecimal():
            raise BadExperiment(f"{where}: {name} is {text!r}: want a whole number")
    for name in COLUMNS:
        if not row[name]:
            raise BadExperiment(f"{where}: {name} is missing")
    deadline_us = int(row[DEADLINE]) if row.get(DEADLINE) else None
    try:
        return Flow(int(row["start_us"]), row["src"], row["dst"], int(row["bytes"]), deadline_us)
    except BadExperiment as error:
        raise BadExperiment(f"{where}: {error}") from error
