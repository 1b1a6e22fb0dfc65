"""Fixtures of the tests of a real switch: a bench, a scripted controller, and a session between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.agent.switch_bench import Bench, Controller, built_bench, datapaths


@pytest.fixture(params=datapaths())
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with built_bench(request.param) as bench:
        yield bench


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
