"""``weir switch`` and ``weir ports``: options, settings and the one line for what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from openflow_ext.switch import cli
from openflow_ext.switch.config import SwitchSettings
from openflow_ext.switch.dataplane import PortCounters
from openflow_ext.switch.errors import SwitchError
from openflow_ext.switch.locks import locked


@pytest.fixture(autouse=True)
def no_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEIR_CONFIG", raising=False)


def lines(*argv: str) -> tuple[int, list[str]]:
    result = CliRunner().invoke(cli.switch, argv)
    return result.exit_code, result.output.splitlines()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "no bridge: give --bridge NAME"),
        (("--bridge", "s1", "--controller", "udp:h"), "expected tcp:HOST[:PORT], ssl:HOST"),
        (("--bridge", "s1", "--rundir", "/nowhere"), "no directory /nowhere: start Open vSwitch"),
        (("--bridge", "s1", "--name", "a/b"), "[switch] name"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(argv: tuple[str, ...], said: str) -> None:
    code, output = lines(*argv)
    assert code == 1
    assert len(output) == 1
    assert said in output[0]
    code, output = lines(*argv, "--json")
    assert said in json.loads(output[0])["message"]


def test_no_open_vswitch_in_the_run_directory(tmp_path: Path) -> None:
    code, output = lines("--bridge", "s1", "--controller", "tcp:127.0.0.1", "--rundir", str(tmp_path))
    assert code == 1
    assert output == [
        f"weir switch: no OVSDB server at {tmp_path}/db.sock (No such file or directory):"
        " start Open vSwitch, or give its --rundir"
    ]
    assert list(tmp_path.iterdir()) == []


def test_options_overrule_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "weir.toml"
    file.write_text('[switch]\nname = "filed"\nbridges = ["s9"]\nassumed_scale = 7\n')
    monkeypatch.setenv("WEIR_CONFIG", str(file))
    given: dict[str, Any] = {"bridges": ("s1", "s2", "s1"), "controllers": (), "name": None, "rundir": None}
    settings = cli._settings(given)
    assert settings == SwitchSettings(name="filed", bridges=("s1", "s2"), assumed_scale=7)


def test_one_agent_a_lock(tmp_path: Path) -> None:
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


class _Maps:
    def ports(self) -> dict[int, tuple[int, int]]:
        return {1: (2, 1), 999_999: (1, 7)}

    def counters(self, ifindex: int) -> PortCounters:
        return PortCounters(n_i=ifindex, alarm_up=True)


def test_ports_are_shown_by_bridge_and_number(capsys: pytest.CaptureFixture[str]) -> None:
    maps: Any = _Maps()
    rows = cli.read_ports(maps)
    assert [(row["name"], row["bridge"], row["ofport"], row["n_i"]) for row in rows] == [
        ("if999999", 1, 7, 999_999),
        ("lo", 2, 1, 1),
    ]
    cli._show(maps, as_json=True, watch=False)
    assert json.loads(capsys.readouterr().out)["ports"] == rows
    cli._show(maps, as_json=False, watch=False)
    assert "999,999" in capsys.readouterr().out
