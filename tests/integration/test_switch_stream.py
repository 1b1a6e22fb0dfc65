"""A TCP stream of a clamped flow while the agent is killed and another one takes over."""

from __future__ import annotations

import signal

import pytest

from openflow_ext import wire
from tests.support.agent.clamped_stream import (
    CLAMP,
    clamp_all,
    scaled_streaming,
    segments,
    wider_windows,
)
from tests.support.agent.streaming import await_clamps
from tests.support.agent.switch_bench import Bench, Controller

pytestmark = pytest.mark.beside_others


@pytest.fixture
def clamping(joined: Controller) -> Controller:
    """A controller that clamps all TCP that the bridge forwards."""
    clamp_all(joined)
    return joined


def test_no_segment_is_lost_or_unclamped_while_an_agent_is_killed_and_replaced(
    bench: Bench, controller: Controller, clamping: Controller
) -> None:
    rules = bench.rules()
    agent = bench.agents[-1]
    with wider_windows(bench) as unclamped, scaled_streaming(bench) as finish:
        await_clamps(bench)
        for _ in range(2):
            agent.end(signal.SIGKILL)
            alone = await_clamps(bench, "it is clamped without an agent")
            agent = bench.ready_agent(controller)
            controller.accept()
            after = await_clamps(bench, "it is clamped with the next agent")
            assert after.acks_seen > alone.acks_seen
            assert after.syns_counted == alone.syns_counted
            assert bench.rules() == rules
            assert wire.encode_action(CLAMP) in b"".join(controller.flows())
        sent, came = finish()
    assert came == sent > 0
    assert unclamped == []
    assert segments(bench, 1) == segments(bench, 2)[::-1], "none is lost"
