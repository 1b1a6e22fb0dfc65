"""State files of labs, and what `weir lab clean` removes."""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from mininet_topos.machine import lab_state as states
from mininet_topos.machine.proc_stat import started_ticks


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


def test_clean_ends_the_processes_of_a_killed_lab(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    path = _leave(tmp_path, sleeper.pid, started_ticks(sleeper.pid))
    assert states.clean() == [f"process {sleeper.pid}"]
    assert started_ticks(sleeper.pid) is None  # though its parent has not asked how it ended
    assert sleeper.wait(5) == -15
    assert not path.exists()


@pytest.mark.parametrize(("value", "then"), [("4194304", "212992"), ("8388608", "8388608")])
def test_clean_restores_a_setting_of_a_killed_lab_unless_it_was_changed_since(
    value: str, then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "STATE_DIR", tmp_path)
    sysctl = tmp_path / "rmem_default"
    sysctl.write_text(f"{value}\n")
    (tmp_path / "lab1.json").write_text(json.dumps({"sysctls": {str(sysctl): [212992, 4194304]}}))
    assert bool(states.clean()) == (value != then)
    assert sysctl.read_text().strip() == then


def test_clean_removes_the_folders_of_a_killed_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "STATE_DIR", tmp_path / "states")
    folder = tmp_path / "weir-line-x"
    folder.mkdir()
    (folder / "records").touch()
    lab = states.LabState.claim()
    lab.note_folder(str(folder))
    lab._file.close()  # as if it were killed
    assert states.clean() == [f"folder {folder}"]
    assert not folder.exists()


def test_clean_spares_a_process_with_a_reused_pid(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    _leave(tmp_path, sleeper.pid, (started_ticks(sleeper.pid) or 0) - 1)
    assert states.clean() == []
    assert sleeper.poll() is None


def test_clean_spares_a_running_lab(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    living = states.LabState.claim()
    living.add_process(sleeper.pid)
    assert states.clean() == []
    assert sleeper.poll() is None
    living.drop_process(sleeper.pid)
    living.release()
    assert list(tmp_path.iterdir()) == []


def test_clean_ignores_a_damaged_file(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    (tmp_path / "lab1.json").write_text("{")
    assert states.clean() == []
    assert sleeper.poll() is None


def test_a_lab_does_not_take_the_number_of_one_that_ends_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that it opened is removed before it has the lock: another lab could take the number too."""
    monkeypatch.setattr(states, "STATE_DIR", tmp_path)
    lock = fcntl.flock

    def remove_and_lock(file: IO[str], how: int) -> None:
        (tmp_path / "lab1.json").unlink(missing_ok=True)
        lock(file, how)

    monkeypatch.setattr(states.fcntl, "flock", remove_and_lock)
    lab = states.LabState.claim()
    try:
        assert lab.path.exists()
    finally:
        lab.release()
