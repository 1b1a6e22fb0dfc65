"""`weir lab` on a real network: rehearsals, each way in which a lab can end, and what it refuses to start."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mininet_topos.machine.programs import wait_until
from tests.support.lab import lab_command
from tests.support.lab.leftovers import assert_nothing_left, machine, processes_of
from tests.support.signals import handling

pytestmark = pytest.mark.lab_beside_others

BOUND_S = 90


@pytest.fixture
def before() -> dict[str, Any]:
    return machine()


@pytest.mark.parametrize(
    ("spec", "scheme"), [("star,149", "plain"), ("fattree,4", "sccp"), ("bcube,2,1", "plain")]
)
def test_a_rehearsal_builds_reaches_and_removes_a_network(
    tmp_path: Path, before: dict[str, Any], spec: str, scheme: str
) -> None:
    done = lab_command.lab("rehearse", spec, "--scheme", scheme, "--out", str(tmp_path / "out"), "--json")
    assert done.returncode == 0, done.stderr
    assert_nothing_left(before, tmp_path / "out")
    (row,) = json.loads(done.stdout)
    assert all(0 < row[stage] < 60 for stage in ("up_s", "reached_s", "down_s")), row


def _start(out: Path, *more: str) -> subprocess.Popen[str]:
    options = ("--schemes", "sccp", "--workers", "2", "--queries", "500", "--out", str(out), *more)
    return subprocess.Popen((lab_command.WEIR, "lab", "incast", *options), stderr=subprocess.PIPE, text=True)


def _await(lab: subprocess.Popen[str], out: Path, pattern: str) -> None:
    """Wait until a file of the folder, named by a pattern, is not empty."""

    def written() -> bool:
        assert lab.poll() is None, lab.stderr
        return any(path.stat().st_size for path in out.glob(pattern))

    assert wait_until(written, BOUND_S), f"{pattern} is still empty"


MOMENTS = ("metadata.json", "raw/sccp/weir.toml", "raw/sccp/agent.log", "raw/sccp/reachability.jsonl")


@pytest.mark.parametrize("moment", [*MOMENTS, "raw/incast-sccp-1/traffic.jsonl"])
def test_an_interrupted_lab_leaves_nothing_behind(
    tmp_path: Path, before: dict[str, Any], moment: str
) -> None:
    out = tmp_path / "out"
    with _start(out) as lab:
        _await(lab, out, moment)
        lab.send_signal(signal.SIGINT)
        _, errors = lab.communicate(timeout=BOUND_S)
    assert lab.returncode == 130
    assert errors.splitlines()[-1] == (
        "weir lab: interrupted; the network and its programs are removed; "
        f"finished runs are in {out}: `weir lab report {out}` shows them"
    )
    assert_nothing_left(before, out)


def test_a_lab_whose_terminal_is_closed_leaves_nothing_behind(tmp_path: Path, before: dict[str, Any]) -> None:
    out = tmp_path / "out"
    with handling(signal.SIGHUP, signal.SIG_DFL), _start(out) as lab:
        _await(lab, out, "raw/incast-sccp-1/traffic.jsonl")
        lab.send_signal(signal.SIGHUP)
        lab.communicate(timeout=BOUND_S)
    assert lab.returncode == 128 + signal.SIGHUP
    assert_nothing_left(before, out)


@pytest.mark.parametrize("links", [(), ("--delay", "2", "--jitter", "1")])  # jitter needs the delay line
def test_what_a_killed_lab_leaves_is_cleaned(
    tmp_path: Path, before: dict[str, Any], links: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    with _start(out, *links) as lab:
        _await(lab, out, "raw/incast-sccp-1/traffic.jsonl")
        lab.kill()
    assert machine()["bridges"] > before["bridges"]
    cleaned = lab_command.lab("clean", "--json")
    assert cleaned.returncode == 0, cleaned.stderr
    assert any(line.startswith("bridge s") for line in json.loads(cleaned.stdout)["removed"])
    assert_nothing_left(before, out)


def test_clean_spares_a_running_lab(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with _start(out) as lab:
        _await(lab, out, "raw/incast-sccp-1/traffic.jsonl")
        assert json.loads(lab_command.lab("clean", "--json").stdout) == {"removed": []}
        assert lab.poll() is None
        lab.terminate()
        lab.communicate(timeout=BOUND_S)
    assert lab.returncode == 128 + signal.SIGTERM


def test_a_controller_that_dies_ends_the_run_with_the_end_of_its_log(
    tmp_path: Path, before: dict[str, Any]
) -> None:
    out = tmp_path / "out"
    with _start(out) as lab:
        _await(lab, out, "raw/incast-sccp-1/traffic.jsonl")
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in processes_of(out)}
        os.kill(next(pid for pid, command in commands.items() if "ryu-manager" in command), signal.SIGKILL)
        _, errors = lab.communicate(timeout=BOUND_S)
    assert lab.returncode == 1
    assert "weir lab: controller ended with status -9" in errors
    assert_nothing_left(before, out)


def test_a_port_in_use_is_refused_in_one_line(tmp_path: Path, before: dict[str, Any]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        done = lab_command.lab(
            "incast", "--workers", "2", "--controller-port", port, "--out", str(tmp_path / "out")
        )
    assert done.returncode == 1
    assert done.stderr.startswith(f"weir lab: port {port} is in use")
    assert done.stderr.count("\n") == 1
    assert_nothing_left(before, tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", "5000"), "5001 hosts are more than the 1022 addresses"),
        (("--schemes", "plain,nosuch"), "no scheme is called 'nosuch'"),
        (("--out", "."), "exists already: give another --out"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    options: tuple[str, ...], message: str, before: dict[str, Any]
) -> None:
    done = lab_command.lab("incast", *options)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert machine() == before


def test_a_lab_without_root_is_refused_in_one_line() -> None:
    as_nobody = ("setpriv", "--reuid", "65534", "--clear-groups", lab_command.WEIR, "lab", "incast")
    done = subprocess.run(as_nobody, capture_output=True, text=True, check=False, cwd="/")
    assert (done.returncode, done.stderr) == (1, "weir lab: the lab needs root: run it with sudo\n")


def test_a_stopped_open_vswitch_is_reported_in_one_line(tmp_path: Path) -> None:
    nowhere = {**os.environ, "OVS_RUNDIR": str(tmp_path)}
    done = subprocess.run(
        (lab_command.WEIR, "lab", "demo"), capture_output=True, text=True, env=nowhere, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("weir lab: Open vSwitch does not run: run `make setup`")
    assert done.stderr.count("\n") == 1
