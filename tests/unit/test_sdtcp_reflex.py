"""What ports are armed with: ranked, only what changed, not while they are alarmed."""

import pytest

from flowdb.flow import FiveTuple, Flow, Hop, PortKey
from flowdb.index import FlowIndex
from sdtcp_app.core import Sdtcp
from sdtcp_app.decisions import Alarm, Parameters
from sdtcp_app.reflex import PORTS_AT_ONCE, Arm, AskCapacity, Reflexes

PORT = PortKey(1, 2)
MS, S = 1_000_000, 1_000_000_000
RANKS, EVERY = 3, 100 * MS


def make_flow(number):
    key = FiveTuple("10.0.0.1", "10.0.1.1", 1000 + number, 80)
    return Flow(number, key, (Hop(1, 1, 2),), number, 1460, 9)


class Bench:
    def __init__(self, flows=4):
        self.index = FlowIndex()
        for number in range(1, flows + 1):
            self.index.add(make_flow(number))
        self.core = Sdtcp(self.index, Parameters())
        self.reflexes = Reflexes(self.core, lambda flow_id: flow_id)

    def due(self, now_ns):
        return self.reflexes.due(RANKS, EVERY, now_ns)

    def armed(self, now_ns):
        """The flows that a port is armed with now, None where nothing was sent."""
        requests = self.due(now_ns)
        return [clamp.flow.id for clamp in requests[0].clamps] if requests else None


@pytest.fixture
def bench():
    bench = Bench()
    bench.due(0)
    bench.reflexes.touch([PORT])
    assert bench.due(1) == [AskCapacity(PORT)]
    bench.reflexes.capacity(PORT, 100_000_000)
    assert bench.armed(2) == [1, 2, 3]
    return bench


def test_the_windows_are_those_of_an_alarm_at_k():
    bench = Bench(flows=2)
    bench.reflexes.capacity(PORT, 100_000_000)
    (arm,) = bench.due(0)
    wc_bytes = (100_000_000 * 1000 // 8_000_000 + 20 * 1514) // 2
    assert [(clamp.window_bytes, clamp.alpha) for clamp in arm.clamps] == [(wc_bytes // 2, 5)] * 2


def test_only_changes_are_sent_and_not_too_often(bench):
    bench.reflexes.touch([PORT])
    assert bench.due(EVERY + 2) == []
    bench.index.remove(1)
    bench.reflexes.touch([PORT])
    assert bench.due(EVERY + 3) == [], "it was looked at a moment ago"
    assert bench.armed(2 * EVERY + 3) == [2, 3, 4]


def test_all_ports_are_looked_at_once_a_second(bench):
    bench.index.remove(2)
    assert bench.armed(S - 1) is None
    assert bench.armed(S) == [1, 3, 4]


def test_the_switch_s_first_step_is_taken_over(bench):
    punish = bench.reflexes.turned_on(PORT, 1)
    assert punish.flow.id == 1
    assert bench.core.on_reflex(punish, S) == [punish]
    bench.reflexes.touch([PORT])
    assert bench.due(S) == [], "the port is alarmed: nothing may be turned on but by the controller"
    assert bench.reflexes.turned_on(PORT, 2).flow.id == 2, "a second step that was under way"
    bench.core.on_normal(PORT, 2 * S)
    assert bench.armed(2 * S) == [2, 3, 4]


def test_what_nobody_armed_is_nothing(bench):
    assert bench.reflexes.turned_on(PORT, 99) is None
    assert bench.reflexes.turned_on(PortKey(9, 9), 1) is None


def test_an_alarmed_port_waits(bench):
    bench.core.on_alarm(Alarm(PORT, 45_000, 10**8), S)
    assert bench.armed(S) is None


def test_a_switch_that_comes_again_is_armed_anew(bench):
    bench.reflexes.forget_switch(1)
    bench.reflexes.touch([PORT])
    assert bench.due(3) == [AskCapacity(PORT)]
    bench.reflexes.capacity(PORT, 10**8)
    assert bench.armed(EVERY + 3) == [1, 2, 3]


def test_a_port_whose_entries_were_refused_is_tried_again(bench):
    bench.reflexes.forget(PORT)
    assert bench.armed(S) == [1, 2, 3]


def test_the_end_of_the_mode_disarms_what_is_armed(bench):
    assert bench.reflexes.disarm_all() == [Arm(PORT, ())]
    assert bench.reflexes.disarm_all() == []


def test_so_many_ports_at_once():
    bench = Bench(flows=0)
    bench.reflexes.touch(PortKey(1, number) for number in range(PORTS_AT_ONCE + 5))
    assert len(bench.due(0)) == PORTS_AT_ONCE
    assert len(bench.due(1)) == 5
