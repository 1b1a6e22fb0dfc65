"""``weir switch``: its options, its settings and its one-line errors."""

from __future__ import annotations

import configparser
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from openflow_ext.switch import cli
from openflow_ext.switch.config import SwitchSettings
from openflow_ext.switch.errors import SwitchError
from openflow_ext.switch.locks import locked
from weir_base.paths import PROJECT


@pytest.fixture(autouse=True)
def no_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEIR_CONFIG", raising=False)


def lines(*argv: str) -> tuple[int, list[str]]:
    result = CliRunner().invoke(cli.switch, argv)
    return result.exit_code, result.output.splitlines()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "no bridge given: use --bridge NAME"),
        (("--bridge", "s1", "--controller", "udp:h"), "expected tcp:HOST[:PORT], ssl:HOST"),
        (("--bridge", "s1", "--rundir", "/nowhere"), "no directory /nowhere: start Open vSwitch"),
        (("--bridge", "s1", "--name", "a/b"), "[switch] name"),
    ],
)
def test_invalid_options_are_an_error_of_one_line(argv: tuple[str, ...], said: str) -> None:
    code, output = lines(*argv)
    assert code == 1
    assert len(output) == 1
    assert said in output[0]
    code, output = lines(*argv, "--json")
    assert said in json.loads(output[0])["message"]


def test_a_run_directory_without_open_vswitch_is_an_error(tmp_path: Path) -> None:
    code, output = lines("--bridge", "s1", "--controller", "tcp:127.0.0.1", "--rundir", str(tmp_path))
    assert code == 1
    assert output == [
        f"weir switch: no OVSDB server at {tmp_path}/db.sock (No such file or directory):"
        " start Open vSwitch, or set --rundir"
    ]
    assert list(tmp_path.iterdir()) == []


def test_options_override_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "weir.toml"
    file.write_text('[switch]\nname = "filed"\nbridges = ["s9"]\nassumed_scale = 7\n')
    monkeypatch.setenv("WEIR_CONFIG", str(file))
    given: dict[str, Any] = {"bridges": ("s1", "s2", "s1"), "controllers": (), "name": None, "rundir": None}
    settings = cli._settings(given)
    assert settings == SwitchSettings(name="filed", bridges=("s1", "s2"), assumed_scale=7)


def test_a_lock_is_held_by_one_agent_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "weir.lock"
    with locked(path, "bridge s1"):
        with (
            pytest.raises(SwitchError, match="another agent already runs for bridge s1"),
            locked(path, "bridge s1"),
        ):
            pass
        assert path.exists()
    assert not path.exists()
    with pytest.raises(SwitchError, match="cannot lock"), locked(tmp_path / "no" / "x", "bridge s1"):
        pass


def test_the_service_unit_uses_existing_options() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    assert unit.read(PROJECT / "packaging" / "weir-switch.service")
    program, command, *options = unit["Service"]["ExecStart"].split()
    assert (Path(program).name, command) == ("weir", "switch")
    cli.switch.make_context("switch", options)
    assert unit["Service"]["Type"] == "notify"


def test_the_service_manager_is_notified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        cli._notify_service_manager("READY=1")
        assert manager.recv(100) == b"READY=1"
