"""The lab on a real network: delays, several roots, a starved run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mininet_topos.network.netem import has_netem
from tests.support.lab.lab_command import BOUND_S, WEIR, lab, rows_of, wait_for_file
from tests.support.lab.leftovers import assert_nothing_left, machine
from tests.support.lab.void_runs import shown

pytestmark = pytest.mark.timeout(BOUND_S + 30)


@pytest.mark.parametrize("more", [(), ("--unpinned", "--jitter", "2", "--duplicate", "2", "--loss", "5")])
def test_a_delay_is_applied_and_every_packet_is_counted(tmp_path: Path, more: tuple[str, ...]) -> None:
    """A query on standing connections takes at least two delays. netem makes a plain delay if it is there."""
    before = machine()
    out = tmp_path / "out"
    options = ("--schemes", "plain", "--workers", "2", "--queries", "3", "--delay", "20")
    done = lab("incast", *options, *more, "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    record = json.loads((out / "raw" / row["run"] / "run.json").read_text())
    means = "netem" if has_netem() and not more else "delay line"
    assert row["links_by"] == record["links"]["by"] == means
    assert row["pinned"] is (not more)
    assert ("Unpinned" in (out / "report.html").read_text()) is bool(more)
    if means == "delay line":
        assert record["links"]["not_on_purpose"] == {}
        measured = record["links"]["measured"]
        assert measured["up"]["delay_us"]["p50"] + measured["down"]["delay_us"]["p50"] > 19_500
        assert bool(record["links"]["pkts"]["lost"]) is bool(more)
        assert row["link_losses"] == record["links"]["pkts"]["lost"]
    assert_nothing_left(before, tmp_path)
    row = shown(row)
    assert row["qct_ms"]["p50"] >= (36 if more else 40)
    if not more:
        assert row["qct_ms"]["p50"] < 140


@contextmanager
def _busy_cpus() -> Iterator[None]:
    """Keep every CPU busy while the context lasts."""
    count = 2 * (os.cpu_count() or 1)
    spinning = (sys.executable, "-c", "while True: pass")
    programs = [subprocess.Popen(spinning) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def test_a_starved_run_is_void(tmp_path: Path) -> None:
    text = """
schemes = ["plain"]
repeat_until_s = 0.0
bandwidth_mbps = 100
queue_bytes = 150_000
cases = [{ name = "starved", title = "2 long flows", background = 2, duration_s = 3.0 }]
"""
    (tmp_path / "starved.toml").write_text(text)
    run = tmp_path / "out" / "starved" / "raw" / "starved-plain-1"
    argv = (WEIR, "lab", "run", str(tmp_path / "starved.toml"), "--out", str(tmp_path / "out"), "--json")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert wait_for_file(running, run / "traffic.jsonl")
        with _busy_cpus():
            assert wait_for_file(running, run / "run.json")
        output, errors = running.communicate(timeout=BOUND_S)
    assert running.returncode == 0, errors
    (row,) = json.loads(output)
    assert not row["valid"]
    assert any("starved of CPU" in reason or "stood still" in reason for reason in row["reasons"])
    page = (tmp_path / "out" / "starved" / "report.html").read_text()
    assert "1 of 1 runs are void" in page


def test_several_roots_ask_at_once_and_queues_are_measured_by_layer(tmp_path: Path) -> None:
    text = """
schemes = ["plain"]
topology = "threetier,1,2,2"
bandwidth_mbps = 20
rates_mbps = { access = 20, trunk = 20 }
queue_bytes = 150_000
queues_bytes = { aggregation = 75_000 }
period_ms = 200
[[cases]]
name = "two"
title = "2 roots"
roots = 2
racks = 2
workers = 4
workers_at = [1, 3]
size_bytes = 20_000
queries = 4
"""
    row = rows_of(tmp_path, "two", text)["plain"]
    shown(row)
    assert (row["queries"], row["roots"], row["response_flows"]) == (8, 2, 8)
    assert row["x_ideal_mean"] >= 0.95
    assert {layer: queue["ports"] for layer, queue in row["layers"].items()} == {"edge": 2, "aggregation": 2}
    for queue in row["layers"].values():
        assert 0 < queue["mean"] <= queue["busiest"] < queue["max"] <= 1
    records = tmp_path / "out" / "two" / "raw" / row["run"] / "traffic.jsonl"
    asked: dict[str, list[int]] = {}
    for line in records.read_text().splitlines():
        record = json.loads(line)
        if record["event"] == "query":
            asked.setdefault(record["host"], []).append(record["start_ns"])
    assert sorted(asked) == ["h1", "h3"]
    starts = zip(*asked.values(), strict=True)
    assert all(abs(one - other) < 20_000_000 for one, other in starts)
