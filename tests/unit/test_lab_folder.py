"""A result folder: summary, plots and report from raw records; state files and what cleaning removes."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mininet_topos import state as states
from mininet_topos.cli import lab
from mininet_topos.experiment import Case, Experiment, demo
from mininet_topos.procstat import started_ticks

SCHEMES = demo().schemes
REQUIRED = {
    *("experiment", "scheme", "workers", "size_bytes", "queries", "bandwidth_mbps", "queue_pkts", "ideal_ms"),
    *("qct_ms", "drops", "retransmits", "timeouts", "valid"),
}


def _write_run(folder: Path, case: str, scheme: str, attempt: int, valid: bool, long_flows: bool) -> None:
    run = folder / "raw" / f"{case}-{scheme}-{attempt}"
    run.mkdir(parents=True)
    records = [
        {"event": "query", "start_ns": 2_000_000_000 + n * 200_000_000, "qct_ms": 60.0 + n}
        | {"switch_waited_ms": 0.5, "workers_ms": [40.0, 60.0 + n]}
        for n in range(4)
    ]
    if long_flows:
        goodput = {"host": "root", "event": "goodput"}
        records += [goodput | {"t_ns": n * 100_000_000, "bytes": n * 1_000_000} for n in range(60)]
    (run / "traffic.jsonl").write_text("\n".join(json.dumps(record) for record in records))
    tcp = {"RetransSegs": 5, "TCPTimeouts": 1, "TCPLossProbes": 2}
    port = {"alarms": 3, "clamped": 10, "marked": 0}
    record = {
        "case": case,
        "scheme": scheme,
        "attempt": attempt,
        "transports": {"long1": "reno", "long2": "reno"},
        "trace_start_ns": 1_900_000_000,
        "counters": {
            "tcp": tcp,
            "queue_drops": 7,
            "ovs_drops": 2,
            "ovs_receive_drops": 0,
            "other_queue_drops": 0,
        },
        "ports_before": [] if scheme == "plain" else [port, port],
        "ports_after": [] if scheme == "plain" else [port, {"alarms": 8, "clamped": 30, "marked": 6}],
        "stalls": [],
        "cpu": [{"t_ns": 2.5e9, "idle": 0.4, "ovs": 0.5}],
        "queue_max_pkts": 99,
        "queue_max_bytes": 149_000,
        "busy_rate_bps": 100e6,
        "valid": valid,
        "reasons": [] if valid else ["the machine was starved of CPU: 0% idle in the busiest second"],
    }
    (run / "run.json").write_text(json.dumps(record))
    trace = "\n".join(f"{ms},{ms % 100},{1500 * (ms % 100)},0,0" for ms in range(1500))
    (run / "queue.csv").write_text("time_ms,pkts_max,bytes_max,pkts_min,sent_bytes\n" + trace + "\n")


def write_folder(folder: Path, experiment: Experiment, **about: Any) -> None:
    """A folder as a demo of three cases leaves it; SDTCP's case C was repeated and stayed void."""
    folder.mkdir(exist_ok=True)
    metadata = {
        "experiment": experiment.to_json(),
        "git": {"commit": "abc", "changed": []},
        "sysctl": {"tcp_rmem": ["1", "2", "3"]},
        "kernel": "<6.18>",
    }
    (folder / "metadata.json").write_text(json.dumps(metadata | about))
    for case in "ABC":
        for scheme in SCHEMES:
            _write_run(folder, case, scheme, 1, (case, scheme) != ("C", "sdtcp"), case == "B")
    _write_run(folder, "C", "sdtcp", 2, False, False)


def write_samples(run: Path, hosts: tuple[str, ...] = ("long1", "long2")) -> None:
    """Long flows' samples, and planned flows that ended, beside what a run has."""
    shared = {"peer": "10.0.0.1", "endless": True, "mss": 1448, "cwnd": 10, "rtt_us": 2500, "delivered_ce": 0}
    records = [
        shared
        | {"host": host, "event": "sample", "flow": 0}
        | {"t_ns": 1_900_000_000 + n * 10**8, "bytes_acked": n * 500_000}
        for host in hosts
        for n in range(12)
    ]
    records += [{"host": "worker1", "event": "flow", "flow": n, "fct_ms": 10.0 + n} for n in range(4)]
    (run / "traffic.jsonl").write_text("\n".join(json.dumps(record) for record in records))


