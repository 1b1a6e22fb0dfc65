"""Small examples for tests of the lab: an experiment, its file, and the records of a run."""

from __future__ import annotations

from typing import Any

from mininet_topos.experiments.experiment import Case, Experiment

CASE = Case("A", "2 workers", workers=2, size_bytes=32_000, background=0, queries=2)
EXPERIMENT_FILE = """
title = "t"
schemes = ["plain"]
bandwidth_mbps = 100
queue_bytes = 150_000
cases = [{ name = "a", title = "a", workers = 3, queries = 1 }]
"""


def one_case(**changes: Any) -> Experiment:
    """Return an experiment of one case, with changed fields."""
    values: dict[str, Any] = {
        "name": "t",
        "cases": (CASE,),
        "schemes": ("plain",),
        "bandwidth_mbps": 100,
        "queue_bytes": 150_000,
    }
    return Experiment(**(values | changes))


def run_record(**changes: Any) -> dict[str, Any]:
    """Return the record of a valid run (run.json), with changed values."""
    counters = {"queue_drops": 0, "ovs_drops": 0, "ovs_receive_drops": 0} | changes.pop("counters", {})
    idle, stolen = changes.pop("idle", 0.5), changes.pop("stolen", 0.01)
    sample = {"t_ns": 1.5e9, "idle": idle, "stolen": stolen, "ovs": 0.5} | changes.pop("own", {})
    values = {"cpu": [sample], "busy_rate_bps": 100e6, "queue_max_bytes": 149_000, "counters": counters}
    return values | {"stalls": [], "watched_cpus": [0, 1], "pinned": True} | changes


def stall(start_ms: float, ms: float, cpu: int = 0) -> dict[str, Any]:
    """Return the record of a CPU stall."""
    return {"event": "stall", "cpu": cpu, "start_ns": start_ms * 1e6, "ns": ms * 1e6}


def query(number: int, waited_ms: float = 1.0) -> dict[str, Any]:
    """Return the record of a query that starts at `number` seconds and takes 100 ms."""
    return {"event": "query", "start_ns": 1e9 * number, "qct_ms": 100.0, "switch_waited_ms": waited_ms}


QUERIES = [query(1), query(2)]
