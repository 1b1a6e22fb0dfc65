"""Whom to ask for port counters, what the answers say, and the figures made of them: without a switch."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from prometheus_client.core import CounterMetricFamily

from flowdb.flow import NS_PER_S, PortKey
from openflow_ext.wire import PortCountersFlags, PortCountersRecord
from telemetry_app import core
from telemetry_app.core import MOST_PATIENCE_NS, PATIENCE_NS, PortSample, Sampler, TooManyPorts
from telemetry_app.metrics import COUNTERS, GAUGES, LABELS, PortFigures
from webui.api import metrics as dashboard

ATTACHED, ALARM_UP = PortCountersFlags.ATTACHED, PortCountersFlags.ALARM_UP


def a_record(port_no=1, flags=ATTACHED, **counted):
    return PortCountersRecord(port_no, flags=flags, **counted)


def a_sample(port, name="p", at_ns=1, **counted):
    return PortSample(port, name, at_ns, a_record(port.port_no, **counted))


@pytest.fixture
def sampler():
    sampler = Sampler()
    sampler.switch_up(1)
    sampler.described(1)
    return sampler


def test_a_switch_is_asked_once_it_has_told_its_ports():
    sampler = Sampler()
    sampler.described(1)
    sampler.switch_up(1)
    assert sampler.due(0) == []
    sampler.described(1)
    assert sampler.due(0) == [1]


def test_a_switch_that_answers_is_asked_each_time(sampler):
    for xid in range(1, 5):
        assert sampler.due(xid) == [1]
        assert not sampler.asked(1, xid, xid)
        assert sampler.due(xid) == []
        (sample,) = sampler.on_reply(1, xid, [a_record(n_i=xid)], more=False, at_ns=xid)
        assert (sample.port, sample.at_ns, sample.counters.n_i) == (PortKey(1, 1), xid, xid)


def test_one_that_does_not_answer_is_asked_ever_less(sampler):
    """In an hour of asking each second: 5 s, 10 s, ... 320 s between the requests."""
    asked_s = []
    for now_s in range(3600):
        for dpid in sampler.due(now_s * NS_PER_S):
            overdue = sampler.asked(dpid, now_s, now_s * NS_PER_S)
            assert overdue == bool(asked_s)
            asked_s.append(now_s)
    waits = [later - earlier for earlier, later in pairwise(asked_s)]
    assert waits[:7] == [5, 10, 20, 40, 80, 160, 320]
    assert set(waits[7:]) == {MOST_PATIENCE_NS // NS_PER_S}


def test_a_late_answer_to_a_request_given_up_is_no_answer(sampler):
    sampler.asked(1, 10, 0)
    sampler.asked(1, 11, PATIENCE_NS)
    assert sampler.on_reply(1, 10, [a_record()], more=False, at_ns=1) is None
    assert sampler.due(2 * PATIENCE_NS) == []
    assert sampler.on_reply(1, 11, [a_record()], more=False, at_ns=1)
    sampler.asked(1, 12, 0)
    assert sampler.due(PATIENCE_NS) == [1], "patience is short again"


@given(
    st.lists(st.lists(st.integers(1, 50), max_size=8), min_size=1, max_size=5), st.sets(st.integers(1, 50))
)
def test_samples_are_of_all_parts_and_of_attached_ports(parts, attached):
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


def test_an_answer_without_an_end(sampler, monkeypatch):
    monkeypatch.setattr(core, "MOST_PORTS", 3)
    sampler.asked(1, 5, 0)
    assert sampler.on_reply(1, 5, [a_record(1), a_record(2)], more=True, at_ns=1) is None
    with pytest.raises(TooManyPorts, match="more than 3 ports"):
        sampler.on_reply(1, 5, [a_record(3), a_record(4)], more=True, at_ns=1)
    assert sampler.on_reply(1, 5, [a_record(5)], more=True, at_ns=1) is None
    assert sampler.due(MOST_PATIENCE_NS) == []
    sampler.switch_up(1)
    sampler.described(1)
    assert sampler.due(0) == [1], "asked anew once it connects anew"


def test_a_plain_switch_is_left_alone(sampler):
    sampler.asked(1, 5, 0)
    assert not sampler.on_error(1, 6)
    assert not sampler.on_error(2, 5)
    assert sampler.on_error(1, 5)
    assert sampler.due(MOST_PATIENCE_NS) == []


def test_names_come_and_go_with_their_ports(sampler):
    port = PortKey(1, 1)
    for change, name in ((sampler.port_named, "old"), (sampler.port_named, "new"), (sampler.port_gone, "")):
        change(*((port, name) if name else (port,)))
        sampler.asked(1, 5, 0)
        (sample,) = sampler.on_reply(1, 5, [a_record()], more=False, at_ns=1)
        assert sample.name == name
    sampler.port_named(PortKey(9, 1), "of a switch that is not here")
    sampler.port_gone(PortKey(9, 1))
    sampler.switch_gone(9)


class Sampling(RuleBasedStateMachine):
    """Switches come, go, answer, refuse and keep silent in any order: one request is open at most."""

    def __init__(self):
        super().__init__()
        self.sampler, self.now_ns, self.xid = Sampler(), 0, 0
        self.open: dict[int, list[tuple[int, int]]] = {}
        self.refuse: set[int] = set()

    @rule(dpid=st.integers(1, 3))
    def come(self, dpid):
        self.sampler.switch_up(dpid)
        self.sampler.described(dpid)
        self.open[dpid] = []
        self.refuse.discard(dpid)

    @rule(dpid=st.integers(1, 3))
    def go(self, dpid):
        self.sampler.switch_gone(dpid)
        self.open.pop(dpid, None)

    @rule(after_s=st.integers(1, 20))
    def ask(self, after_s):
        self.now_ns += after_s * NS_PER_S
        for dpid in self.sampler.due(self.now_ns):
            assert dpid in self.open, "a switch that is gone was asked"
            assert dpid not in self.refuse, "a switch that refuses was asked"
            self.xid += 1
            for _, at_ns in self.open[dpid]:
                assert self.now_ns - at_ns >= PATIENCE_NS, "asked again at once"
            self.sampler.asked(dpid, self.xid, self.now_ns)
            self.open[dpid].append((self.xid, self.now_ns))

    @precondition(lambda self: any(self.open.values()))
    @rule(data=st.data())
    def answer(self, data):
        dpid = data.draw(st.sampled_from([dpid for dpid, asked in self.open.items() if asked]))
        xid, _ = data.draw(st.sampled_from(self.open[dpid]))
        newest = xid == self.open[dpid][-1][0]
        samples = self.sampler.on_reply(dpid, xid, [a_record()], more=False, at_ns=self.now_ns)
        if dpid not in self.refuse:
            assert (samples is not None) == newest
            if newest:
                self.open[dpid] = []

    @precondition(lambda self: any(self.open.values()))
    @rule(data=st.data())
    def say_no(self, data):
        dpid = data.draw(st.sampled_from([dpid for dpid, asked in self.open.items() if asked]))
        if self.sampler.on_error(dpid, self.open[dpid][-1][0]):
            self.refuse.add(dpid)

    @invariant()
    def few_are_open(self):
        """Doubling waits: n requests without an answer take 5 s x (2^(n-1) - 1) at least."""
        for asked in self.open.values():
            if len(asked) > 1:
                waited_ns = asked[-1][1] - asked[0][1]
                least_ns = sum(min(PATIENCE_NS << n, MOST_PATIENCE_NS) for n in range(len(asked) - 1))
                assert waited_ns >= least_ns


TestSampling = Sampling.TestCase


def families(figures):
    return {family.name: family for family in figures.collect()}


def test_figures_are_of_the_newest_samples_of_switches_that_are_here():
    figures = PortFigures()
    figures.take(1, (a_sample(PortKey(1, 1), "a", n_i=1), a_sample(PortKey(1, 2), "b", n_i=2)))
    figures.take(1, (a_sample(PortKey(1, 2), "b", n_i=3, drops=4, flags=ATTACHED | ALARM_UP),))
    figures.take(2, (a_sample(PortKey(2, 1), "c", fair_share_bytes=5),))
    found = families(figures)
    values = {s.labels["name"]: s.value for s in found["weir_port_n_i"].samples}
    assert values == {"b": 3, "c": 0}
    assert {s.labels["name"]: s.value for s in found["weir_port_alarm"].samples} == {"b": 1, "c": 0}
    (drops, _) = found["weir_port_drops"].samples
    assert (drops.name, drops.value) == ("weir_port_drops_total", 4)
    shares = [(s.labels["dpid"], s.value) for s in found["weir_port_fair_share_bytes"].samples]
    assert shares == [(f"{2:016x}", 5)], "a port that gives no share has none"
    figures.take(1, ())
    figures.take(3, ())
    assert [s.labels["name"] for s in families(figures)["weir_port_n_i"].samples] == ["c"]


def test_every_figure_is_a_counter_of_the_switch():
    assert {*GAUGES, *COUNTERS} <= {*PortCountersRecord.__slots__}


def test_controllers_and_dashboard_name_a_figure_alike():
    """So that one panel shows either."""
    figures = PortFigures()
    figures.take(1, (a_sample(PortKey(1, 1)),))
    ours = families(figures)
    theirs = {family.name: family for family in dashboard._of_ports([])}
    for name in ours.keys() & theirs.keys():
        assert (ours[name].type, ours[name]._labelnames) == (theirs[name].type, theirs[name]._labelnames)
        assert theirs[name]._labelnames == LABELS
    assert theirs.keys() - ours.keys() == {"weir_port_clamps"}
    assert isinstance(ours["weir_port_drops"], CounterMetricFamily)
