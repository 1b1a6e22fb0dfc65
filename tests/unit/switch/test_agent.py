"""The agent follows the links of its ports."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from openflow_ext.switch import agent as agent_module
from openflow_ext.switch.agent import Agent
from openflow_ext.switch.config import SwitchSettings
from openflow_ext.switch.errors import SwitchError
from openflow_ext.switch.ovs import egress
from openflow_ext.switch.ovs.egress import Egress
from openflow_ext.switch.ovs.ports import Link, Port

TEST_S = 5.0
"""The longest time that a test waits."""


class _Links:
    """Notifications: one of an interface, then none. ``fd`` never becomes readable."""

    def __init__(self, fd: int, *notified: set[int] | None) -> None:
        self.fd = fd
        self._notified = list(notified)

    def read(self) -> set[int] | None:
        return self._notified.pop(0) if self._notified else set()


class _Ports:
    """The ports of a bridge, with what the agent has read for them."""

    def __init__(self, *names: str) -> None:
        self._ports = [Port(Link(ifindex, name, ifindex)) for ifindex, name in enumerate(names, start=1)]
        self.read: dict[int, Egress] = {}
        self.updated = asyncio.Event()

    def __iter__(self) -> Any:
        return iter(self._ports)

    def update(self, egresses: Mapping[int, Egress]) -> None:
        self.read.update(egresses)
        self.updated.set()

    def check_programs(self, _: object) -> bool:
        return False


async def _followed(ports: _Ports, links: _Links) -> bool:
    """Let an agent follow ``links`` until it has updated ``ports``. True if it asks Open vSwitch again."""
    agent: Any = Agent(SwitchSettings(), lambda: pytest.fail("no data plane is needed"), lambda *_: None)
    agent._links, agent._netlink, agent._db = links, None, SimpleNamespace(changed=asyncio.Event())
    agent._extended = [SimpleNamespace(bridge=SimpleNamespace(ports=ports))]
    agent._links_changed.set()
    following = asyncio.create_task(agent._follow_links())
    async with asyncio.timeout(TEST_S):
        await ports.updated.wait()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    return bool(agent._db.changed.is_set())


@pytest.mark.parametrize(
    ("notified", "expected"), [({2}, {2}), (None, {1, 2})], ids=["one interface", "notifications lost"]
)
def test_a_change_that_could_not_be_read_is_read_again(
    monkeypatch: pytest.MonkeyPatch, notified: set[int] | None, expected: set[int]
) -> None:
    failures = [SwitchError("the qdiscs of the ports cannot be read: timed out")]

    def read_egresses(_: Any, names: Mapping[int, str]) -> dict[int, Egress]:
        if failures:
            raise failures.pop()
        return {ifindex: Egress(rate_bps=ifindex) for ifindex in names}

    async def run() -> dict[int, Egress]:
        reading, writing = os.pipe()
        try:
            ports = _Ports("a", "b")
            await _followed(ports, _Links(reading, notified))
            return ports.read
        finally:
            os.close(reading)
            os.close(writing)

    monkeypatch.setattr(egress, "read_egresses", read_egresses)
    monkeypatch.setattr(agent_module, "RETRY_S", 0.01)
    monkeypatch.setattr(agent_module, "interfaces", lambda: {1, 2})
    assert set(asyncio.run(run())) == expected


@pytest.mark.parametrize(("present", "asks"), [({1, 2}, False), ({1}, True)])
def test_an_interface_that_is_gone_is_not_read_and_open_vswitch_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, present: set[int], asks: bool
) -> None:
    async def run() -> tuple[set[int], bool]:
        reading, writing = os.pipe()
        try:
            ports = _Ports("a", "b")
            asked = await _followed(ports, _Links(reading, {1, 2}))
            return set(ports.read), asked
        finally:
            os.close(reading)
            os.close(writing)

    monkeypatch.setattr(egress, "read_egresses", lambda _, names: dict.fromkeys(names, Egress()))
    monkeypatch.setattr(agent_module, "interfaces", lambda: present)
    assert asyncio.run(run()) == (present, asks)
