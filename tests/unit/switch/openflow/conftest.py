"""What the tests of sessions share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.agent.proxy_bench import Play, perform


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Play a script between a scripted Open vSwitch and a scripted controller."""
    return lambda script: perform(script, tmp_path)
