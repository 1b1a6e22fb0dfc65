"""The decision which switch to ask, the samples of its replies, and the metrics made of them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flowdb.flow import NS_PER_S, PortKey
from openflow_ext.wire import PortCountersFlags
from telemetry_app import core
from telemetry_app.core import FIRST_TIMEOUT_NS, LONGEST_TIMEOUT_NS, Sampler, TooManyPorts
from telemetry_app.metrics import PortCollector
from tests.support.controllers.port_samples import a_record, a_sample
from webui.api.metrics import _port_metrics

ATTACHED, ALARM_UP = PortCountersFlags.ATTACHED, PortCountersFlags.ALARM_UP


@pytest.fixture
def sampler():
    sampler = Sampler()
    sampler.switch_up(1)
    sampler.described(1)
    return sampler


def test_a_switch_is_asked_after_it_has_described_its_ports():
    sampler = Sampler()
    sampler.described(1)
    sampler.switch_up(1)
    assert sampler.due(0) == []
    sampler.described(1)
    assert sampler.due(0) == [1]


def test_a_switch_that_replies_is_asked_at_every_tick(sampler):
    for xid in range(1, 5):
        assert sampler.due(xid) == [1]
        assert not sampler.asked(1, xid, xid)
        assert sampler.due(xid) == []
        (sample,) = sampler.on_reply(1, xid, [a_record(n_i=xid)], more=False, at_ns=xid)
        assert (sample.port, sample.at_ns, sample.counters.n_i) == (PortKey(1, 1), xid, xid)


def test_the_timeout_of_a_silent_switch_doubles_up_to_its_maximum(sampler):
    """One hour with a tick per second: the requests are 5 s, 10 s, ... 320 s apart."""
    asked_s = []
    for now_s in range(3600):
        for dpid in sampler.due(now_s * NS_PER_S):
            timed_out = sampler.asked(dpid, now_s, now_s * NS_PER_S)
            assert timed_out == bool(asked_s)
            asked_s.append(now_s)
    waits = [later - earlier for earlier, later in pairwise(asked_s)]
    assert waits[:7] == [5, 10, 20, 40, 80, 160, 320]
    assert set(waits[7:]) == {LONGEST_TIMEOUT_NS // NS_PER_S}


def test_a_late_reply_to_a_request_that_timed_out_is_ignored(sampler):
    sampler.asked(1, 10, 0)
    sampler.asked(1, 11, FIRST_TIMEOUT_NS)
    assert sampler.on_reply(1, 10, [a_record()], more=False, at_ns=1) is None
    assert sampler.due(2 * FIRST_TIMEOUT_NS) == []
    assert sampler.on_reply(1, 11, [a_record()], more=False, at_ns=1)
    sampler.asked(1, 12, 0)
    assert sampler.due(FIRST_TIMEOUT_NS) == [1], "after a reply the timeout is short again"


@given(
    st.lists(st.lists(st.integers(1, 50), max_size=8), min_size=1, max_size=5), st.sets(st.integers(1, 50))
)
def test_samples_come_from_all_parts_and_from_attached_ports_only(parts, attached):
    sampler = Sampler()
    sampler.switch_up(1)
    sampler.port_named(PortKey(1, 7), "s1-eth7")
    sampler.asked(1, 5, 0)
    for place, ports in enumerate(parts):
        last = place == len(parts) - 1
        records = [a_record(n, ATTACHED if n in attached else PortCountersFlags.NONE, n_i=n) for n in ports]
        samples = sampler.on_reply(1, 5, records, more=not last, at_ns=9)
        assert (samples is None) == (not last)
    assert {s.port.port_no for s in samples} == {n for ports in parts for n in ports} & attached
    assert len({s.port for s in samples}) == len(samples)
    assert all(s.name == ("s1-eth7" if s.port.port_no == 7 else "") for s in samples)
    assert all(s.counters.n_i == s.port.port_no for s in samples)


def test_a_reply_with_too_many_ports_is_refused(sampler, monkeypatch):
    monkeypatch.setattr(core, "MAX_PORTS", 3)
    sampler.asked(1, 5, 0)
    assert sampler.on_reply(1, 5, [a_record(1), a_record(2)], more=True, at_ns=1) is None
    with pytest.raises(TooManyPorts, match="more than 3 ports"):
        sampler.on_reply(1, 5, [a_record(3), a_record(4)], more=True, at_ns=1)
    assert sampler.on_reply(1, 5, [a_record(5)], more=True, at_ns=1) is None
    assert sampler.due(LONGEST_TIMEOUT_NS) == []
    sampler.switch_up(1)
    sampler.described(1)
    assert sampler.due(0) == [1], "asked again after it reconnects"


def test_a_switch_that_refuses_is_not_asked_again(sampler):
    sampler.asked(1, 5, 0)
    assert not sampler.on_error(1, 6)
    assert not sampler.on_error(2, 5)
    assert sampler.on_error(1, 5)
    assert sampler.due(LONGEST_TIMEOUT_NS) == []


def test_samples_carry_the_current_name_of_their_port(sampler):
    port = PortKey(1, 1)
    for change, name in ((sampler.port_named, "old"), (sampler.port_named, "new"), (sampler.port_gone, "")):
        change(*((port, name) if name else (port,)))
        sampler.asked(1, 5, 0)
        (sample,) = sampler.on_reply(1, 5, [a_record()], more=False, at_ns=1)
        assert sample.name == name
    sampler.port_named(PortKey(9, 1), "of a switch that is not connected")
    sampler.port_gone(PortKey(9, 1))
    sampler.switch_gone(9)


class Sampling(RuleBasedStateMachine):
    """Switches connect, disconnect, reply, refuse and stay silent in any order."""

    def __init__(self):
        super().__init__()
        self.sampler, self.now_ns, self.xid = Sampler(), 0, 0
        self.open: dict[int, list[tuple[int, int]]] = {}
        self.refusing: set[int] = set()

    @rule(dpid=st.integers(1, 3))
    def connect(self, dpid):
        self.sampler.switch_up(dpid)
        self.sampler.described(dpid)
        self.open[dpid] = []
        self.refusing.discard(dpid)

    @rule(dpid=st.integers(1, 3))
    def disconnect(self, dpid):
        self.sampler.switch_gone(dpid)
        self.open.pop(dpid, None)

    @rule(after_s=st.integers(1, 20))
    def ask(self, after_s):
        self.now_ns += after_s * NS_PER_S
        for dpid in self.sampler.due(self.now_ns):
            assert dpid in self.open, "a disconnected switch was asked"
            assert dpid not in self.refusing, "a switch that refuses was asked"
            self.xid += 1
            for _, at_ns in self.open[dpid]:
                assert self.now_ns - at_ns >= FIRST_TIMEOUT_NS, "asked again before the timeout"
            self.sampler.asked(dpid, self.xid, self.now_ns)
            self.open[dpid].append((self.xid, self.now_ns))

    @precondition(lambda self: any(self.open.values()))
    @rule(data=st.data())
    def reply(self, data):
        dpid = data.draw(st.sampled_from([dpid for dpid, asked in self.open.items() if asked]))
        xid, _ = data.draw(st.sampled_from(self.open[dpid]))
        newest = xid == self.open[dpid][-1][0]
        samples = self.sampler.on_reply(dpid, xid, [a_record()], more=False, at_ns=self.now_ns)
        if dpid not in self.refusing:
            assert (samples is not None) == newest
            if newest:
                self.open[dpid] = []

    @precondition(lambda self: any(self.open.values()))
    @rule(data=st.data())
    def refuse_request(self, data):
        dpid = data.draw(st.sampled_from([dpid for dpid, asked in self.open.items() if asked]))
        if self.sampler.on_error(dpid, self.open[dpid][-1][0]):
            self.refusing.add(dpid)

    @invariant()
    def requests_without_reply_are_rare(self):
        """The timeout doubles: n requests without a reply take at least 5 s x (2^(n-1) - 1)."""
        for asked in self.open.values():
            if len(asked) > 1:
                waited_ns = asked[-1][1] - asked[0][1]
                least_ns = sum(min(FIRST_TIMEOUT_NS << n, LONGEST_TIMEOUT_NS) for n in range(len(asked) - 1))
                assert waited_ns >= least_ns


TestSampling = Sampling.TestCase


def families(collector):
    return {family.name: family for family in collector.collect()}


def test_metrics_show_the_newest_samples_of_connected_switches():
    collector = PortCollector()
    collector.take(1, (a_sample(PortKey(1, 1), "a", n_i=1), a_sample(PortKey(1, 2), "b", n_i=2)))
    collector.take(1, (a_sample(PortKey(1, 2), "b", n_i=3, drops=4, flags=ATTACHED | ALARM_UP),))
    collector.take(2, (a_sample(PortKey(2, 1), "c", fair_share_bytes=5),))
    found = families(collector)
    values = {s.labels["name"]: s.value for s in found["weir_port_n_i"].samples}
    assert values == {"b": 3, "c": 0}
    assert {s.labels["name"]: s.value for s in found["weir_port_alarm"].samples} == {"b": 1, "c": 0}
    (drops, _) = found["weir_port_drops"].samples
    assert (drops.name, drops.value) == ("weir_port_drops_total", 4)
    shares = [(s.labels["dpid"], s.value) for s in found["weir_port_fair_share_bytes"].samples]
    assert shares == [(f"{2:016x}", 5)], "a port without a fair share has no such metric"
    collector.take(1, ())
    collector.take(3, ())
    assert [s.labels["name"] for s in families(collector)["weir_port_n_i"].samples] == ["c"]


def test_no_metric_name_changes():
    """Dashboards and alerts of operators use these names."""
    families = {family.name: family.type for family in PortCollector().collect()}
    gauges = ("alarm", "n_i", "fair_share_bytes", "capacity_bps", "queue_pkts", "queue_bytes")
    counters = ("alarms", "acks_seen", "clamped", "marked", "drops", "unscaled", "untracked")
    assert families.items() >= {f"weir_port_{name}": "gauge" for name in (*gauges, "queue_max_pkts")}.items()
    assert families.items() >= {f"weir_port_{name}": "counter" for name in counters}.items()


def test_the_dashboard_exports_the_metrics_of_the_controllers_and_the_clamps():
    names = [
        {family.name for family in families} for families in (PortCollector().collect(), _port_metrics([]))
    ]
    assert names[1] - names[0] == {"weir_port_clamps"}
    assert names[0] < names[1]
