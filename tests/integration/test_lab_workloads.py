"""The lab on a real network: planned flows, fresh connections, resumption, a full disk, a starved run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from mininet_topos.machine.programs import wait_until
from mininet_topos.network.netem import has_netem
from tests.support.lab.leftovers import assert_nothing_left, machine
from tests.support.lab.void_runs import shown

WEIR = str(Path(sys.executable).with_name("weir"))
BOUND_S = 400
pytestmark = pytest.mark.timeout(BOUND_S + 30)
LINK = """
bandwidth_mbps = 100
queue_bytes = 150_000
"""


def _lab(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run((WEIR, "lab", *args), capture_output=True, text=True, timeout=BOUND_S, check=False)


def _rows(folder: Path, name: str, text: str, *options: str) -> dict[str, dict[str, Any]]:
    """Run an experiment from its text, and return its rows by scheme."""
    path = folder / f"{name}.toml"
    path.write_text(text)
    done = _lab("run", str(path), "--out", str(folder / "out"), "--json", *options)
    assert done.returncode == 0, done.stderr
    return {row["scheme"]: row for row in json.loads(done.stdout)}


def test_planned_flows_depend_on_the_seed_and_an_interrupted_run_is_resumed(tmp_path: Path) -> None:
    text = f"""
schemes = ["plain", "dctcp"]
{LINK}
[[cases]]
name = "web"
title = "web search sizes"
workers = 6
[cases.flows]
kind = "random"
sizes = "web-search"
most_bytes = 300_000
load = 0.1
link_bps = 100_000_000
duration_us = 2_000_000
deadlines = {{ mean_us = 500_000 }}
"""
    rows = _rows(tmp_path, "web", text)
    raw = tmp_path / "out" / "web" / "raw"
    runs = [raw / rows[scheme]["run"] for scheme in ("plain", "dctcp")]
    asked = [(run / "plan.csv").read_bytes() for run in runs]
    assert asked[0] == asked[1]
    planned = asked[0].count(b"\n") - 1
    assert planned > 20
    for row in rows.values():
        assert row["flows_done"] == planned
        assert row["fct_ms"]["p50"] > 0
        assert 0 <= row["missed"] < 0.5
    (runs[1] / "run.json").rename(runs[1] / "run.json.lost")
    for other in raw.glob("web-dctcp-*/run.json"):
        other.unlink()
    kept = (runs[0] / "run.json").stat().st_mtime_ns
    again = _rows(tmp_path, "web", text, "--resume")
    assert (runs[0] / "run.json").stat().st_mtime_ns == kept
    assert again["dctcp"]["flows_done"] == planned
    assert (raw / again["dctcp"]["run"] / "plan.csv").read_bytes() == asked[0]


def test_fresh_queries_open_new_connections(tmp_path: Path) -> None:
    options = ("--workers", "4,8", "--total", "80000", "--queries", "3", "--fresh", "--deadline", "2000")
    out = tmp_path / "out"
    done = _lab("incast", "--schemes", "plain", *options, "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    few, many = json.loads(done.stdout)
    assert (few["size_bytes"], many["size_bytes"]) == (20_000, 10_000)
    for row in (few, many):
        records = (out / "raw" / row["run"] / "traffic.jsonl").read_text()
        assert records.count('"event":"query"') == 3
        assert records.count('"event":"closed"') == 3 * row["workers"]  # a connection a query and worker
        assert row["missed"] == 0


def test_senders_follow_n_of_the_switch(tmp_path: Path) -> None:
    out, workers = tmp_path / "out", 4
    options = ("--workers", str(workers), "--size", "20KB", "--queries", "3", "--deadline", "2000")
    done = _lab("incast", "--schemes", "ap-reno-switch", *options, "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["missed"] == 0
    log = (out / "raw" / row["run"] / "follower.log").read_text()
    assert f"{workers} paths to 1 destinations" in log


@pytest.mark.parametrize("more", [(), ("--unpinned", "--jitter", "2", "--duplicate", "2", "--loss", "5")])
def test_a_delay_is_applied_and_every_packet_is_counted(tmp_path: Path, more: tuple[str, ...]) -> None:
    """A query on standing connections takes at least two delays. netem makes a plain delay if it is there."""
    before = machine()
    out = tmp_path / "out"
    options = ("--schemes", "plain", "--workers", "2", "--queries", "3", "--delay", "20")
    done = _lab("incast", *options, *more, "--out", str(out), "--json")
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


def test_a_full_disk_is_one_line_and_finished_runs_are_kept(tmp_path: Path) -> None:
    before = machine()
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(small)), check=True)
    try:
        out = small / "out"
        options = ("--schemes", "plain", "--workers", "2", "--queries", "3", "--repeat", "50")
        argv = (WEIR, "lab", "incast", *options, "--out", str(out))
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as lab:
            first = out / "raw" / "incast-plain-1" / "run.json"
            assert _wait_for_file(lab, first)
            with suppress(OSError), open(small / "full", "wb", buffering=0) as full:
                while True:
                    full.write(bytes(1 << 12))
            _, errors = lab.communicate(timeout=BOUND_S)
        assert lab.returncode == 1
        assert errors.splitlines()[-1].startswith("weir lab: ")
        assert "Traceback" not in errors
        ended = [json.loads(path.read_text()) for path in out.glob("raw/*/run.json")]
        assert json.loads(first.read_text()) in ended
        assert_nothing_left(before, small)
    finally:
        subprocess.run(("umount", str(small)), check=True)


def _wait_for_file(lab: subprocess.Popen[str], path: Path) -> bool:
    """Wait until a running lab has written a file, or has ended; return whether the file exists."""
    return wait_until(lambda: path.exists() or lab.poll() is not None, BOUND_S) and path.exists()


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
    text = f"""
schemes = ["plain"]
repeat_until_s = 0.0
{LINK}
cases = [{{ name = "starved", title = "2 long flows", background = 2, duration_s = 3.0 }}]
"""
    (tmp_path / "starved.toml").write_text(text)
    run = tmp_path / "out" / "starved" / "raw" / "starved-plain-1"
    argv = (WEIR, "lab", "run", str(tmp_path / "starved.toml"), "--out", str(tmp_path / "out"), "--json")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as lab:
        assert _wait_for_file(lab, run / "traffic.jsonl")
        with _busy_cpus():
            assert _wait_for_file(lab, run / "run.json")
        output, errors = lab.communicate(timeout=BOUND_S)
    assert lab.returncode == 0, errors
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
    row = _rows(tmp_path, "two", text)["plain"]
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
