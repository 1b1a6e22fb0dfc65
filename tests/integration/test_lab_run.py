"""`weir lab incast` on a real network: its rows and its result folder."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab.lab_command import lab
from tests.support.lab.leftovers import assert_nothing_left, machine
from tests.support.lab.void_runs import shown, valid

SCHEMES = ("static-window", "dctcp-k10")


@pytest.fixture
def before() -> dict[str, Any]:
    return machine()


def test_incast_under_plain_tcp_and_sccp(tmp_path: Path, before: dict[str, Any]) -> None:
    out = tmp_path / "out"
    options = ("--schemes", "plain,sccp", "--workers", "12", "--background", "2", "--queries", "4")
    done = lab("incast", *options, "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    assert_nothing_left(before, out)
    plain, sccp = json.loads(done.stdout)
    assert (plain["scheme"], sccp["scheme"]) == ("plain", "sccp")
    _assert_folder_complete(out)
    for row in map(shown, (plain, sccp)):
        assert row["qct_ms"]["p50"] >= row["ideal_ms"] * 0.95
        assert row["busy_rate_mbps"] == pytest.approx(100, rel=0.02)
        assert row["background_mbps"]["before"] > 80
    assert plain["queue_max_bytes"] > 100_000  # two long flows fill the queue
    assert sccp["queue_max_bytes"] < (12 + 2) * 3 * 1500  # three segments of each flow
    assert (sccp["drops"], sccp["ovs_drops"], sccp["timeouts"]) == (0, 0, 0)
    assert sccp["clamps"] > 0
    assert sccp["qct_ms"]["p50"] < plain["qct_ms"]["p50"]


def test_a_minimum_rto_of_5_ms_belongs_to_its_scheme_alone(tmp_path: Path, before: dict[str, Any]) -> None:
    """A queue of six packets drops most of 140 segments, so that a query waits for a timeout."""
    out = tmp_path / "out"
    options = ("--schemes", "rto5,plain", "--workers", "20", "--size", "10KB", "--queue", "10KB")
    done = lab("incast", *options, "--queries", "3", "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    assert_nothing_left(before, out)
    rto5, plain = map(shown, json.loads(done.stdout))
    assert rto5["timeouts"] > 0
    assert plain["qct_ms"]["p50"] > 200, "the minimum RTO of Linux"
    assert rto5["qct_ms"]["p50"] < 150


def test_repeats_are_interleaved_and_a_baseline_sets_windows_or_marks(
    tmp_path: Path, before: dict[str, Any]
) -> None:
    """A window of one segment for each of 20 workers fits into the queue; DCTCP's switch marks beyond K."""
    out = tmp_path / "out"
    options = ("--schemes", "static-window,dctcp-k10", "--workers", "20", "--size", "10KB", "--queue", "60KB")
    done = lab("incast", *options, "--queries", "3", "--repeat", "2", "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    assert_nothing_left(before, out)
    rows = json.loads(done.stdout)
    assert [(row["scheme"], row["repeat"]) for row in rows] == [
        ("static-window", 1),
        ("static-window", 2),
        ("dctcp-k10", 1),
        ("dctcp-k10", 2),
    ]
    order = json.loads((out / "metadata.json").read_text())["order"]
    begun = [
        (block["repeat"], scheme, (out / "raw" / run / "run.json").stat().st_mtime_ns)
        for block in order
        for scheme in block["schemes"]
        for run in [row["run"] for row in rows if (row["scheme"], row["repeat"]) == (scheme, block["repeat"])]
    ]
    assert begun == sorted(begun, key=lambda run: run[2])
    programs = {path.name for path in (out / "raw").iterdir()}
    assert {"dctcp-k10", "dctcp-k10-r2", "static-window-r2"} <= programs
    assert all(row["exposure"]["all_stalled"] is not None for row in rows)
    assert all(0 <= row["switch_backlog"]["mean"] <= row["switch_backlog"]["max"] for row in rows)
    assert any(row["switch_backlog"]["max"] for row in rows)
    static, dctcp = (valid([row for row in rows if row["scheme"] == name])[0] for name in SCHEMES)
    assert static["drops"] == static["timeouts"] == 0
    assert static["queue_max_bytes"] < 20 * 1514 + 5_000  # and some pure ACKs
    assert (dctcp["mark_pkts"], dctcp["marks"] > 0) == (10, True)


def _assert_folder_complete(out: Path) -> None:
    names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert {"metadata.json", "summary.json", "report.html", "plots/query_times.svg"} <= names
    assert {"raw/sccp/agent.log", "raw/sccp/controller.log", "raw/sccp/flowdb.sqlite"} <= names
    metadata = json.loads((out / "metadata.json").read_text())
    assert {"kernel", "ovs", "git", "load_at_start", "arguments", "ended"} <= set(metadata)
    with open(next(out.glob("raw/incast-plain-*/queue.csv"))) as file:
        rows = list(csv.DictReader(file))
    assert max(int(row["bytes_max"]) for row in rows) <= 150_000
    assert sum(int(row["sent_bytes"]) for row in rows) > 1_000_000
