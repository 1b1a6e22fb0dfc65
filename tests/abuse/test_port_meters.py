"""The meters of ports on a real switch: other apps' meters, restarts, ports that come and go."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.agent.switch_bench import Bench
from tests.support.controllers.processes import controller, free_port
from tests.support.waiting import wait_until

FOREIGN = "pktps,burst,band=type=drop,rate=7,burst_size=7"
OF_A_PORT = 3
ENGINES = [("ryu", "OpenFlow13"), ("os_ken", "OpenFlow13,OpenFlow15")]


@pytest.fixture(params=ENGINES, ids=["ryu-1.3", "os_ken-1.5"])
def engine(
    bench: Bench, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    name, protocols = request.param
    bench.ovs.vsctl("set", "bridge", bench.bridge, f"protocols={protocols}")
    monkeypatch.setenv("WEIR_DB", str(tmp_path / "weir.db"))
    monkeypatch.setenv("WEIR_CONFIG", "")
    return str(name)


@pytest.fixture
def port(bench: Bench, engine: str) -> int:
    """The port of the bridge's controller. Without any, Open vSwitch deletes entries and meters."""
    port = free_port()
    target = f"tcp:127.0.0.1:{port}"
    bench.ovs.vsctl("set-controller", bench.bridge, target)
    bench.ovs.vsctl("set", "controller", bench.bridge_controller(target), "max_backoff=1000")
    return port


def meters(bench: Bench) -> set[int]:
    return {int(found) for found in re.findall(r"meter=(\d+)", bench.ovs.ofctl("dump-meters", bench.bridge))}


def limited(bench: Bench) -> dict[int, set[int]]:
    """The meters that the entries of each port use."""
    found: dict[int, set[int]] = {}
    entries = "\n".join(bench.ovs.flows(bench.bridge))
    for port_no, meter in re.findall(r"in_port=(\d+).*meter_id=(\d+)", entries):
        found.setdefault(int(port_no), set()).add(int(meter))
    return found


def generations(bench: Bench) -> set[str]:
    """The controllers whose entries use meters, by their cookies."""
    entries = "\n".join(bench.ovs.flows(bench.bridge))
    return set(re.findall(r"cookie=(0x\w+).*meter_id", entries))


def await_meters(bench: Bench, *port_nos: int) -> dict[int, set[int]]:
    """Wait until these ports are limited, and no others."""

    def of_ports() -> dict[int, set[int]]:
        now = limited(bench)
        whole = {port_no for port_no, ids in now.items() if len(ids) == OF_A_PORT}
        return now if whole == set(now) == set(port_nos) else {}

    return wait_until(of_ports, f"meters of the ports {port_nos}")


def test_meters_survive_other_apps_restarts_and_ports_that_come_and_go(
    bench: Bench, engine: str, port: int
) -> None:
    (most,) = re.findall(r"max_meter:(\d+)", bench.ovs.ofctl("meter-features", bench.bridge))
    foreign = int(most) - 1
    bench.ovs.ofctl("add-meter", bench.bridge, f"meter={foreign},{FOREIGN}")
    with controller(engine, "fabric_app.app", port):
        first = await_meters(bench, 1, 2)
        wait_until(bench.ping, "ping through the fabric")
        ids = set().union(*first.values())
        assert ids == {int(most), *range(int(most) - 6, int(most) - 1)}
        assert meters(bench) == {*ids, foreign}
        bench.ovs.vsctl("del-port", bench.port(2))
        await_meters(bench, 1)
        left = {*first[1], foreign}
        wait_until(lambda: meters(bench), "the meters of the port are gone", lambda now: now == left)
        place = ("--", "set", "interface", bench.port(2), "ofport_request=2")
        bench.ovs.vsctl("add-port", bench.bridge, bench.port(2), *place)
        again, before = await_meters(bench, 1, 2), generations(bench)
    with controller(engine, "fabric_app.app", port):
        wait_until(lambda: not generations(bench) & before, "entries of the new controller")
        assert await_meters(bench, 1, 2) == again
        assert meters(bench) == {*again[1], *again[2], foreign}, "they are used again"
        bench.ovs.ofctl("del-meters", bench.bridge)
        wait_until(lambda: meters(bench), "new meters", lambda now: len(now) == 2 * OF_A_PORT)
        assert set().union(*await_meters(bench, 1, 2).values()) == meters(bench) == ids
        wait_until(bench.ping, "ping through the fabric")
