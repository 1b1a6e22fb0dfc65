"""Queries that begin once a period, whatever each of them takes."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from typing import Any

from mininet_topos.process import built, wait_until
from tests.unit.engines import free_port

PERIOD_MS, QUERIES = 60, 5


def records(lines: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.splitlines()]


def test_a_query_begins_each_period(tmp_path: Any) -> None:
    """None before its time, counted from the root's begin. (How late one may be depends on the machine.)"""
    worker_says = tmp_path / "worker.jsonl"
    port = ("--port", str(free_port()))
    program = str(built("weir-traffic"))
    with ExitStack() as stack:
        file = stack.enter_context(worker_says.open("w"))
        worker = stack.enter_context(subprocess.Popen((program, "worker", *port), stdout=file))
        stack.callback(worker.terminate)
        assert wait_until(lambda: '"listening"' in worker_says.read_text(), 10)
        asked = (
            *("--size", "1000", "--queries", str(QUERIES)),
            *("--gap-ms", "10"),
            "--workers",
            "w=127.0.0.1",
        )
        root = (program, "root", *port, *asked, "--period-ms", str(PERIOD_MS))
        said = records(subprocess.run(root, capture_output=True, text=True, check=True, timeout=60).stdout)
    began_ns = next(record["t_ns"] for record in said if record["event"] == "connected")
    starts_ms = [(record["start_ns"] - began_ns) / 1e6 for record in said if record["event"] == "query"]
    assert len(starts_ms) == QUERIES
    for number, start_ms in enumerate(starts_ms):
        assert start_ms >= 10 + number * PERIOD_MS
