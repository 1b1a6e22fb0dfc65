"""Queries that start once a period, however long each of them takes."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from typing import Any

import pytest

from mininet_topos.machine.commands import built
from mininet_topos.machine.programs import wait_until
from tests.support.controllers.processes import free_port

pytestmark = pytest.mark.beside_others

PERIOD_MS, QUERIES = 60, 5


def records(lines: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.splitlines()]


def test_no_query_starts_before_its_period(tmp_path: Any) -> None:
    """Periods count from the start of the root. How late a query may start depends on the machine."""
    worker_records = tmp_path / "worker.jsonl"
    port = ("--port", str(free_port()))
    program = str(built("weir-traffic"))
    with ExitStack() as stack:
        file = stack.enter_context(worker_records.open("w"))
        worker = stack.enter_context(subprocess.Popen((program, "worker", *port), stdout=file))
        stack.callback(worker.terminate)
        assert wait_until(lambda: '"listening"' in worker_records.read_text(), 10)
        query_options = (
            *("--size", "1000", "--queries", str(QUERIES)),
            *("--gap-ms", "10"),
            "--workers",
            "w=127.0.0.1",
        )
        root = (program, "root", *port, *query_options, "--period-ms", str(PERIOD_MS))
        found = records(subprocess.run(root, capture_output=True, text=True, check=True, timeout=60).stdout)
    start_ns = next(record["t_ns"] for record in found if record["event"] == "connected")
    starts_ms = [(record["start_ns"] - start_ns) / 1e6 for record in found if record["event"] == "query"]
    assert len(starts_ms) == QUERIES
    for number, start_ms in enumerate(starts_ms):
        assert start_ms >= 10 + number * PERIOD_MS
