"""Signals that end a lab: they raise an exception, but not in the middle of a removal."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mininet_topos.cli import experiments, lab
from mininet_topos.cli.terminal import Terminated, errors_in_a_line, signals_unwind
from mininet_topos.machine.signals import undisturbed
from tests.support.lab.examples import EXPERIMENT_FILE
from tests.support.signals import handling


@pytest.fixture
def ignored() -> Iterator[None]:
    """Ignore SIGHUP, as nohup does."""
    with handling(signal.SIGHUP, signal.SIG_IGN):
        yield


@pytest.fixture
def heard() -> Iterator[None]:
    """Hear SIGHUP, even if the tests run under nohup."""
    with handling(signal.SIGHUP, signal.SIG_DFL):
        yield


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_with_its_status(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended, errors_in_a_line(), signals_unwind():
        signal.raise_signal(number)
    assert ended.value.code == 128 + number
    assert signal.getsignal(number) is before


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_removal_ends_before_the_signal_is_heard(number: signal.Signals) -> None:
    removed = []

    def remove() -> None:
        with undisturbed():
            signal.raise_signal(number)
            removed.append("network")

    with pytest.raises(Terminated), signals_unwind():
        remove()
    assert removed == ["network"]


@pytest.mark.usefixtures("ignored")
def test_a_lab_under_nohup_outlives_its_terminal() -> None:
    def remove() -> None:
        with undisturbed():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGHUP)  # does not hide the other one

    with signals_unwind():
        signal.raise_signal(signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt):
            remove()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_names_the_folder_and_how_to_go_on(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        out.mkdir()
        signal.raise_signal(number)

    out, file = tmp_path / "out", tmp_path / "mine.toml"
    file.write_text(EXPERIMENT_FILE)
    monkeypatch.setattr(experiments, "require_machine", lambda: None)
    monkeypatch.setattr(experiments.experiment_runner, "run_experiment", interrupted)
    done = CliRunner().invoke(lab, ["run", str(file), "--out", str(out)])
    assert done.exit_code == 128 + number
    last = done.stderr.splitlines()[-1]
    assert last.endswith(f"finished runs are in {out}: the same command with --resume --out {out} goes on")
