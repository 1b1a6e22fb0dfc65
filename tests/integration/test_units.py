"""The real programs with the rights of their systemd units, and no others."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from openflow_ext import wire
from tests.support.agent.switch_bench import Bench, Controller, run
from tests.support.confined import NOBODY, service
from tests.support.controllers.processes import free_port
from tests.support.openflow.flow_mods import TCP4, ext, flow_mod, output
from tests.support.waiting import wait_until
from weir_base.paths import PROJECT

pytestmark = pytest.mark.beside_others

PACKAGING = PROJECT / "packaging"
MOST_EXPOSURE = 3.0


def confined(unit: str) -> list[str]:
    return [sys.executable, "-m", "tests.support.confined", str(PACKAGING / f"weir-{unit}.service")]


@pytest.mark.parametrize("unit", sorted(PACKAGING.glob("*.service")), ids=lambda unit: unit.stem)
def test_the_exposure_of_a_unit_is_below_3(unit: Path) -> None:
    figures = json.loads(
        run("systemd-analyze", "security", "--offline=true", "--no-pager", "--json=short", str(unit))
    )
    exposure = run("systemd-analyze", "security", "--offline=true", "--no-pager", str(unit))
    assert figures
    assert float(exposure.rsplit(":", 1)[1].split()[0]) < MOST_EXPOSURE


def test_the_agent_has_four_capabilities() -> None:
    assert len(service(PACKAGING / "weir-switch.service")["CapabilityBoundingSet"][0].split()) == 4


def received(manager: socket.socket) -> set[bytes]:
    """The states that reached a service manager's socket since the last call."""
    found = set()
    try:
        while True:
            found.add(manager.recv(100))
    except BlockingIOError:
        return found


def test_the_agent_does_its_work_with_the_rights_of_its_unit(bench: Bench, controller: Controller) -> None:
    """Start, entries, the watchdog, a kill and a successor, ports that leave and come, a rate, the end."""
    bench.within = confined("switch")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(str(bench.ovs.rundir / "notify"))
        manager.setblocking(False)
        bench.ovs.env |= {
            "CONFINED_WRITABLE": str(bench.ovs.rundir),
            "NOTIFY_SOCKET": str(bench.ovs.rundir / "notify"),
            "WATCHDOG_USEC": "300000",
        }
        agent = bench.ready_agent(controller)
        controller.accept()
        status = Path(f"/proc/{agent.process.pid}/status").read_text()
        assert "Seccomp:\t2" in status
        controller.send(flow_mod(TCP4, [ext(wire.SetWindow(1536)), output(2)], xid=70))
        assert controller.barrier() == []
        wait_until(lambda: received(manager), "the watchdog hears", lambda states: b"WATCHDOG=1" in states)
        agent.process.send_signal(signal.SIGSTOP)
        received(manager)
        agent.end(signal.SIGKILL)
        successor = bench.ready_agent(controller)
        controller.accept()
        assert len(bench.rules()) == 1
        bench.ovs.vsctl("del-port", bench.bridge, bench.port(2))
        wait_until(bench.attached, "port 2 is detached", lambda ports: list(ports) == [bench.port(1)])
        place = ("--", "set", "interface", bench.port(2), "ofport_request=2")
        bench.ovs.vsctl("add-port", bench.bridge, bench.port(2), *place)
        wait_until(bench.attached, "port 2 is attached", lambda ports: len(ports) == 2)
        bench.shape(2, 50)
        ask = wire.encode_message(wire.PortConfig(2), xid=9)
        wait_until(
            lambda: wire.decode_message(controller.ask(ask)),
            "the rate of the port's qdisc is read",
            lambda reply: reply.capacity_bps == 50_000_000,
        )
        assert successor.end() == 0
        assert bench.leftovers() == []


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of the user under whom the services run."""
    folder = Path(tempfile.mkdtemp(prefix="weir-unit-"))
    os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("engine", ["ryu", "os-ken"])
def test_controller_and_dashboard_do_their_work_with_the_rights_of_their_units(
    place: Path, engine: str
) -> None:
    port = free_port()
    env = os.environ | {"CONFINED_WRITABLE": str(place), "HOME": str(place)}
    env |= {"WEIR_DB": f"sqlite:///{place}/weir.db", "PYTHONDONTWRITEBYTECODE": "1"}
    weir = [sys.executable, "-m", "weir"]
    at = ["--engine", engine, "--listen", f"127.0.0.1:{port}"]
    with open(place / "log", "wb") as log:
        command = [*confined("controller"), *weir, "controller", *at]
        controller = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        accounts = ["--accounts", str(place / "accounts.json")]
        command = [*confined("web"), *weir, "web", "--listen", "127.0.0.1:0", "--json", *accounts]
        web = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert web.stdout is not None
        root = json.loads(web.stdout.readline())["url"]

        def controllers() -> list[dict[str, object]]:
            try:
                with urllib.request.urlopen(f"{root}api/v1/controllers") as answer:  # noqa: S310 - ours
                    return list(json.load(answer))
            except OSError:
                return []

        found = wait_until(controllers, "the dashboard shows the controller")
        assert found[0]["alive"]
        assert (place / "weir.db").stat().st_uid == NOBODY
    finally:
        for process in (controller, web):
            process.terminate()
            process.wait(30)
        if web.stdout is not None:
            web.stdout.close()
        print((place / "log").read_text())
    ended = (0, -signal.SIGTERM, -signal.SIGINT)  # systemd takes each of them for a clean end
    assert controller.returncode in ended
    assert web.returncode == 0
