"""Experiments in files: their heads, bad files and names, resumption, and the comparison of folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mininet_topos.cli import lab
from mininet_topos.errors import BadExperiment
from mininet_topos.experiments import catalogue
from mininet_topos.records.result_folder import attempts, is_begun, is_done, run_name
from mininet_topos.running import experiment_runner
from tests.support.lab.examples import CASE, EXPERIMENT_FILE, one_case


@pytest.mark.parametrize("name", sorted(catalogue.entries()))
def test_every_experiment_states_what_it_reproduces(name: str) -> None:
    entry = catalogue.entries()[name]
    assert list(entry.head) == list(catalogue.HEAD)
    assert all(entry.head.values()), "an empty statement"
    assert entry.experiment.name == name


def test_experiments_are_chosen_by_name_set_or_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(EXPERIMENT_FILE)
    there = catalogue.entries()
    assert [entry.experiment.name for entry in catalogue.chosen(["all"])] == list(there)
    quick = [entry.experiment.name for entry in catalogue.chosen(["quick"])]
    assert quick
    assert set(quick) < set(there)
    assert catalogue.chosen([str(path)])[0].experiment.cases[0].workers == 3


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schemes = [", "schemes = [[", "is not TOML"),
        ("cases = [", "other = [", "unknown key 'other'"),
        ("bandwidth_mbps = 100", "", "the experiment: the key 'bandwidth_mbps' is missing; add it"),
        ("queue_bytes", "queue_byte", "unknown key 'queue_byte'; did you mean 'queue_bytes'?"),
        ("cases = [", "cases = 3 # [", "cases is 3; want a list"),
        ("workers = 3", "wrokers = 3", "case a: unknown key 'wrokers'; did you mean 'workers'?"),
        ("workers = 3", "workers = '3'", "case a: workers is '3'; want a whole number"),
        ('name = "a"', 'name = "a/b"', "becomes part of a file name: use letters"),
        ('"plain"', '"tcp"', "schemes: no scheme is called 'tcp': use some of plain"),
        ("queries = 1", "queries = 0", "case a has no traffic: set queries, flows, or background"),
        ("queries = 1", 'flows = { kind = "x" }', "kind is 'x'; want one of random, incast"),
        ("queries = 1", 'flows = { kind = "shuffle" }', "the key 'size_bytes' is missing"),
        ("queries = 1", 'flows = { kind = "random", sizes = "x" }', "want a number of bytes or web-search"),
        ("queries = 1", 'flows = { kind = ["random"] }', "kind is ['random']; want one of random"),
        ("queries = 1", 'flows = { kind = "random", sizes = [9] }', "want a number of bytes or web-search"),
        ("queries = 1", 'flows = { kind = "random", sizes = 0 }', "want a number of bytes or web-search"),
        (
            "queries = 1",
            'flows = { kind = "random", sizes = "hadoop", most_bytes = "9" }',
            "most_bytes is '9'; want a whole number",
        ),
        (
            "queries = 1",
            'flows = { kind = "permutation", size_bytes = 9, deadlines = 5 }',
            "workload permutation: deadlines is 5; want a table",
        ),
        ("queries = 1", 'flows = { kind = "replay", trace = 5 }', "trace is 5; want the path of a file"),
        (
            "queries = 1",
            'flows = { kind = "replay", trace = [["0", "worker1", "root", 9, 9]] }',
            "; want five values: start in us",
        ),
        (
            "queries = 1",
            "background = 1, duration_s = 1, segment_bytes = 640",
            "case a: segment_bytes is that of responses, so it needs queries",
        ),
        ("queries = 1", "queries = 1, segment_bytes = 75", "case a: segment_bytes is 75; want 76 to 1448"),
        ("queries = 1", "queries = 1, deadline_ms = -5", "case a: deadline_ms is -5; want 0.001 to 3600000"),
        ("queries = 1", "background = 1, duration_s = inf", "case a: duration_s is inf; want 0 or more"),
        ('["plain"]', "[5]", "schemes is (5,); want a list, each value text in quotes"),
        ("cases = [", "warmup_s = nan\ncases = [", "warmup_s is nan; want 0 or more"),
        (
            "cases = [",
            'rates_mbps = { trunk = "9" }\ncases = [',
            "rates_mbps is {'trunk': '9'}; want a table, each value a number",
        ),
        *(
            ("cases = [", f"name = '{name}'\ncases = [", f"name is {name!r}; want the name of a folder")
            for name in ("", ".", "..", "a/b", "/a", "../a")
        ),
        ("cases = [", "quick = 'false'\ncases = [", "quick is 'false'; want true or false"),
        ("cases = [", "trends = 5\ncases = [", "trends is 5; want tables [[trends]]"),
        ("cases = [", "trends = [5]\ncases = [", "want a table of keys and values, not 5"),
        ("}]", "}, { name = 'a', title = 'b', queries = 1 }]", "two cases have the same name"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in EXPERIMENT_FILE
    path = tmp_path / "mine.toml"
    path.write_text(EXPERIMENT_FILE.replace(old, new, 1))
    done = CliRunner().invoke(lab, ["run", str(path)])
    assert done.exit_code == 1
    assert message in done.stderr
    assert done.stderr.startswith(f"weir lab: {path}")
    assert done.stderr.count("\n") == 1


def test_fields_are_changed_from_the_command_line(tmp_path: Path) -> None:
    """A trend of a scheme that is gone is left out, and named."""
    path = tmp_path / "mine.toml"
    path.write_text(
        EXPERIMENT_FILE.replace('["plain"]', '["plain", "sccp"]')
        + """
