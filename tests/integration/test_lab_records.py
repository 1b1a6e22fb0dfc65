"""The records of the lab's runs. No test here judges a time or a rate, so other work may void its runs."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.lab.lab_command import BOUND_S, WEIR, lab, rows_of, wait_for_file
from tests.support.lab.leftovers import assert_nothing_left, machine

pytestmark = [pytest.mark.lab_beside_others, pytest.mark.timeout(BOUND_S + 30)]


def test_planned_flows_depend_on_the_seed_and_an_interrupted_run_is_resumed(tmp_path: Path) -> None:
    text = """
schemes = ["plain", "dctcp"]
bandwidth_mbps = 100
queue_bytes = 150_000
repeat_until_s = 0.0
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
deadlines = { mean_us = 500_000 }
"""
    rows = rows_of(tmp_path, "web", text)
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
    again = rows_of(tmp_path, "web", text, "--resume")
    assert (runs[0] / "run.json").stat().st_mtime_ns == kept
    assert again["dctcp"]["flows_done"] == planned
    assert (raw / again["dctcp"]["run"] / "plan.csv").read_bytes() == asked[0]


def test_fresh_queries_open_new_connections(tmp_path: Path) -> None:
    options = ("--workers", "4,8", "--total", "80000", "--queries", "3", "--fresh", "--deadline", "2000")
    out = tmp_path / "out"
    done = lab("incast", "--schemes", "plain", *options, "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    few, many = json.loads(done.stdout)
    assert (few["size_bytes"], many["size_bytes"]) == (20_000, 10_000)
    for row in (few, many):
        records = (out / "raw" / row["run"] / "traffic.jsonl").read_text()
        settings = json.loads((out / "raw" / row["run"] / "run.json").read_text())["sysctl"]
        assert {host["tcp_no_metrics_save"] for host in settings.values()} == {"1"}  # the machine has 0
        assert records.count('"event":"query"') == 3
        assert records.count('"event":"closed"') == 3 * row["workers"]  # a connection a query and worker
        assert row["missed"] == 0


def test_senders_follow_n_of_the_switch(tmp_path: Path) -> None:
    out, workers = tmp_path / "out", 4
    options = ("--workers", str(workers), "--size", "20KB", "--queries", "3", "--deadline", "2000")
    done = lab("incast", "--schemes", "ap-reno-switch", *options, "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["missed"] == 0
    log = (out / "raw" / row["run"] / "follower.log").read_text()
    assert f"{workers} paths to 1 destinations" in log


def test_a_full_disk_is_one_line_and_finished_runs_are_kept(tmp_path: Path) -> None:
    before = machine()
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(small)), check=True)
    try:
        out = small / "out"
        options = ("--schemes", "plain", "--workers", "2", "--queries", "3", "--repeat", "50")
        argv = (WEIR, "lab", "incast", *options, "--out", str(out))
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as running:
            first = out / "raw" / "incast-plain-1" / "run.json"
            assert wait_for_file(running, first)
            with suppress(OSError), open(small / "full", "wb", buffering=0) as full:
                while True:
                    full.write(bytes(1 << 12))
            _, errors = running.communicate(timeout=BOUND_S)
        assert running.returncode == 1
        assert errors.splitlines()[-1].startswith("weir lab: ")
        assert "Traceback" not in errors
        ended = [json.loads(path.read_text()) for path in out.glob("raw/*/run.json")]
        assert json.loads(first.read_text()) in ended
        assert_nothing_left(before, small)
    finally:
        subprocess.run(("umount", str(small)), check=True)


def test_each_fitted_case_runs_on_its_own_network(tmp_path: Path) -> None:
    before, out = machine(), tmp_path / "out"
    options = ("--schemes", "ecn", "--workers", "4,2", "--fitted", "--queries", "2", "--size", "10000")
    done = lab("incast", *options, "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    assert_nothing_left(before, out)
    assert [(row["workers"], row["scheme"]) for row in json.loads(done.stdout)] == [(4, "ecn"), (2, "ecn")]
    assert {"ecn-4+0", "ecn-2+0"} <= {path.name for path in (out / "raw").iterdir()}
