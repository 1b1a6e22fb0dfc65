"""`weir on`: what it does if the agent has other settings than the command."""

from __future__ import annotations

import json
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from openflow_ext.switch import off_cli
from openflow_ext.switch.locks import lock_of_data_plane, locked
from openflow_ext.switch.ovs import takeover

NAME = "wtest"
NUMBER = 1


class Host:
    """A host whose bridge has two ports, and whose agent, if any, leaves them as they are."""

    def __init__(self, rundir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rundir = rundir
        self.ports = {7: True, 8: True}
        self.noted: list[bool] = []
        ids = {takeover.NAME: NAME, takeover.NUMBER: str(NUMBER)}
        row = {"name": "br0", "external_ids": ids}
        maps = SimpleNamespace(close=lambda: None, ports=lambda: {7: (NUMBER, 1), 8: (NUMBER, 2)})

        async def close() -> None:
            pass

        database = SimpleNamespace(tables={"Bridge": {"uuid": row}}, close=close)

        async def watch(_rundir: Path) -> Any:
            return database

        async def switch_off(_db: Any, _bridge: str, off: bool) -> None:
            self.noted.append(off)

        monkeypatch.setattr(off_cli, "FOLLOWS_S", 0.0)
        monkeypatch.setattr(off_cli, "PinnedMaps", lambda _name: maps)
        monkeypatch.setattr(off_cli, "watch", watch)
        monkeypatch.setattr(off_cli.takeover, "switch_off", switch_off)
        monkeypatch.setattr(off_cli, "ports_off", lambda _maps, _number: dict(self.ports))
        monkeypatch.setattr(off_cli, "set_off", self._set_off)

    def _set_off(self, _maps: Any, _number: int, off: bool) -> None:
        self.ports = dict.fromkeys(self.ports, off)

    def on(self, *options: str, agent_runs: bool) -> Result:
        lock = lock_of_data_plane(self.rundir, NAME)
        with ExitStack() as stack:
            stack.enter_context(locked(lock, "the data plane") if agent_runs else nullcontext())
            done = CliRunner().invoke(off_cli.on, ["--name", NAME, "--rundir", str(self.rundir), *options])
        assert not lock.exists()
        assert self.noted == [False]
        return done


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("WEIR_CONFIG", "")
    return Host(tmp_path, monkeypatch)


def test_ports_that_a_running_agent_observes_stay_off(host: Host) -> None:
    done = host.on(agent_runs=True)
    assert done.exit_code == 0, done.output
    assert host.ports == {7: True, 8: True}
    assert "2 of 2 ports are off: the agent that runs keeps them off" in done.output


def test_json_states_the_ports_that_a_running_agent_keeps_off(host: Host) -> None:
    done = host.on("--json", agent_runs=True)
    assert json.loads(done.output)["bridges"] == [{"bridge": "br0", "ports": 2, "off": 2}]


def test_without_an_agent_the_command_turns_the_ports_on(host: Host) -> None:
    done = host.on(agent_runs=False)
    assert host.ports == {7: False, 8: False}
    assert done.output == "bridge br0: 0 of 2 ports are off\n"


def test_without_an_agent_the_mode_of_the_settings_counts(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "weir.toml"
    config.write_text('[switch]\nmode = "observe"\n')
    monkeypatch.setenv("WEIR_CONFIG", str(config))
    done = host.on(agent_runs=False)
    assert host.ports == {7: True, 8: True}
    assert done.output == 'bridge br0: 2 of 2 ports are off: [switch] mode is "observe"\n'