def test_a_folder_of_flows_alone_and_of_a_sweep(tmp_path: Path) -> None:
    long = Case("L", "2 long flows", background=2, duration_s=1.0)
    sweep = [Case(f"S{n}", f"{n} workers", workers=n, queries=4) for n in (10, 20)]
    experiment = replace(demo(4), cases=(long, *sweep), schemes=("plain", "reno+dctcp"), repeats=2)
    metadata = {"experiment": experiment.to_json(), "git": {"commit": "abc", "changed": []}, "sysctl": {}}
    head = {"title": "T", "reproduces": "figure <9>"}
    (tmp_path / "metadata.json").write_text(json.dumps(metadata | {"kernel": "6", "head": head}))
    for scheme in experiment.schemes:
        for case in experiment.cases:
            for repeat in ("", "-r2"):
                _write_run(tmp_path, f"{case.name}", f"{scheme}{repeat}", 1, True, False)
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
    wanted = {"query_times", "workers", "queue_S10", "queue_S20"}
    assert plots == wanted | {"flows_L", "completion_times", "queue_distribution"}
    page = (tmp_path / "report.html").read_text()
    assert "figure &lt;9&gt;" in page
    assert "reno 40.0" in page
    shown = CliRunner().invoke(lab, ["report", str(tmp_path)]).stdout
    assert "TCP+DCTCP" in shown


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
    write_folder(tmp_path, demo(4))
    return tmp_path


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `weir lab report` leaves it; what it printed is in `printed`. Not to be changed."""
    folder = tmp_path_factory.mktemp("reported")
    write_folder(folder, demo(4))
    result = CliRunner().invoke(lab, ["report", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    (folder / "printed").write_text(result.stdout)
    return folder


def test_report_from_raw_records_alone(reported: Path) -> None:
    rows = json.loads((reported / "printed").read_text())
    assert json.loads((reported / "summary.json").read_text()) == rows
    assert [(row["case"], row["scheme"]) for row in rows] == [(c, s) for c in "ABC" for s in SCHEMES]
    for row in rows:
        assert set(row) >= REQUIRED
        assert row["qct_ms"] == {"p50": 61.0, "p95": 63.0, "p99": 63.0, "max": 63.0}
        assert (row["drops"], row["ovs_drops"], row["retransmits"], row["timeouts"]) == (7, 2, 5, 1)
        extended = row["scheme"] != "plain"
        counts = (row["alarms"], row["clamps"], row["marks"])
        assert counts == ((5, 20, 6) if extended else (None, None, None))
    assert [row["attempt"] for row in rows if (row["case"], row["scheme"]) == ("C", "sdtcp")] == [2]
    assert [row["valid"] for row in rows].count(False) == 1
    assert rows[0]["cpu"] == {"ovs": 0.5}
    assert rows[3]["background_mbps"]["before"] == pytest.approx(80, rel=0.01)


def test_report_is_one_file_that_says_which_runs_are_void(reported: Path) -> None:
    page = (reported / "report.html").read_text()
    assert "1 of 9 runs are void" in page
    assert "starved of CPU" in page
    assert page.count("<svg") == 5
    assert "<script" not in page
    assert 'src="' not in page
    assert "&lt;6.18&gt;" in page


def test_plots_come_as_svg_and_png(reported: Path) -> None:
    names = {path.stem for path in (reported / "plots").glob("*.svg")}
    assert names == {"query_times", "queue_A", "queue_B", "queue_C", "background"}
    for path in (reported / "plots").glob("*.svg"):
        ElementTree.parse(path)  # noqa: S314 - our own file
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_a_run_whose_queries_are_all_left_out_has_no_curve(folder: Path) -> None:
    run = folder / "raw" / "A-sccp-1" / "run.json"
    stall = {"cpu": 0, "start_ns": 2_000_000_000, "ns": 1_000_000_000}
    run.write_text(json.dumps(json.loads(run.read_text()) | {"stalls": [stall]}))
    result = CliRunner().invoke(lab, ["report", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    (row,) = [row for row in json.loads(result.stdout) if (row["case"], row["scheme"]) == ("A", "sccp")]
    assert (row["queries_left_out"], row["qct_ms"]) == (4, {})


def test_the_table_fits_eighty_columns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = CliRunner().invoke(lab, ["report", str(folder)]).stdout.splitlines()
    rows = [line for line in lines if line.startswith(("plain TCP", "SDTCP", "SCCP"))]
    assert len(rows) == 9
    assert sum(line.startswith("SDTCP *") for line in rows) == 1
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize("content", [None, "", "{}", '{"experiment": {"cases": [{"nonsense": 1}]}}'])
def test_report_of_a_folder_that_is_none(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "metadata.json").write_text(content)
    result = CliRunner().invoke(lab, ["report", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr.startswith("weir lab: ")
    assert result.stderr.count("\n") == 1


@pytest.fixture
def sleeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    monkeypatch.setattr(states, "STATE_DIR", tmp_path)
    with subprocess.Popen(("sleep", "60")) as process:
        yield process
        process.kill()


def _leave(tmp_path: Path, pid: int, ticks: int | None) -> Path:
    path = tmp_path / "lab1.json"
    path.write_text(json.dumps({"processes": {pid: ticks}, "interfaces": ["nosuch-eth1"]}))
    return path


def test_clean_ends_the_process_that_was_noted(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    path = _leave(tmp_path, sleeper.pid, started_ticks(sleeper.pid))
    assert states.clean() == [f"process {sleeper.pid}"]
    assert started_ticks(sleeper.pid) is None  # though its parent has not asked how it ended
    assert sleeper.wait(5) == -15
    assert not path.exists()


def test_clean_spares_a_process_that_has_got_the_number_since(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    _leave(tmp_path, sleeper.pid, (started_ticks(sleeper.pid) or 0) - 1)
    assert states.clean() == []
    assert sleeper.poll() is None


def test_clean_spares_a_lab_that_lives(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    living = states.LabState.claim()
    living.add_process(sleeper.pid)
    assert states.clean() == []
    assert sleeper.poll() is None
    living.drop_process(sleeper.pid)
    living.release()
    assert list(tmp_path.iterdir()) == []


def test_clean_bears_a_damaged_file(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    (tmp_path / "lab1.json").write_text("{")
    assert states.clean() == []
    assert sleeper.poll() is None
