"""Comparisons whose schemes were disturbed unequally, void attempts, and summaries of older versions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mininet_topos.cli import lab
from mininet_topos.results.caveats import (
    mixed_versions,
    not_recorded,
    slow_switches,
    unended_flows,
    unequal_cases,
    void_attempts,
)
from mininet_topos.results.statistics import fisher_p
from mininet_topos.results.summary import read_summary, summarise
from tests.support.lab.result_folders import THREE_SCHEMES, leave_out_the_plots, write_folder


def row(scheme: str, disturbed: int, stolen: float | None = 0.0, **more: Any) -> dict[str, Any]:
    exposure = {"span_s": 4.0, "stolen": stolen, "all_stalled": 0.0, "one_stalled": 0.0}
    values = {"experiment": "e", "case": "A", "scheme": scheme, "queries": 20, "attempt": 1, "valid": True}
    return values | {"disturbed": [{}] * disturbed, "exposure": exposure, "void_attempts": []} | more


def test_fishers_test_of_known_tables() -> None:
    assert fisher_p(0, 20, 8, 20) == pytest.approx(0.00328, abs=1e-5)
    assert fisher_p(8, 10, 1, 6) == pytest.approx(0.03497, abs=1e-5)
    assert fisher_p(5, 20, 5, 20) == pytest.approx(1)
    assert fisher_p(0, 0, 3, 20) == pytest.approx(1)


@pytest.mark.parametrize(
    ("rows", "unequal"),
    [
        ([row("plain", 0), row("sdtcp", 8), row("sccp", 2)], True),
        ([row("plain", 1), row("sdtcp", 5), row("sccp", 2)], False),
        ([row("plain", 7), row("sdtcp", 8), row("sccp", 7)], False),
        ([row("plain", 0, stolen=0.001), row("sccp", 0, stolen=0.03)], True),
        ([row("plain", 0, stolen=0.02), row("sccp", 0, stolen=0.03)], False),
        ([row("plain", 0, stolen=None), row("sccp", 0, stolen=0.01)], False),
        ([row("plain", 0), row("sdtcp", 8, case="B")], False),  # not compared
        ([row("plain", 0), row("plain", 0, stolen=0.2, valid=False), row("sccp", 0)], False),
        (
            [row("plain", 0), row("plain", 0, stolen=0.06, valid=False), row("sccp", 0, stolen=0.03)],
            True,  # the void run would hide it
        ),
        ([row("plain", 0, stolen=0.2, valid=False), row("sccp", 0)], True),  # nothing else of plain TCP
    ],
)
def test_unequal_disturbance_is_found(rows: list[dict[str, Any]], unequal: bool) -> None:
    assert bool(unequal_cases(rows)) is unequal


def test_repeats_are_taken_together() -> None:
    rows = [row(scheme, count) for scheme, count in (("plain", 0), ("sccp", 4)) for _ in range(2)]
    assert unequal_cases(rows) == [
        "case A: disturbed unequally by the machine (plain TCP: 0 of 40 queries, 0.0% of the time; "
        "SCCP: 8 of 40 queries, 0.0% of the time)"
    ]
    assert unequal_cases(rows[::2]) == []


def test_a_scheme_whose_packets_waited_for_the_switch_is_named() -> None:
    backlogs = {"plain": [None, 64_000], "sccp": [300_000, 812_345]}
    rows = [
        row(scheme, 0, queue_bytes=64_000, switch_backlog=mean and {"mean": mean, "max": 2 * mean})
        for scheme, means in backlogs.items()
        for mean in means
    ]
    assert slow_switches(rows) == [
        "SCCP, case A: 812 KB waited on average for Open vSwitch's thread, and the queue holds 64 KB: "
        "the machine may have limited this scheme"
    ]


def test_void_attempts_are_counted_by_scheme() -> None:
    void = [{"attempt": 1, "reasons": ["a"]}, {"attempt": 2, "reasons": ["a", "b"]}]
    failed_later = [row("plain", 0, void_attempts=[void[0], void[1]])]
    assert void_attempts(failed_later) == ["plain TCP: 2 of 2 attempts were void: a; b"]
    rows = [row("plain", 0), row("sccp", 0, attempt=3, void_attempts=void), row("sccp", 0)]
    assert void_attempts(rows) == ["SCCP: 2 of 4 attempts were void: a; b"]


def test_runs_of_different_versions_are_named() -> None:
    """A resumed experiment may have been begun at another commit."""
    first = {"commit": "a" * 40, "changed": [], "kernel": "6.12"}
    rows = [row("plain", 0, version=one) for one in (first, first, first | {"changed": ["x"]}, None)]
    assert mixed_versions(rows) == [
        "the runs are of different versions: 2 of aaaaaaaaa on Linux 6.12; 1 of aaaaaaaaa with changes on"
        " Linux 6.12"
    ]
    assert mixed_versions(rows[:2]) == []
    edited = [first | {"changed": ["x"], "diff": diff} for diff in ("1f", "1f", "2e")]
    assert mixed_versions([row("plain", 0, version=one) for one in edited]) == [
        "the runs are of different versions: 2 of aaaaaaaaa with changes (1f) on Linux 6.12; 1 of aaaaaaaaa"
        " with changes (2e) on Linux 6.12"
    ]


def test_flows_that_did_not_end_are_named() -> None:
    counts = ((40, 40, True), (38, 40, True), (0, 40, False))
    rows = [row("plain", 0, flows_done=d, flows_planned=p, valid=v) for d, p, v in counts]
    assert unended_flows(rows) == [
        "plain TCP, case A: 2 of 40 planned flows had not ended: they count as infinitely slow"
    ]


def _stall_all_queries(folder: Path, scheme: str) -> None:
    for run in folder.glob(f"raw/A-{scheme}-*/run.json"):
        stalls = [{"cpu": 0, "start_ns": 2e9 + n * 2e8, "ns": 2e6} for n in range(4)]
        run.write_text(json.dumps(json.loads(run.read_text()) | {"stalls": stalls}))


def test_an_unequal_comparison_says_so_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_the_plots(monkeypatch)
    write_folder(tmp_path, replace(THREE_SCHEMES, schemes=("plain", "sdtcp")))
    _stall_all_queries(tmp_path, "sdtcp")
    done = CliRunner().invoke(lab, ["report", str(tmp_path)])
    assert done.exit_code == 0, done.output
    wanted = "case A: disturbed unequally by the machine (plain TCP: 0 of 4 queries"
    assert done.stdout.splitlines()[0].startswith(wanted)
    assert (
        "SDTCP: a CPU stood still in the first 107 ms of 4 of 4 queries; p50 without these - ms"
        in done.stdout
    )
    assert "SDTCP: 2 of 4 attempts were void" in done.stdout
    page = (tmp_path / "report.html").read_text()
    body = page[page.index("</h1>") :]
    assert body.index("disturbed unequally") < body.index("<p>")
    assert "SDTCP: 2 of 4 attempts were void" in page
    assert "4 (63 ms): CPU 0 for 2.0 ms, 0 ms after its start" in page


def test_an_unequal_comparison_of_folders_says_so_first(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        write_folder(folder, THREE_SCHEMES)
    _stall_all_queries(folders[1], "plain")
    for folder in folders:
        summarise(folder)
    done = CliRunner().invoke(lab, ["compare", *map(str, folders)])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("case A, plain TCP: disturbed unequally by the machine (before: 0 of 4")


def test_a_summary_of_an_older_version_is_read_and_what_is_missing_is_said(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("older", "newer")]
    for folder in folders:
        write_folder(folder, THREE_SCHEMES)
        summarise(folder)
    newer = {"qct_ms_undisturbed", "disturbed", "exposure", "void_attempts", "horizon_ms"}
    newer |= {"switch_waited_ms", "switch_backlog"}
    rows = [
        {key: value for key, value in one.items() if key not in newer} | {"queries_left_out": 1}
        for one in json.loads((folders[0] / "summary.json").read_text())
    ]
    (folders[0] / "summary.json").write_text(json.dumps(rows))
    assert len(read_summary(folders[0])) == 9
    done = CliRunner().invoke(lab, ["compare", *map(str, folders)])
    assert done.exit_code == 0, done.output
    assert (
        "before: an older version made this summary: 9 queries are not counted; `weir lab summ" in done.output
    )
    assert "before: some of these runs are without time that the hypervisor states and " in done.output
    assert not_recorded(summarise(folders[1])) == [
        "some of these runs are without time that the hypervisor states and stalls of all CPUs at once: "
        "an older version recorded them, or they ended before the first sample"
    ]
