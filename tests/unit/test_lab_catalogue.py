"""Experiments in files: each says what it reproduces; bad files and names are one line; folders compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mininet_topos import catalogue
from mininet_topos.cli import lab
from mininet_topos.errors import BadExperiment
from mininet_topos.results.folder import attempts, is_begun, is_done, run_name
from tests.unit.test_lab import CASE, make

GOOD = """
title = "t"
schemes = ["plain"]
bandwidth_mbps = 100
queue_bytes = 150_000
cases = [{ name = "a", title = "a", workers = 3, queries = 1 }]
"""


@pytest.mark.parametrize("name", sorted(catalogue.entries()))
def test_every_experiment_states_what_it_reproduces(name: str) -> None:
    entry = catalogue.entries()[name]
    assert list(entry.head) == list(catalogue.HEAD)
    assert all(entry.head.values()), "an empty statement"
    assert entry.experiment.name == name


def test_names_sets_and_files_are_chosen(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    there = catalogue.entries()
    assert [entry.experiment.name for entry in catalogue.chosen(["all"])] == list(there)
    quick = [entry.experiment.name for entry in catalogue.chosen(["quick"])]
    assert quick
    assert set(quick) < set(there)
    assert catalogue.chosen([str(path)])[0].experiment.cases[0].workers == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schemes = [", "is not TOML"),
        ('schemes = ["plain"]', "not an experiment"),
        (GOOD + "nonsense = 1", "nonsense"),
        (GOOD.replace('"a"', '"a/b"', 1), "is part of a file's"),
        (GOOD.replace('"plain"', '"tcp"'), "schemes are some of"),
        (GOOD.replace("queries = 1", "queries = 0"), "at least one query, flows or timed long flows"),
        (GOOD.replace("queries = 1", 'flows = { kind = "x" }'), "a workload's kind is one of"),
        (GOOD.replace("queries = 1", 'flows = { kind = "shuffle" }'), "size_bytes"),
        (
            GOOD.replace("queries = 1", 'flows = { kind = "random", sizes = "x" }'),
            "sizes are a number of bytes or web-search",
        ),
        (GOOD.replace("}]", "}, { name = 'a', title = 'b', queries = 1 }]"), "a name of its own"),
    ],
)
def test_a_bad_file_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    done = CliRunner().invoke(lab, ["run", str(path)])
    assert done.exit_code == 1
    assert message in done.stderr
    assert done.stderr.startswith(f"weir lab: {path}")
    assert done.stderr.count("\n") == 1


def test_an_unknown_name_is_one_line_with_those_there_are() -> None:
    done = CliRunner().invoke(lab, ["run", "nosuch"])
    assert done.exit_code == 1
    assert done.stderr.startswith("weir lab: no experiment is called 'nosuch': there are all, quick, ")
    assert done.stderr.count("\n") == 1


def test_the_list_says_what_each_reproduces() -> None:
    rows = json.loads(CliRunner().invoke(lab, ["list", "--json"]).stdout)
    assert {row["name"] for row in rows} == set(catalogue.entries())
    assert any("SDTCP, figure" in row["reproduces"] for row in rows)
    assert CliRunner().invoke(lab, ["list"]).stdout.count("\n") == len(rows)


def _ended(raw: Path, name: str, valid: bool) -> None:
    (raw / name).mkdir(parents=True)
    (raw / name / "run.json").write_text(json.dumps({"valid": valid}))


def test_a_resumed_run_knows_what_is_done(tmp_path: Path) -> None:
    assert run_name(CASE, "plain", 1) == "A-plain"
    assert run_name(CASE, "plain", 2) == "A-plain-r2"
    for number, valid in ((1, False), (2, True)):
        _ended(tmp_path, f"A-plain-{number}", valid)
        _ended(tmp_path, f"A-plain-r2-{number}", False)
    (tmp_path / "A-plain-3").mkdir()  # broken off
    assert [path.name for path in attempts(tmp_path, "A-plain")] == ["A-plain-1", "A-plain-2"]
    assert is_done(tmp_path, "A-plain")
    assert not is_done(tmp_path, "A-plain-r2")
    _ended(tmp_path, "A-plain-r2-3", False)
    assert is_done(tmp_path, "A-plain-r2")


def test_only_the_same_experiment_is_resumed(tmp_path: Path) -> None:
    assert not is_begun(tmp_path, make())
    (tmp_path / "metadata.json").write_text(json.dumps({"experiment": make().to_json()}))
    assert is_begun(tmp_path, make())
    with pytest.raises(BadExperiment, match="holds another experiment"):
        is_begun(tmp_path, make(seed=2))
    done = CliRunner().invoke(lab, ["run", "thesis-3hosts", "--resume"])
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "name it with --out" in done.stderr


def _summary(folder: Path, **changes: Any) -> Path:
    row = {"case": "A", "scheme": "plain", "valid": True, "qct_ms": {"p50": 50.0, "p99": 80.0}, "fct_ms": {}}
    row |= {"goodput_mbps": None, "queue_pkts_p50": 10, "drops": 0, "timeouts": 4}
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps([row | changes]))
    return folder


def test_two_folders_are_compared_by_case_scheme_and_figure(tmp_path: Path) -> None:
    one = _summary(tmp_path / "one")
    other = _summary(tmp_path / "other", qct_ms={"p50": 25.0, "p99": 80.0}, drops=3)
    done = CliRunner().invoke(lab, ["compare", str(one), str(other), "--json"])
    rows = {row["figure"]: row for row in json.loads(done.stdout)}
    assert rows["QCT p50"]["ratio"] == 0.5
    assert (rows["drops"]["before"], rows["drops"]["after"], rows["drops"]["ratio"]) == (0, 3, None)
    assert "goodput" not in rows
    assert "QCT p50" in CliRunner().invoke(lab, ["compare", str(one), str(other)]).stdout


@pytest.mark.parametrize("changes", [{"case": "B"}, {"valid": False}])
def test_folders_with_nothing_in_common_are_one_line(changes: dict[str, Any], tmp_path: Path) -> None:
    folders = (str(_summary(tmp_path / "one")), str(_summary(tmp_path / "other", **changes)))
    done = CliRunner().invoke(lab, ["compare", *folders])
    assert done.exit_code == 1
    assert "no valid run of the same case and scheme" in done.stderr
    assert done.stderr.count("\n") == 1
