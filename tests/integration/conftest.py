"""What most tests of the switch begin with: a bench, a controller by hand, a session between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.switch_bench import Bench, Controller, open_vswitch


@pytest.fixture
def bench() -> Iterator[Bench]:
    with open_vswitch() as ovs:
        bench = Bench(ovs)
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
