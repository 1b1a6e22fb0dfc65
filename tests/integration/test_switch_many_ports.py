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
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from openflow_ext.switch.dataplane.netlink import Netlink
from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from tests.support.agent.switch_bench import Bench, Controller, open_vswitch, run
from tests.support.waiting import wait_until, wait_until_async

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
    with open_vswitch() as ovs:
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


def test_a_quiet_bridge_causes_no_netlink_request(
    bench: Bench, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates and queues are read when the kernel notifies a change, one port at a time."""
    planes: list[KernelDataPlane] = []
    requests: list[int] = []
    looks: list[bool] = []

    def plane() -> KernelDataPlane:
        planes.append(KernelDataPlane(bench.name, max_flows=1000))
        return planes[-1]

    def counted(self: Netlink, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
        requests.append(kind)
        return call(self, kind, flags, body)

    async def script() -> None:
        settings = SwitchSettings(
            name=bench.name,
            bridges=(bench.bridge,),
            controllers=(controller.target,),
            rundir=bench.ovs.rundir,
        )
        ready, stop = asyncio.Event(), asyncio.Event()
        agent = asyncio.create_task(Agent(settings, plane, lambda *_: ready.set()).run(stop))
        try:
            async with asyncio.timeout(60):
                await ready.wait()
            await asyncio.to_thread(controller.accept)
            await settled(requests)
            before = len(requests)
            await wait_until_async(lambda: len(looks) >= 5, "the agent looks for due sweeps")
            assert len(requests) == before

            ifindex = socket.if_nametoindex(bench.port(1))
            bench.shape(1, 20)
            await wait_until_async(
                lambda: planes[0].settings(ifindex)[1] == 20_000_000, "the new rate", timeout_s=5
            )
            await settled(requests)
            assert 0 < len(requests) - before < 20
        finally:
            stop.set()
            await agent

    async def settled(seen: list[int]) -> None:
        """No request for some rounds of the agent."""
        last = (-1, 0)
        looks.clear()

        def still() -> bool:
            nonlocal last
            if len(seen) != last[0]:
                last = (len(seen), len(looks))
            return len(looks) >= last[1] + 3

        await wait_until_async(still, "no more requests")
        looks.clear()

    call = Netlink._call
    monkeypatch.setattr(Netlink, "_call", counted)
    due = KernelDataPlane.sweep_is_due

    def looked(self: KernelDataPlane, times: object) -> bool:
        looks.append(True)
        return due(self, times)  # type: ignore[arg-type]

    monkeypatch.setattr(KernelDataPlane, "sweep_is_due", looked)
    asyncio.run(script())
    assert bench.leftovers() == []
