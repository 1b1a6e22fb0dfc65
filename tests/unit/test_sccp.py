"""SCCP: Table I, the fair share, and what a switch is sent."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_app.pipeline import COOKIE_SCCP
from openflow_ext import wire
from openflow_ext.engine import DEAD_DISPATCHER, MAIN_DISPATCHER
from openflow_ext.switch.openflow import FlowMod
from openflow_ext.switch.rules import CountOp, WindowOp
from openflow_ext.switch.split import rule_for, split
from sccp_app.app import SccpApp
from sccp_app.core import TABLE_I, Act, PolicyError, PortPolicy, fair_share_bytes
from tests.unit.fake_datapath import FakeDatapath, event

FIN, SYN, RST = 1, 2, 4


@pytest.mark.parametrize("flags", range(256))
def test_each_segment_has_one_row_and_it_is_the_right_one(flags):
    (row,) = [row for row in TABLE_I if flags & row.mask == row.flags]
    if flags & SYN:
        assert row.acts == (Act.INCREMENT_NI,)
    elif flags & (FIN | RST):
        assert row.acts == (Act.DECREMENT_NI, Act.SET_WINDOW)
    else:
        assert row.acts == (Act.SET_WINDOW,)


def test_the_paper_s_example():
    """Section III.D, figure 2: a BDP of 25,000 bytes (1 Gbit/s, 200 µs) and 10 flows."""
    policy = PortPolicy(common_rtt_us=200)
    assert fair_share_bytes(policy, 10, 10**9) == 2_500
    assert fair_share_bytes(policy, 5, 10**9) == 5_000
    assert fair_share_bytes(policy, 0, 10**9) == 25_000
    assert fair_share_bytes(PortPolicy(200, capacity_bps=10**10), 10, 10**9) == 25_000


@given(st.integers(1, 10**12), st.integers(1, 10**6), st.integers(1, 10**5))
def test_shares_fill_the_bdp(capacity, rtt, n_i):
    share = fair_share_bytes(PortPolicy(rtt), n_i, capacity)
    assert 0 <= capacity * rtt // 8_000_000 - share * n_i < n_i


@pytest.mark.parametrize("values", [(0,), (-1,), (300, -1), (300, 0, -1)])
def test_policies_without_a_share(values):
    with pytest.raises(PolicyError):
        PortPolicy(*values)


def test_an_unknown_capacity():
    with pytest.raises(PolicyError, match="capacity is unknown"):
        fair_share_bytes(PortPolicy(300), 3)


@pytest.fixture
def app(monkeypatch):
    monkeypatch.delenv("WEIR_CONFIG", raising=False)
    return SccpApp()


def test_a_switch_that_comes_gets_table_i_and_the_policy(app):
    datapath = FakeDatapath()
    app.on_switch(event(datapath))
    config = wire.decode_message(bytes(datapath.sent[0].buf))
    assert config == wire.PortConfig(wire.OFPP_ANY, wire.PortConfigFlags.WINDOW, common_rtt_us=600)
    mods = datapath.flow_mods()
    assert {(m.table_id, m.priority, m.goto, m.cookie) for m in mods} == {(1, 100, 2, COOKIE_SCCP)}
    share, down, up = wire.SetWindow(), wire.DecrementNi(), wire.IncrementNi()
    for eth_type in (0x0800, 0x86DD):
        rows = {
            mod.match["tcp_flags"]: [action.to_wire() for action in mod.extension]
            for mod in mods
            if mod.match["eth_type"] == eth_type
        }
        assert rows == {(2, 2): [up], (1, 3): [down, share], (4, 7): [down, share], (0, 7): [share]}


def test_the_switch_can_carry_table_i_out(app):
    """Each entry, as the agent splits it."""
    datapath = FakeDatapath()
    app.on_switch(event(datapath))
    messages = [bytes(message.buf) for message in datapath.sent[1:]]
    rules = [rule_for(FlowMod.parse(data), split(data).actions) for data in messages]
    assert [(r.match.ip_version, r.match.flags, r.match.flags_mask) for r in rules] == [
        (version, row.flags, row.mask) for version in (4, 6) for row in TABLE_I
    ]
    assert [r.window_op for r in rules[:4]] == [WindowOp.NONE] + [WindowOp.FAIR_SHARE] * 3
    counts = [CountOp.INCREMENT_NI, CountOp.DECREMENT_NI, CountOp.DECREMENT_NI, CountOp.NONE]
    assert [r.count_op for r in rules[:4]] == counts


def test_counters_are_told_to_whoever_listens(app, monkeypatch):
    events = []
    monkeypatch.setattr(app, "send_event_to_observers", events.append)
    app.on_counters(event(FakeDatapath(5), body=["one", "two"]))
    assert (events[0].dpid, events[0].counters) == (5, ("one", "two"))


def test_an_older_session_s_end_does_not_forget_the_switch(app):
    old, new = FakeDatapath(), FakeDatapath()
    for datapath in (old, new):
        app.on_state(SimpleNamespace(datapath=datapath, state=MAIN_DISPATCHER))
    app.on_state(SimpleNamespace(datapath=old, state=DEAD_DISPATCHER))
    assert app.datapaths == {1: new}
    app.on_state(SimpleNamespace(datapath=new, state=DEAD_DISPATCHER))
    assert app.datapaths == {}
