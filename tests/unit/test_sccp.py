"""SCCP: Table I, the fair share, and what a switch is sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fabric_app.pipeline import COOKIE_SCCP
from flowdb.db import FlowDb
from flowdb.flow import PortKey
from flowdb.models import SettingRow
from openflow_ext import wire
from openflow_ext.switch.openflow import FlowMod
from openflow_ext.switch.rules import CountOp, WindowOp
from openflow_ext.switch.split import rule_for, split
from sccp_app.app import SccpApp
from sccp_app.config import SccpSettings
from sccp_app.core import TABLE_I, Act, PolicyError, PortPolicy, fair_share_bytes
from telemetry_app.events import EventPortSamples
from tests.unit.database import rows
from tests.unit.fake_datapath import FakeDatapath, event
from tests.unit.test_telemetry import a_sample

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
def app(tmp_path, monkeypatch):
    monkeypatch.delenv("WEIR_CONFIG", raising=False)
    flowdb = FlowDb(f"sqlite:///{tmp_path}/weir.db")
    app = SccpApp(flowdb=flowdb)
    app.flowdb, app.database = flowdb, tmp_path / "weir.db"
    yield app
    flowdb.close()


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


def test_what_it_runs_with_is_in_the_database(app):
    app.flowdb.close()
    (noted,) = rows(app.database, SettingRow)
    assert (noted.section, noted.chosen["common_rtt_us"]) == ("sccp", 600)


def test_prometheus_gets_the_ports_and_the_database(app):
    app.on_samples(EventPortSamples(5, (a_sample(PortKey(5, 1), "s5-eth1", n_i=3),)))
    of = {"dpid": f"{5:016x}", "port_no": "1", "name": "s5-eth1"}
    assert app.figures.registry.get_sample_value("weir_port_n_i", of) == 3
    assert app.figures.registry.get_sample_value("weir_flowdb_rows_lost") == 0


@pytest.mark.parametrize("address", ["9466", ":9466", "127.0.0.1:port"])
def test_an_address_that_is_none(address):
    with pytest.raises(ValidationError, match="metrics"):
        SccpSettings(metrics=address)
