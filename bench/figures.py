"""Statistics of repeated runs (median and spread), printed as a table or as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from mininet_topos.machine.proc_stat import cpu_ticks, machine_ticks


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, the least and the greatest of some runs."""

    median: float
    least: float
    most: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values), len(values))

    def show(self, digits: int = 0) -> str:
        return f"{self.median:.{digits}f} ({self.least:.{digits}f} to {self.most:.{digits}f})"


def cpu_s(pid: int) -> float:
    """The CPU time that a process has used, in seconds."""
    return cpu_ticks(pid) / os.sysconf("SC_CLK_TCK")


def idle_s() -> float:
    """The idle time of all CPUs together since boot, in seconds.

    Idle time and not busy time: the kernel counts busy time at clock ticks, and misses work that timers pace.
    """
    idle, iowait = machine_ticks()["cpu"][3:5]
    return (idle + iowait) / os.sysconf("SC_CLK_TCK")


def busy_cpus(begun_s: float, idle_before_s: float) -> float:
    """How many CPUs were busy since ``begun_s`` (time.monotonic), when ``idle_s`` was ``idle_before_s``."""
    return (os.cpu_count() or 1) - (idle_s() - idle_before_s) / (time.monotonic() - begun_s)


def machine() -> dict[str, Any]:
    """The machine and its load during the measurement."""
    load = Path("/proc/loadavg").read_text().split()[0]
    return {"kernel": platform.release(), "load_1min": float(load)}


def present(title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print rows: all values as JSON, or the columns as a table."""
    if as_json:
        click.echo(json.dumps({"title": title, "machine": machine(), "rows": rows}, default=_plain))
        return
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*(_text(row.get(column, "")) for column in columns))
    Console().print(table)


def _text(value: Any) -> str:
    if not isinstance(value, Spread):
        return str(value)
    return value.show(3 if value.median < 10 else 1 if value.median < 100 else 0)


def _plain(value: Spread) -> dict[str, float]:
    return {"median": value.median, "min": value.least, "max": value.most, "runs": value.runs}
