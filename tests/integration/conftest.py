"""Fixtures of most tests of the switch: a bench, a scripted controller, and a session between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.agent.switch_bench import Bench, Controller, open_vswitch
from weir import probes


def datapaths() -> tuple[str, ...]:
    """Open vSwitch's datapaths on this machine: the one in the kernel needs a module."""
    try:
        probes.kernel_datapath()
    except probes.ProbeFailed:
        return ("netdev",)
    return ("netdev", "system")


@pytest.fixture(params=datapaths())
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with open_vswitch() as ovs:
        bench = Bench(ovs, request.param)
        try:
            bench.build()
            yield bench
        finally:
            bench.tear_down()


@pytest.fixture
def controller() -> Iterator[Controller]:
    controller = Controller()
    yield controller
    controller.close()


@pytest.fixture
def joined(bench: Bench, controller: Controller) -> Controller:
    """A controller whose session through a running agent is up."""
    bench.ready_agent(controller)
    controller.accept()
    return controller
