"""The units, run by a real systemd: rights, restarts, the watchdog, and the work of the programs."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from openflow_ext import wire
from tests.support.agent.switch_bench import (
    AT_DEFAULT_PLACE,
    Bench,
    Controller,
    built_bench,
    datapaths,
    run,
)
from tests.support.openflow.flow_mods import TCP4, ext, flow_mod, output
from tests.support.systemd import PACKAGING, WEIR, Systemd, service, systemd
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside_others

MOST_EXPOSURE = 3.0


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


@pytest.fixture(params=datapaths())
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A bench whose agent and Open vSwitch call the run directory by the same name."""
    with built_bench(request.param, AT_DEFAULT_PLACE) as bench:
        yield bench


def settings(bench: Bench, controller: str) -> str:
    """weir.toml: the agent of a bench, and the folders of the install guide."""
    switch = (
        f'[switch]\nname = "{bench.name}"\nbridges = ["{bench.bridge}"]\ncontrollers = ["{controller}"]\n'
    )
    return f'{switch}[flowdb]\nurl = "sqlite:////var/lib/weir/weir.db"\n'


def check_rights(manager: Systemd, unit: str) -> None:
    """A unit's process has the unit's capabilities, a system call filter, and can get no more rights."""
    status = manager.status(unit)
    names = service(PACKAGING / f"weir-{unit}.service")["CapabilityBoundingSet"][0].split()
    assert int(status["CapBnd"], 16).bit_count() == len(names)
    assert int(status["CapEff"], 16) & ~int(status["CapBnd"], 16) == 0
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")


def test_the_agent_does_its_work_as_a_service(bench: Bench, controller: Controller) -> None:
    """Start, entries, a kill, the watchdog, ports that leave and come, a rate, the end."""
    limits = ["WatchdogSec=3", "TimeoutAbortSec=1"]
    with systemd(settings(bench, controller.target), {"switch": limits}, bench.ovs.rundir) as manager:
        manager.start("switch")
        controller.accept()
        check_rights(manager, "switch")
        controller.send(flow_mod(TCP4, [ext(wire.SetWindow(1536)), output(2)], xid=70))
        assert controller.barrier() == []
        for times, signal in enumerate(("KILL", "STOP"), 1):
            manager.kill("switch", signal)
            manager.restarted("switch", times)
            controller.accept()
            assert len(bench.rules()) == 1
        check_ports(bench, controller)
        manager.stop("switch")
        assert len(bench.rules()) == 1, "the data plane keeps working"
        manager.weir("switch", "--detach")
        assert bench.leftovers() == []


def check_ports(bench: Bench, controller: Controller) -> None:
    """The agent takes a port that leaves and comes again, and reads the rate of its queue."""
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


def asked(what: str) -> list[dict[str, object]]:
    """What the dashboard's API says; nothing while the dashboard does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:8080/api/v1/{what}") as answer:
            return list(json.load(answer))
    except OSError:
        return []


def live_controllers() -> set[object]:
    """The ids of the controllers that live, if the switch is connected."""
    if not any(switch["connected"] for switch in asked("switches")):
        return set()
    return {controller["id"] for controller in asked("controllers") if controller["alive"]}


@pytest.mark.parametrize("engine", ["ryu", "os-ken"])
def test_the_services_of_the_install_guide_work_together(bench: Bench, engine: str) -> None:
    """The dashboard shows the switch; the killed controller comes back; the database belongs to its user."""
    units = {
        "switch": [],
        "controller": ["ExecStart=", f"ExecStart={WEIR} controller --engine {engine}"],
        "web": [],
    }
    with systemd(settings(bench, "tcp:127.0.0.1:6653"), units, bench.ovs.rundir) as manager:
        for unit in units:
            manager.start(unit)
        first = wait_until(live_controllers, "the dashboard shows the controller and its switch")
        for unit in units:
            check_rights(manager, unit)
        manager.kill("controller", "KILL")
        manager.restarted("controller", 1)
        wait_until(live_controllers, "the next controller has the switch", lambda seen: seen - first)
        owners = manager.inside("stat", "--format=%U", "/var/lib/weir", "/var/lib/weir/weir.db").split()
        assert owners == ["weir", "weir"]
        for unit in units:
            manager.stop(unit)
        manager.weir("switch", "--detach")
        assert bench.leftovers() == []
