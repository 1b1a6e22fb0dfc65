"""``weir switch``: its options, its settings and its one-line errors."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from openflow_ext.switch import cli, service_manager
from openflow_ext.switch.config import SwitchSettings
from openflow_ext.switch.errors import SwitchError
from openflow_ext.switch.locks import locked
from tests.support.systemd import service
from tests.support.waiting import wait_until_async
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


def test_the_help_names_every_setting() -> None:
    code, output = lines("--help")
    assert code == 0
    words = set(re.findall(r"\w+", "\n".join(output).partition("Settings:")[2]))
    assert set(SwitchSettings.model_fields) - words == set()


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
    unit = service(PROJECT / "packaging" / "weir-switch.service")
    program, command, *options = unit["ExecStart"][0].split()
    assert (Path(program).name, command) == ("weir", "switch")
    cli.switch.make_context("switch", options)
    assert unit["Type"] == ["notify"]


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket of a service manager, whose watchdog kills after 60 ms."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "60000")
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
        yield made


def states(manager: socket.socket) -> list[bytes]:
    """The states that the service manager has received since the last call."""
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(manager.recv(100))
    return found


def test_the_service_manager_is_notified(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    service_manager.notify(service_manager.READY)
    assert states(manager) == [b"READY=1"]
    more_than_it_holds = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text()) + 100
    for _ in range(more_than_it_holds):
        service_manager.notify(service_manager.ALIVE)
    assert 0 < len(states(manager)) < more_than_it_holds
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/notify")
    service_manager.notify(service_manager.READY)


def test_the_watchdog_hears_a_loop_that_runs_and_not_one_that_hangs(manager: socket.socket) -> None:
    async def run() -> tuple[list[bytes], list[bytes]]:
        alive = asyncio.create_task(service_manager.report_alive())
        await wait_until_async(lambda: states(manager), "the first report")
        await asyncio.sleep(0.3)
        running = states(manager)
        time.sleep(0.3)
        hanging = states(manager)
        alive.cancel()
        return running, hanging

    running, hanging = asyncio.run(run())
    assert set(running) == {b"WATCHDOG=1"}
    assert len(running) >= 5, "three reports in the time of the watchdog"
    assert hanging == []


@pytest.mark.parametrize(
    ("usec", "pid", "limit_s"),
    [("30000000", "", 30.0), ("0", "", None), ("x", "", None), ("30000000", "1", None)],
)
def test_the_watchdog_is_used_only_if_it_is_set_for_this_process(
    monkeypatch: pytest.MonkeyPatch, usec: str, pid: str, limit_s: float | None
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.setenv("WATCHDOG_PID", pid or str(os.getpid()))
    assert service_manager.watchdog_s() == limit_s
