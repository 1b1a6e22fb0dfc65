"""How often void runs are repeated, and attempts that failed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mininet_topos.cli.terminal import reported
from mininet_topos.errors import RunFailed
from mininet_topos.records.result_folder import MOST_ATTEMPTS, attempts, is_done, note_failure, run_name
from mininet_topos.results.caveats import missing_runs
from mininet_topos.results.summary import ended_attempts, summarise
from mininet_topos.running.experiment_runner import MOST_VOID_IN_A_ROW, Progress, VoidRuns, run_case
from tests.support.lab.examples import CASE, one_case
from tests.support.lab.result_folders import leave_out_the_plots, write_run

LATER, EARLIER = time.monotonic() + 3600, time.monotonic() - 1


def test_a_void_run_is_repeated_until_its_last_attempt() -> None:
    void_runs = VoidRuns(LATER)
    assert [void_runs.may_repeat(attempt) for attempt in (1, MOST_ATTEMPTS)] == [True, False]


def test_no_void_run_is_repeated_after_the_time() -> None:
    assert not VoidRuns(EARLIER).may_repeat(1)


def test_no_void_run_is_repeated_after_many_in_a_row() -> None:
    assert VoidRuns(LATER, MOST_VOID_IN_A_ROW - 1).may_repeat(1)
    assert not VoidRuns(LATER, MOST_VOID_IN_A_ROW).may_repeat(1)


class Runner:
    """A runner whose first attempts fail: a query does not end in time."""

    def __init__(self, folder: Path, failures: int) -> None:
        self.folder, self.failures = folder, failures

    def run(self, _case: Any, _scheme: Any, run: Path, attempt: int, _on_query: Any) -> dict[str, Any]:
        if attempt <= self.failures:
            run.mkdir(parents=True)
            (run / "traffic.jsonl").write_text('{"event":"error"}')
            raise RunFailed("no query ended within 35 s")
        write_run(self.folder, CASE.name, "plain", attempt, True, False)
        return json.loads((run / "run.json").read_text())


def start(runner: Runner) -> None:
    scheme = SimpleNamespace(scheme=SimpleNamespace(name="plain"))
    quiet = Progress(*[lambda *_: None] * 3)
    stem = runner.folder / "raw" / f"{CASE.name}-plain"
    run_case(runner, CASE, scheme, stem, quiet, VoidRuns(LATER))  # type: ignore[arg-type]


def test_an_attempt_that_failed_stays_and_counts(tmp_path: Path) -> None:
    """Otherwise an experiment that is started again would show the runs only that went well."""
    experiment, runner = one_case(), Runner(tmp_path, 1)
    (tmp_path / "metadata.json").write_text(json.dumps({"experiment": experiment.to_json()}))
    with pytest.raises(RunFailed):
        start(runner)
    assert summarise(tmp_path) == []
    start(runner)
    (row,) = summarise(tmp_path)
    assert (row["attempt"], row["valid"]) == (2, True)
    assert row["void_attempts"] == [{"attempt": 1, "reasons": ["no query ended within 35 s"]}]
    first = attempts(tmp_path / "raw", f"{CASE.name}-plain")[0]
    assert (first / "traffic.jsonl").exists()


def test_a_run_that_always_fails_ends_after_its_last_attempt(tmp_path: Path) -> None:
    runner = Runner(tmp_path, MOST_ATTEMPTS)
    for _ in range(MOST_ATTEMPTS):
        assert not is_done(tmp_path / "raw", f"{CASE.name}-plain")
        with pytest.raises(RunFailed):
            start(runner)
    assert is_done(tmp_path / "raw", f"{CASE.name}-plain")
    ((_, _, ended),) = ended_attempts(tmp_path, one_case())
    assert len(ended) == MOST_ATTEMPTS


def _fail(run: Path, attempt: int) -> None:
    run.mkdir()
    note_failure(run, attempt, "no query ended within 35 s")


def test_runs_without_figures_are_named_with_what_can_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose attempts are used up is not repeated: nobody may take the other runs for all."""
    leave_out_the_plots(monkeypatch)
    experiment = one_case(repeats=3)
    about = {"git": {"commit": "abc", "changed": []}, "sysctl": {}}
    (tmp_path / "metadata.json").write_text(json.dumps({"experiment": experiment.to_json()} | about))
    write_run(tmp_path, CASE.name, "plain", 1, True, False)
    raw = tmp_path / "raw"
    for repeat, failures in ((2, MOST_ATTEMPTS), (3, 1)):
        for attempt in range(1, failures + 1):
            _fail(raw / f"{run_name(CASE, 'plain', repeat)}-{attempt}", attempt)
    warned: list[str] = []
    assert len(reported(tmp_path, Progress(lambda _: None, lambda: None, warned.append))) == 1
    assert warned == [
        "2 of 3 runs have no figures: `weir lab run --resume` carries out 1 of them",
        "A-plain-r2: 3 of 3 attempts failed: no query ended within 35 s; to try again, remove the cause and "
        "run the experiment in another --out",
        "A-plain-r3: 1 of 3 attempts failed: no query ended within 35 s",
    ]
    page = (tmp_path / "report.html").read_text()
    assert all(line.split("`")[0] in page for line in warned)
    for attempt in range(2, MOST_ATTEMPTS + 1):
        _fail(raw / f"{run_name(CASE, 'plain', 3)}-{attempt}", attempt)
    assert missing_runs(tmp_path, experiment, summarise(tmp_path))[0] == "2 of 3 runs have no figures"
