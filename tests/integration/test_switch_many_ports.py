"""The agent's cost does not depend on the number of ports: start, end, changes, and a quiet bridge."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from openflow_ext.switch.agent import Agent
from openflow_ext.switch.config import SwitchSettings
from openflow_ext.switch.dataplane.interface import SweepTimes
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from openflow_ext.switch.dataplane.netlink import Netlink
from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from tests.support.agent.network_apart import network_apart
from tests.support.agent.switch_bench import Bench, Controller, open_vswitch, run
from tests.support.waiting import wait_until, wait_until_async

pytestmark = pytest.mark.beside_others

PORTS = 200
GENEROUS_S = 20.0
"""Several times what a busy machine needs. Work that is quadratic in the ports takes longer."""


def links(folder: Path, names: list[str]) -> None:
    """A veth pair for each name."""
    batch = folder / "links.batch"
    batch.write_text("".join(f"link add {name} up type veth peer name {name}h\n" for name in names))
    run("ip", "-batch", str(batch))


@pytest.fixture
def many() -> Iterator[tuple[Bench, list[str]]]:
    """A bridge with PORTS ports."""
    with network_apart(), open_vswitch() as ovs:
        bench = Bench(ovs)
        names = [f"wm{os.getpid() % 100000}x{number}" for number in range(PORTS)]
        try:
            bench.add_bridge()
            links(ovs.rundir, names)
            ovs.vsctl(*[word for name in names for word in ("--", "add-port", bench.bridge, name)])
            yield bench, names
        finally:
            bench.tear_down()
            batch = ovs.rundir / "unlink.batch"
            batch.write_text("".join(f"link del {name}\n" for name in names))
            with contextlib.suppress(AssertionError):
                run("ip", "-force", "-batch", str(batch))


def test_an_agent_of_many_ports_starts_follows_changes_and_ends(
    many: tuple[Bench, list[str]], controller: Controller
) -> None:
    bench, names = many
    began_s = time.monotonic()
    agent = bench.agent("--controller", controller.target)
    assert agent.await_event("ready") == {"event": "ready", "ports": PORTS, "failed": []}
    assert time.monotonic() - began_s < GENEROUS_S
    controller.accept()

    with contextlib.closing(PinnedMaps(bench.name)) as maps:
        bench.ovs.vsctl("del-port", bench.bridge, names[0])
        wait_until(lambda: len(maps.ports()) == PORTS - 1, "the port is detached", timeout_s=5)
        bench.ovs.vsctl("add-port", bench.bridge, names[0])
        wait_until(lambda: len(maps.ports()) == PORTS, "the port is attached", timeout_s=5)

    began_s = time.monotonic()
    assert agent.end(signal.SIGTERM) == 0
    assert time.monotonic() - began_s < GENEROUS_S
    assert '"xdp"' not in run("ip", "-j", "link", "show")


class Observed:
    """An agent in this process: how often it sends a netlink request, and looks whether a sweep is due."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.requests = 0
        self.looks = 0
        self.planes: list[KernelDataPlane] = []
        self._name = name
        call, is_due = Netlink._call, KernelDataPlane.sweep_is_due

        def counted(netlink: Netlink, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
            self.requests += 1
            return call(netlink, kind, flags, body)

        def looked(plane: KernelDataPlane, times: SweepTimes) -> bool:
            self.looks += 1
            return is_due(plane, times)

        monkeypatch.setattr(Netlink, "_call", counted)
        monkeypatch.setattr(KernelDataPlane, "sweep_is_due", looked)

    def data_plane(self) -> KernelDataPlane:
        self.planes.append(KernelDataPlane(self._name, max_flows=1000))
        return self.planes[-1]

    async def looks_again(self, times: int) -> int:
        """The requests that the agent sends while it looks some times for due sweeps."""
        requests, looks = self.requests, self.looks
        await wait_until_async(lambda: self.looks >= looks + times, "the agent looks for due sweeps")
        return self.requests - requests

    async def settles(self) -> None:
        async with asyncio.timeout(60):
            while await self.looks_again(3):
                pass


def test_a_quiet_bridge_causes_no_netlink_request(
    bench: Bench, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates and queues are read when the kernel notifies a change, one port at a time."""
    observed = Observed(monkeypatch, bench.name)
    settings = SwitchSettings(
        name=bench.name,
        bridges=(bench.bridge,),
        controllers=(controller.target,),
        rundir=bench.ovs.rundir,
    )

    async def script() -> None:
        ready, stop = asyncio.Event(), asyncio.Event()
        agent = Agent(settings, observed.data_plane, lambda *_: ready.set())
        running = asyncio.create_task(agent.run(stop))
        try:
            async with asyncio.timeout(60):
                await ready.wait()
            await asyncio.to_thread(controller.accept)
            await observed.settles()
            assert await observed.looks_again(5) == 0

            before = observed.requests
            bench.shape(1, 20)
            ifindex = socket.if_nametoindex(bench.port(1))
            await wait_until_async(
                lambda: observed.planes[0].settings(ifindex)[1] == 20_000_000, "the new rate", timeout_s=5
            )
            await observed.settles()
            assert 0 < observed.requests - before < 20
        finally:
            stop.set()
            await running

    asyncio.run(script())
    assert bench.leftovers() == []
