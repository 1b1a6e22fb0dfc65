"""SCCP: Table I, the fair share, and what a switch is sent."""

from types import SimpleNamespace

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
from openflow_ext.wire import PortCountersFlags, PortCountersRecord
from sccp_app.app import SccpApp
from sccp_app.config import SccpSettings
from sccp_app.core import TABLE_I, Act, PolicyError, PortPolicy, fair_share_bytes, overshoot_bytes
from sccp_app.metrics import ShareFigures
from sccp_app.shares import KEPT_HANDSHAKES, SPACING_NS, RttPolicy, Share, Shares, why_counted_only
from telemetry_app.core import PortSample
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


def test_the_paper_s_overshoot():
    """Section III.B: 1 Gbit/s, 200 µs on average, a common RTT of 300 µs: 12.5 KB in each round trip."""
    assert overshoot_bytes(10**9, 300, 200) == 12_500
    assert overshoot_bytes(10**9, 200, 300) == 0


A_PORT = PortKey(1, 2)


def handshakes(shares, rtts_us, spacing_ns=SPACING_NS):
    """The decisions on handshakes of one port, one after the other."""
    decided = [shares.on_handshake(A_PORT, rtt_us, i * spacing_ns) for i, rtt_us in enumerate(rtts_us)]
    return [share for share in decided if share]


def test_a_fixed_rtt_stays_while_one_handshake_is_as_quick():
    assert handshakes(Shares(RttPolicy(300)), [300] + [9000] * 250) == []


def test_a_fixed_rtt_below_the_measured_one_is_told():
    (short,) = handshakes(Shares(RttPolicy(300)), [700, 301, 600] * 20)
    assert short == Share(A_PORT, 300, 301, 600)
    assert not short.fills


def test_a_fixed_rtt_below_half_of_the_measured_one_ends_the_clamping_until_it_suffices():
    shares = Shares(RttPolicy(300))
    told = handshakes(shares, [700, 601, 800] * 100)
    assert told == [Share(A_PORT, 300, 601, 700), Share(A_PORT, 0, 601, 700)]
    fallback = told[-1]
    assert list(shares) == shares.of_switch(1) == [fallback]
    assert shares.of_switch(2) == []
    again = shares.on_handshake(A_PORT, 250, 10**12)
    assert (again.common_rtt_us, again.least_us) == (300, 250)
    shares.port_gone(A_PORT)
    assert list(shares) == []


def test_a_measured_rtt_is_the_percentile_with_head_room():
    shares = Shares(RttPolicy(600, measured=True, percentile=90, headroom=1.5, most_us=2000))
    rtts_us = [100] * 90 + [200] * 10
    assert handshakes(shares, rtts_us)[-1] == Share(A_PORT, 150, 100, 100)
    assert handshakes(shares, [1000] * 300)[-1].common_rtt_us == 1500
    assert handshakes(shares, [1900] * 300)[-1].common_rtt_us == 2000
    assert handshakes(shares, [4001] * 300)[-1].common_rtt_us == 0


def test_what_the_overshoot_of_a_share_needs():
    assert Share(A_PORT, 300, 150, 200).buffer_bytes(10**9) == 12_500


def test_a_burst_counts_as_one_handshake():
    assert handshakes(Shares(RttPolicy(300)), [400] * 1000, spacing_ns=1000) == []


@given(st.lists(st.integers(1, 5000), max_size=400))
def test_a_measured_rtt_is_bounded(rtts_us):
    for share in handshakes(Shares(RttPolicy(600, measured=True)), rtts_us):
        assert share.common_rtt_us <= 2000


@given(st.integers(0, 300), st.lists(st.integers(1, 5000), max_size=10), st.integers(0, 300))
def test_a_port_counts_only_where_all_that_are_kept_took_over_twice_as_long(before, quick_us, after):
    rtts_us = [1201] * before + quick_us + [1201] * after
    shares = Shares(RttPolicy(600))
    handshakes(shares, rtts_us)
    kept_us = rtts_us[-KEPT_HANDSHAKES:]
    strangled = len(kept_us) == KEPT_HANDSHAKES and min(kept_us) > 1200
    assert [share for share in shares if not share.common_rtt_us] == list(shares) * strangled


@pytest.mark.parametrize(
    ("flag", "says"), [("NO_CAPACITY", "capacity"), ("NO_QUEUE", "queue"), ("TABLE_FULL", "max_flows")]
)
def test_why_a_port_only_counts(flag, says):
    assert says in why_counted_only(PortCountersFlags.ATTACHED | PortCountersFlags[flag])
    assert why_counted_only(PortCountersFlags.ATTACHED | PortCountersFlags.ALARM_UP) == ""


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


