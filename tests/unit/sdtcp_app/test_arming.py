"""The armed clamps of ports: ranked, sent only after a change, and not while a port is alarmed."""

from dataclasses import replace

import pytest

from flowdb.flow import FiveTuple, Flow, Hop, PortKey
from flowdb.index import FlowIndex
from sdtcp_app.arming import PORTS_AT_ONCE, Arm, ArmedPorts, AskCapacity
from sdtcp_app.core import Sdtcp
from sdtcp_app.core_types import Alarm, Parameters

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
        self.ports = ArmedPorts(self.core, lambda flow_id: flow_id)

    def due(self, now_ns):
        return self.ports.due(RANKS, EVERY, now_ns)

    def armed(self, now_ns):
        """The flows with which a port was armed; None if nothing was sent."""
        requests = self.due(now_ns)
        return [clamp.flow.id for clamp in requests[0].clamps] if requests else None


@pytest.fixture
def bench():
    bench = Bench()
    bench.due(0)
    bench.ports.touch([PORT])
    assert bench.due(1) == [AskCapacity(PORT)]
    bench.ports.set_capacity(PORT, 100_000_000)
    assert bench.armed(2) == [1, 2, 3]
    return bench


def test_armed_windows_are_those_of_an_alarm_at_k():
    bench = Bench(flows=2)
    bench.ports.set_capacity(PORT, 100_000_000)
    (arm,) = bench.due(0)
    wc_bytes = (100_000_000 * 1000 // 8_000_000 + 20 * 1514) // 2
    assert [(clamp.window_bytes, clamp.alpha) for clamp in arm.clamps] == [(wc_bytes // 2, 5)] * 2


def test_only_changes_are_sent_at_most_once_in_an_interval(bench):
    bench.ports.touch([PORT])
    assert bench.due(EVERY + 2) == []
    bench.index.remove(1)
    bench.ports.touch([PORT])
    assert bench.due(EVERY + 3) == [], "it was looked at a moment ago"
    assert bench.armed(2 * EVERY + 3) == [2, 3, 4]


def test_a_changed_alpha_is_sent(bench):
    bench.core.parameters = replace(bench.core.parameters, alpha=9)
    (arm,) = bench.due(S)
    assert [clamp.alpha for clamp in arm.clamps] == [9, 9, 9]
    assert bench.due(2 * S) == []


def test_a_changed_hard_timeout_is_sent(bench):
    bench.core.parameters = replace(bench.core.parameters, hard_limit_ns=9 * S)
    assert bench.armed(S) == [1, 2, 3]
    assert bench.due(2 * S) == []


def test_a_changed_hard_timeout_is_not_sent_to_ports_without_armed_entries():
    bench = Bench(flows=0)
    bench.ports.set_capacity(PORT, 10**8)
    assert bench.due(0) == []
    bench.core.parameters = replace(bench.core.parameters, hard_limit_ns=9 * S)
    assert bench.due(S) == []


def test_all_ports_are_checked_once_a_second(bench):
    bench.index.remove(2)
    assert bench.armed(S - 1) is None
    assert bench.armed(S) == [1, 3, 4]


def test_an_activated_entry_disarms_the_port(bench):
    punish = bench.ports.activated(PORT, 1)
    assert punish.flow.id == 1
    assert bench.core.on_reflex(punish, S) == [punish]
    bench.ports.touch([PORT])
    assert bench.due(S) == [], "the port is alarmed: nothing may be turned on but by the controller"
    assert bench.ports.activated(PORT, 2).flow.id == 2, "a second step that was under way"
    bench.core.on_normal(PORT, 2 * S)
    assert bench.armed(2 * S) == [2, 3, 4]


def test_an_unknown_cookie_is_ignored(bench):
    assert bench.ports.activated(PORT, 99) is None
    assert bench.ports.activated(PortKey(9, 9), 1) is None


def test_an_alarmed_port_is_not_armed(bench):
    bench.core.on_alarm(Alarm(PORT, 45_000, 10**8), S)
    assert bench.armed(S) is None


def test_a_reconnected_switch_is_armed_again(bench):
    bench.ports.forget_switch(1)
    bench.ports.touch([PORT])
    assert bench.due(3) == [AskCapacity(PORT)]
    bench.ports.set_capacity(PORT, 10**8)
    assert bench.armed(EVERY + 3) == [1, 2, 3]


def test_refused_entries_are_sent_again(bench):
    bench.ports.forget(PORT)
    assert bench.armed(S) == [1, 2, 3]


def test_disarming_covers_every_armed_port_once(bench):
    assert bench.ports.disarm_all() == [Arm(PORT, ())]
    assert bench.ports.disarm_all() == []


def test_the_number_of_ports_armed_at_once_is_bounded():
    bench = Bench(flows=0)
    bench.ports.touch(PortKey(1, number) for number in range(PORTS_AT_ONCE + 5))
    assert len(bench.due(0)) == PORTS_AT_ONCE
    assert len(bench.due(1)) == 5
