"""What the tests of the registry share."""

from __future__ import annotations

import itertools

import pytest

from openflow_ext import engine, registry, wire
from tests.support.openflow.installed_engine import Engine


@pytest.fixture(params=itertools.product(engine.ENGINES, (wire.OFP13, wire.OFP15)), ids=str)
def eng(request: pytest.FixtureRequest) -> Engine:
    """Each engine in each version, with no malformed message counted."""
    registry.malformed.clear()
    return Engine(*request.param)