@pytest.mark.parametrize("version", [4, 6])
def test_the_switch_can_carry_table_i_out(app, version):
    """Each entry, as the agent splits it."""
    datapath = FakeDatapath(version=version)
    app.on_switch(event(datapath))
    messages = [bytes(message.buf) for message in datapath.sent[1:]]
    rules = [rule_for(FlowMod.parse(data), split(data).actions) for data in messages]
    assert [(r.match.ip_version, r.match.flags, r.match.flags_mask) for r in rules] == [
        (version, row.flags, row.mask) for version in (4, 6) for row in TABLE_I
    ]
    assert [r.window_op for r in rules[:4]] == [WindowOp.NONE] + [WindowOp.FAIR_SHARE] * 3
    counts = [CountOp.INCREMENT_NI, CountOp.DECREMENT_NI, CountOp.DECREMENT_NI, CountOp.NONE]
    assert [r.count_op for r in rules[:4]] == counts


def flow_report(datapath, rtts_us):
    """Flows of port 2 that were opened one after the other."""
    return event(
        datapath,
        records=[
            SimpleNamespace(handshake_rtt_us=rtt_us, out_port=2, first_ns=i * SPACING_NS)
            for i, rtt_us in enumerate(rtts_us)
        ],
    )


def configs(datapath):
    """What its ports were told: (port, common RTT)."""
    messages = [wire.decode_message(bytes(one.buf)) for one in datapath.sent if one.msg_type == 4]
    return [(one.port_no, one.common_rtt_us) for one in messages]


def test_a_common_rtt_that_is_too_short_is_said_and_sent_also_after_a_reconnect(app, caplog):
    datapath, again = FakeDatapath(), FakeDatapath()
    app.on_switch(event(datapath))
    app.on_flow_report(flow_report(datapath, [0, *[1300] * 260]))
    assert configs(datapath) == [(wire.OFPP_ANY, 600), (2, 600), (2, 0)]
    assert "cannot be filled: the quickest of its last handshakes took 1300 us" in caplog.text
    assert "clamps none: the quickest of its last handshakes took 1300 us" in caplog.text
    app.on_switch_gone(SimpleNamespace(datapath=again))
    app.on_switch_gone(SimpleNamespace(datapath=datapath))
    app.on_flow_report(flow_report(datapath, [100] * 20))
    assert len(configs(datapath)) == 3, "nobody to tell"
    app.on_switch(event(again))
    assert configs(again) == [(wire.OFPP_ANY, 600), (2, 600)]


def test_a_measured_common_rtt_is_sent_and_shown(app):
    datapath = FakeDatapath()
    app.shares = Shares(RttPolicy(600, measured=True))
    app.figures.registry.register(ShareFigures(app.shares, app._capacities_bps))
    app.on_switch(event(datapath))
    app.on_samples(EventPortSamples(1, (a_sample(A_PORT, capacity_bps=10**9),)))
    app.on_flow_report(flow_report(datapath, [200] * 20))
    assert configs(datapath) == [(wire.OFPP_ANY, 600), (2, 300)]
    of = {"dpid": f"{1:016x}", "port_no": "2"}
    value = app.figures.registry.get_sample_value
    assert value("weir_sccp_overshoot_bytes", of) == 12_500
    gone = event(datapath, reason=datapath.ofproto.OFPPR_DELETE, desc=SimpleNamespace(port_no=2))
    app.on_port_status(gone)
    assert value("weir_sccp_overshoot_bytes", of) is None


def test_a_switch_without_the_extension_is_named_once(app, caplog):
    datapath = FakeDatapath(dpid=7)
    app.on_switch(event(datapath))
    for sent in datapath.sent:
        app.on_error(event(datapath, xid=sent.xid))
    assert caplog.text.count("switch 0000000000000007 refuses SCCP's settings") == 1


def test_a_port_that_cannot_clamp_is_said_once_and_when_it_can_again(app, caplog):
    caplog.set_level("INFO", app.logger.name)  # Mininet gives new loggers a level
    lacking = PortCountersFlags.ATTACHED | PortCountersFlags.NO_QUEUE
    for flags in (PortCountersFlags.ATTACHED, lacking, lacking, PortCountersFlags.ATTACHED):
        sample = PortSample(A_PORT, "s1-eth2", 1, PortCountersRecord(2, flags=flags))
        app.on_samples(EventPortSamples(1, (sample,)))
    assert [record.getMessage().split(": ")[0] for record in caplog.records] == [
        "port 0000000000000001:2 (s1-eth2) counts flows and clamps none",
        "port 0000000000000001:2 (s1-eth2) clamps to its fair share again",
    ]


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