[[trends]]
figure = "none"
says = "plain is never slow"
scheme = "plain"
value = "timeouts"
most = 0
[[trends]]
figure = "none"
says = "SCCP is never slow"
scheme = "sccp"
value = "timeouts"
most = 0
"""
    )
    changes = {"schemes": ["plain"], "delay_ms": 5, "congestion_control": "bbr"}
    entry = catalogue.chosen([str(path)], changes)[0]
    own = entry.experiment
    assert (own.schemes, own.delay_ms, own.congestion_control) == (("plain",), 5, "bbr")
    assert [one.says for one in entry.trends] == ["plain is never slow"]
    assert entry.left_out == ("SCCP is never slow",)
    assert entry.about["changes"] == changes
    assert catalogue.chosen([str(path)])[0].left_out == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["delay_msec=5"], "mine.toml with --set: the experiment: unknown key 'delay_msec'; did you mean"),
        (["delay_ms=-5"], "mine.toml with --set: delay_ms is -5"),
        (["delay_ms=5", "delay_ms=6"], "--set gives delay_ms twice: give it once"),
        (["schemes=['none']"], "no scheme is called 'none'"),
    ],
)
def test_bad_changes_are_refused_in_one_line(given: list[str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(EXPERIMENT_FILE)
    options = [text for one in given for text in ("--set", one)]
    done = CliRunner().invoke(lab, ["run", str(path), *options])
    assert done.exit_code == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_unknown_name_is_refused_with_the_known_names() -> None:
    done = CliRunner().invoke(lab, ["run", "nosuch"])
    assert done.exit_code == 1
    assert done.stderr.startswith("weir lab: no experiment is called 'nosuch': use all, quick, ")
    assert done.stderr.count("\n") == 1


def test_the_list_states_what_each_experiment_reproduces() -> None:
    rows = json.loads(CliRunner().invoke(lab, ["list", "--json"]).stdout)
    assert {row["name"] for row in rows} == set(catalogue.entries())
    assert any("SDTCP, figure" in row["reproduces"] for row in rows)
    lines = CliRunner().invoke(lab, ["list"], env={"COLUMNS": "80"}).stdout.splitlines()
    assert {row["name"] for row in rows} <= {line.split()[0] for line in lines}
    assert all(len(line) <= 80 for line in lines)


def _ended(raw: Path, name: str, valid: bool) -> None:
    (raw / name).mkdir(parents=True)
    (raw / name / "run.json").write_text(json.dumps({"valid": valid}))


def test_a_resumed_run_skips_finished_runs(tmp_path: Path) -> None:
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
    assert not is_begun(tmp_path, one_case())
    (tmp_path / "metadata.json").write_text(json.dumps({"experiment": one_case().to_json()}))
    assert is_begun(tmp_path, one_case())
    with pytest.raises(
        BadExperiment, match=r"holds another experiment, which differs in repeats, seed: give"
    ):
        is_begun(tmp_path, one_case(seed=2, repeats=6))
    done = CliRunner().invoke(lab, ["run", "thesis-3hosts", "--resume"])
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "name it with --out" in done.stderr


def test_a_second_start_in_a_folder_is_refused_while_the_first_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each of them deletes the attempts of the other one, which it takes for interrupted."""
    quiet = experiment_runner.Progress(*[lambda *_: None] * 3)
    folder, refused = tmp_path / "t", []

    def start() -> None:
        experiment_runner.run_experiment(one_case(), folder, quiet, resume=True)

    def start_again(*_: object) -> None:
        with pytest.raises(BadExperiment, match=f"another `weir lab run` works in {folder}: wait"):
            start()
        refused.append(folder)

    monkeypatch.setattr(experiment_runner, "metadata", lambda one: {"experiment": one.to_json()})
    monkeypatch.setattr(experiment_runner, "_run_schemes", start_again)
    start()
    start()
    assert refused == [folder, folder]


@pytest.mark.parametrize("more", [[], ["--resume"]])
def test_several_experiments_are_refused_before_the_first_run_if_one_has_no_folder(
    more: list[str], tmp_path: Path
) -> None:
    """Otherwise hours of other experiments pass before the command ends with this error."""
    files = []
    for name in ("first", "second"):
        files.append(str(tmp_path / f"{name}.toml"))
        Path(files[-1]).write_text(EXPERIMENT_FILE)
    out = tmp_path / "out"
    (out / "second").mkdir(parents=True)
    for names, message in (
        (files, f"{out}/second exists already: give another --out"),
        ([files[0], files[0]], "two experiments are called first, and each needs a folder of its own"),
    ):
        done = CliRunner().invoke(lab, ["run", *names, "--out", str(out), *more])
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
        assert message in done.stderr
        assert not (out / "first").exists()


def _summary(folder: Path, **changes: Any) -> Path:
    row = {"case": "A", "scheme": "plain", "valid": True, "qct_ms": {"p50": 50.0, "p99": 80.0}, "fct_ms": {}}
    row |= {"goodput_mbps": None, "queue_pkts_p50": 10, "drops": 0, "timeouts": 4}
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps([row | changes]))
    (folder / "metadata.json").write_text(json.dumps({"experiment": one_case().to_json()}))
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
def test_folders_with_nothing_in_common_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    folders = (str(_summary(tmp_path / "one")), str(_summary(tmp_path / "other", **changes)))
    done = CliRunner().invoke(lab, ["compare", *folders])
    assert done.exit_code == 1
    assert "no valid run of the same case and scheme" in done.stderr
    assert done.stderr.count("\n") == 1
