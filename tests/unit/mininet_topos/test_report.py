"""`weir lab report` and its steps: summary, plots and report from raw records."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mininet_topos.cli import lab
from mininet_topos.cli.terminal import show
from mininet_topos.experiments.experiment import Case
from mininet_topos.results.report import make_report
from mininet_topos.results.summary import read_summary, summarise
from mininet_topos.results.table import FLOW_COLUMNS
from mininet_topos.workloads.trace import write_trace
from tests.support.lab.result_folders import (
    THREE_SCHEMES,
    leave_out_the_plots,
    write_folder,
    write_run,
    write_samples,
)

REQUIRED = {
    *("experiment", "scheme", "workers", "size_bytes", "queries", "bandwidth_mbps", "queue_pkts", "ideal_ms"),
    *("qct_ms", "drops", "retransmits", "timeouts", "valid"),
}


def test_a_report_of_long_flows_and_of_a_sweep_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = Case("L", "2 long flows", background=2, duration_s=1.0)
    sweep = [Case(f"S{n}", f"{n} workers", workers=n, queries=4) for n in (10, 20)]
    experiment = replace(THREE_SCHEMES, cases=(long, *sweep), schemes=("plain", "reno+dctcp"), repeats=2)
    metadata = {"experiment": experiment.to_json(), "git": {"commit": "abc", "changed": []}, "sysctl": {}}
    head = {"title": "T", "reproduces": "figure <9>"}
    (tmp_path / "metadata.json").write_text(json.dumps(metadata | {"kernel": "6", "head": head}))
    for scheme in experiment.schemes:
        for case in experiment.cases:
            for repeat in ("", "-r2"):
                write_run(tmp_path, f"{case.name}", f"{scheme}{repeat}", 1, True, False)
                run = tmp_path / "raw" / f"{case.name}-{scheme}{repeat}-1"
                record = json.loads((run / "run.json").read_text())
                record |= {"scheme": scheme, "transports": {"long1": "reno", "long2": "dctcp"}}
                (run / "run.json").write_text(json.dumps(record))
                if case is long:
                    write_samples(run)
    result = CliRunner().invoke(lab, ["report", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [(row["case"], row["repeat"]) for row in rows[:4]] == [("L", 1), ("L", 2)] * 2
    assert rows[0]["goodput_by_transport"] == {"reno": 40, "dctcp": 40}
    assert (rows[0]["fairness"], rows[0]["goodput_mbps"], rows[0]["flows_done"]) == (1, 80, 4)
    assert rows[0]["fct_ms"]["max"] == 13
    assert rows[0]["qct_ms"] == {}
    plots = {path.stem for path in (tmp_path / "plots").glob("*.svg")}
    wanted = {"query_times", "workers", "queue_S10", "queue_S20", "medians"}
    assert plots == wanted | {"flows_L", "completion_times", "queue_distribution"}
    page = (tmp_path / "report.html").read_text()
    assert "figure &lt;9&gt;" in page
    assert "reno 40.0" in page
    leave_out_the_plots(monkeypatch)
    shown = CliRunner().invoke(lab, ["report", str(tmp_path)]).stdout
    assert "TCP+DCTCP" in shown


def test_a_report_of_planned_flows_that_did_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flows = {"kind": "staggered", "count": 5, "every_us": 1000, "size_bytes": 9000}
    case = Case("F", "5 flows", flows=flows, duration_s=1.0)
    experiment = replace(THREE_SCHEMES, cases=(case,), schemes=("plain",), repeats=2)
    metadata = {"experiment": experiment.to_json(), "git": {"commit": "abc", "changed": []}, "sysctl": {}}
    (tmp_path / "metadata.json").write_text(json.dumps(metadata | {"kernel": "6"}))
    write_run(tmp_path, case.name, "plain", 1, True, False)
    run = tmp_path / "raw" / "F-plain-1"
    write_samples(run)
    write_trace(run / "plan.csv", experiment.plan(case))
    leave_out_the_plots(monkeypatch)
    shown = CliRunner().invoke(lab, ["report", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    (row,) = read_summary(tmp_path)
    assert {column.name: column.cell(row) for column in FLOW_COLUMNS}["fct_p99"] == "not done"
    assert "1 of 5 planned flows had not ended" in shown.stdout
    assert "1 of 2 runs have no figures" in shown.stderr
    page = (tmp_path / "report.html").read_text()
    assert "<td>not done</td>" in page
    assert "All 1 runs that have ended are valid" in page


def test_a_report_of_repeats_that_are_all_void(tmp_path: Path) -> None:
    case = Case("S", "10 workers", workers=10, queries=4)
    experiment = replace(THREE_SCHEMES, cases=(case,), schemes=("plain",), repeats=2)
    metadata = {"experiment": experiment.to_json(), "git": {"commit": "abc", "changed": []}, "sysctl": {}}
    (tmp_path / "metadata.json").write_text(
        json.dumps(metadata | {"kernel": "6", "head": {"title": "T", "reproduces": "nothing"}})
    )
    for repeat in ("", "-r2"):
        write_run(tmp_path, case.name, f"plain{repeat}", 1, False, False)
    result = CliRunner().invoke(lab, ["report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "2 of 2 runs are void" in (tmp_path / "report.html").read_text()
    assert not (tmp_path / "plots" / "medians.svg").exists()


def test_a_report_of_flows_whose_first_repeat_failed(tmp_path: Path) -> None:
    case = Case("L", "2 long flows", background=2, duration_s=1.0)
    experiment = replace(THREE_SCHEMES, cases=(case,), schemes=("plain",), repeats=2)
    metadata = {"experiment": experiment.to_json(), "git": {"commit": "abc", "changed": []}, "sysctl": {}}
    (tmp_path / "metadata.json").write_text(json.dumps(metadata | {"kernel": "6"}))
    write_run(tmp_path, case.name, "plain-r2", 1, True, False)
    run = tmp_path / "raw" / "L-plain-r2-1"
    write_samples(run)
    (run / "run.json").write_text(
        json.dumps(json.loads((run / "run.json").read_text()) | {"scheme": "plain"})
    )
    result = CliRunner().invoke(lab, ["report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "plots" / "flows_L.svg").exists()


def test_each_step_can_be_repeated_alone(folder: Path) -> None:
    missing = CliRunner().invoke(lab, ["plot", str(folder)])
    assert (missing.exit_code, missing.stderr.count("\n")) == (1, 1)
    assert "weir lab summarise" in missing.stderr
    rows = json.loads(CliRunner().invoke(lab, ["summarise", str(folder)]).stdout)
    assert len(rows) == 9
    assert not (folder / "plots").exists()
    drawn = CliRunner().invoke(lab, ["plot", str(folder)]).stdout.splitlines()
    assert all(Path(path).exists() for path in drawn)
    assert not (folder / "report.html").exists()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path, THREE_SCHEMES)
    return tmp_path


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `weir lab report` leaves it; what it printed is in `printed`. Not to be changed."""
    folder = tmp_path_factory.mktemp("reported")
    write_folder(folder, THREE_SCHEMES)
    result = CliRunner().invoke(lab, ["report", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    (folder / "printed").write_text(result.stdout)
    return folder


def test_rows_are_made_from_raw_records_alone(reported: Path) -> None:
    rows = json.loads((reported / "printed").read_text())
    assert json.loads((reported / "summary.json").read_text()) == rows
    assert [(row["case"], row["scheme"]) for row in rows] == [
        (c, s) for c in "ABC" for s in THREE_SCHEMES.schemes
    ]
    for row in rows:
        assert set(row) >= REQUIRED
        assert row["qct_ms"] == {"p50": 61.0, "p95": 63.0, "p99": 63.0, "max": 63.0}
        assert (row["drops"], row["ovs_drops"], row["lost"]) == (7, 2, 9)
        assert (row["retransmits"], row["timeouts"]) == (5, 1)
        extended = row["scheme"] != "plain"
        counts = (row["alarms"], row["clamps"], row["marks"])
        assert counts == ((5, 20, 6) if extended else (None, None, None))
    assert [row["attempt"] for row in rows if (row["case"], row["scheme"]) == ("C", "sdtcp")] == [2]
    assert [row["valid"] for row in rows].count(False) == 1
    assert rows[0]["cpu"] == {"ovs": 0.5}
    assert rows[3]["background_mbps"]["before"] == pytest.approx(80, rel=0.01)


def test_the_report_is_one_file_and_names_void_runs(reported: Path) -> None:
    page = (reported / "report.html").read_text()
    assert "1 of 9 runs are void" in page
    assert "starved of CPU" in page
    assert page.count("<svg") == 5
    assert "<script" not in page
    assert 'src="' not in page
    assert "&lt;6.18&gt;" in page


def test_plots_are_written_as_svg_and_png(reported: Path) -> None:
    names = {path.stem for path in (reported / "plots").glob("*.svg")}
    assert names == {"query_times", "queue_A", "queue_B", "queue_C", "background"}
    for path in (reported / "plots").glob("*.svg"):
        ElementTree.parse(path)  # noqa: S314 - our own file
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_every_query_counts_also_if_all_were_disturbed(folder: Path) -> None:
    run = folder / "raw" / "A-sccp-1" / "run.json"
    stall = {"cpu": 0, "start_ns": 2_000_000_000, "ns": 1_000_000_000}
    run.write_text(json.dumps(json.loads(run.read_text()) | {"stalls": [stall]}))
    result = CliRunner().invoke(lab, ["report", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    (row,) = [row for row in json.loads(result.stdout) if (row["case"], row["scheme"]) == ("A", "sccp")]
    assert row["qct_ms"] == {"p50": 61.0, "p95": 63.0, "p99": 63.0, "max": 63.0}
    assert (len(row["disturbed"]), row["qct_ms_undisturbed"]) == (4, {})
    assert row["exposure"] == {"span_s": 0.663, "stolen": None, "all_stalled": None, "one_stalled": 1.0}


def test_the_table_fits_eighty_columns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_the_plots(monkeypatch)
    monkeypatch.setenv("COLUMNS", "80")
    lines = CliRunner().invoke(lab, ["report", str(folder)]).stdout.splitlines()
    table = lines[: lines.index("A: 40 workers x 32 KB")]
    rows = [line for line in table if line.startswith(("A ", "B ", "C "))]
    assert len(rows) == 9
    assert sum("SDTCP *" in row for row in rows) == 1
    assert all(len(line.rstrip()) <= 80 for line in table)
    assert not any("…" in line for line in lines)


def test_each_of_several_experiments_has_tables_of_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`sdtcp-burst` and `sdtcp-burst-30ms` both have a case `burst`."""
    monkeypatch.setenv("COLUMNS", "80")
    rows = summarise(folder)
    show(rows + [row | {"experiment": "other", "drops": 4321} for row in rows], folder, as_json=False)
    first, second = capsys.readouterr().out.split("experiment other\n")
    assert first.startswith("experiment demo\n")
    assert first.count("1 of 9 runs are void") == second.count("1 of 9 runs are void") == 1
    assert ("4321" in first, "4321" in second) == (False, True)
    show(rows, folder, as_json=False)
    assert "experiment demo" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, "", "{}", '{"experiment": {"cases": [{"nonsense": 1}]}}'])
def test_a_folder_without_results_is_refused_in_one_line(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "metadata.json").write_text(content)
    result = CliRunner().invoke(lab, ["report", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr.startswith("weir lab: ")
    assert result.stderr.count("\n") == 1


def test_a_report_states_the_delay_lines_accuracy_and_that_a_run_was_unpinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out_the_plots(monkeypatch)
    experiment = replace(THREE_SCHEMES, delay_ms=15, pinned=False, schemes=("plain",))
    write_folder(tmp_path, experiment, links_by="delay line")
    for run in (tmp_path / "raw").glob("*-plain-1/run.json"):
        line = {"by": "delay line", "lateness_us": {"p99": 87.0}, "longest_stall_us": 2345.0, "cpu": 0.21}
        run.write_text(json.dumps(json.loads(run.read_text()) | {"links": line}))
    done = CliRunner().invoke(lab, ["report", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)[0]
    wanted = {"links_by": "delay line", "line_late_us": 87.0, "line_stall_us": 2345.0, "line_cpu": 0.21}
    assert row | wanted | {"pinned": False} == row
    page = (tmp_path / "report.html").read_text()
    assert "15 ms delay, 0 % loss by the delay line" in page
    assert "<td>21</td><td>87</td><td>2345</td>" in page
    assert "Unpinned" in page
    assert "unpinned: the switch had no CPU" in CliRunner().invoke(lab, ["report", str(tmp_path)]).stdout


def test_a_report_states_the_settings_of_the_hosts_and_not_those_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network namespace has settings of its own, and a scheme may change them."""
    leave_out_the_plots(monkeypatch)
    write_folder(tmp_path, THREE_SCHEMES)
    for scheme, ecn in (("plain", "0"), ("sccp", "1")):
        for path in (tmp_path / "raw").glob(f"*-{scheme}-1/run.json"):
            settings = {"root": {"tcp_rmem": "4 5 6", "tcp_ecn": ecn}}
            path.write_text(json.dumps(json.loads(path.read_text()) | {"sysctl": settings}))
    make_report(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<td>tcp_rmem of root</td><td>4 5 6</td>" in page
    assert "<td>tcp_ecn of root</td><td>0 (plain TCP); 1 (SCCP)</td>" in page
    assert "<td>tcp_rmem of the machine</td><td>1 2 3</td>" in page


def test_a_report_says_that_long_flows_never_recover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dash would stand for a case without long flows."""
    leave_out_the_plots(monkeypatch)
    write_folder(tmp_path, THREE_SCHEMES)
    path = tmp_path / "raw" / "B-plain-1" / "traffic.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    kept = (one for one in records if one["event"] == "query" or one["t_ns"] < 2_000_000_000)
    slow = ({"bytes": 20_000_000 + n, "t_ns": 2_000_000_000 + n * 100_000_000} for n in range(40))
    goodput = {"host": "root", "event": "goodput"}
    path.write_text("\n".join(json.dumps(one) for one in [*kept, *(goodput | one for one in slow)]))
    make_report(tmp_path)
    assert (tmp_path / "report.html").read_text().count("<td>never</td>") == 1
