"""SCCP: Table I, the policy of a port, and what a switch is sent."""

from ipaddress import ip_address
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from flowdb.db import FlowDb
from flowdb.flow import PortKey
from flowdb.models import SettingRow
from openflow_ext import wire
from openflow_ext.switch.dataplane.rules import CountOp, WindowOp
from openflow_ext.switch.openflow.extension_rules import rule_of
from openflow_ext.switch.openflow.flow_mods import FlowMod
from openflow_ext.wire import PortCountersFlags, PortCountersRecord
from sccp_app import common_rtt
from sccp_app.app import SccpApp
from sccp_app.common_rtt import KEPT_HANDSHAKES, SPACING_NS, CommonRtts, PortRtt, RttPolicy, why_not_clamping
from sccp_app.config import SccpSettings
from sccp_app.core import TABLE_I, Act, PolicyError, PortPolicy, overshoot_bytes
from sccp_app.messages import configure_ports
from sccp_app.metrics import CommonRttMetrics
from sccp_app.stage import STAGE
from telemetry_app.core import PortSample
from telemetry_app.events import EventPortSamples
from tests.support.controllers.port_samples import a_sample
from tests.support.database.rows import rows
from tests.support.openflow.fake_datapath import FakeDatapath, event

FIN, SYN, RST = 1, 2, 4


@pytest.mark.parametrize("flags", range(256))
def test_each_segment_matches_exactly_its_row_of_table_i(flags):
    (row,) = [row for row in TABLE_I if flags & row.mask == row.flags]
    if flags & SYN:
        assert row.acts == (Act.INCREMENT_NI,)
    elif flags & (FIN | RST):
        assert row.acts == (Act.DECREMENT_NI, Act.SET_WINDOW)
    else:
        assert row.acts == (Act.SET_WINDOW,)


@pytest.mark.parametrize("flags", range(256))
def test_as_published_only_syn_and_fin_change_n_i(flags):
    (row,) = [row for row in SccpSettings(counts_resets=False).rows if flags & row.mask == row.flags]
    if flags & SYN:
        assert row.acts == (Act.INCREMENT_NI,)
    elif flags & FIN:
        assert row.acts == (Act.DECREMENT_NI, Act.SET_WINDOW)
    else:
        assert row.acts == (Act.SET_WINDOW,)


@pytest.mark.parametrize("values", [(0,), (-1,), (300, -1), (300, 0, -1)])
def test_a_policy_without_a_fair_share_is_refused(values):
    with pytest.raises(PolicyError):
        PortPolicy(*values)


def test_the_paper_s_overshoot():
    """Section III.B: 1 Gbit/s, 200 µs on average, a common RTT of 300 µs: 12.5 KB in each round trip."""
    assert overshoot_bytes(10**9, 300, 200) == 12_500
    assert overshoot_bytes(10**9, 200, 300) == 0


A_PORT = PortKey(1, 2)


def handshakes(shares, rtts_us, spacing_ns=SPACING_NS):
    """The decisions on handshakes of one port, one after the other."""
    decided = [shares.on_handshake(A_PORT, rtt_us, i * spacing_ns) for i, rtt_us in enumerate(rtts_us)]
    return [share for share in decided if share]


def test_a_fixed_rtt_stays_while_one_handshake_is_as_short():
    assert handshakes(CommonRtts(RttPolicy(300)), [300] + [9000] * 250) == []


def test_a_fixed_rtt_below_all_handshakes_is_reported():
    (short,) = handshakes(CommonRtts(RttPolicy(300)), [700, 301, 600] * 20)
    assert short == PortRtt(A_PORT, 300, 301, 600)
    assert not short.fills_port


def test_a_fixed_rtt_below_half_of_all_handshakes_stops_clamping():
    shares = CommonRtts(RttPolicy(300))
    told = handshakes(shares, [700, 601, 800] * 100)
    assert told == [PortRtt(A_PORT, 300, 601, 700), PortRtt(A_PORT, 0, 601, 700)]
    fallback = told[-1]
    assert list(shares) == shares.of_switch(1) == [fallback]
    assert shares.of_switch(2) == []
    again = shares.on_handshake(A_PORT, 250, 10**12)
    assert (again.common_rtt_us, again.least_us) == (300, 250)
    shares.port_gone(A_PORT)
    assert list(shares) == []


def test_a_measured_rtt_is_the_percentile_with_headroom():
    shares = CommonRtts(RttPolicy(600, measured=True, percentile=90, headroom=1.5, most_us=2000))
    rtts_us = [100] * 90 + [200] * 10
    assert handshakes(shares, rtts_us)[-1] == PortRtt(A_PORT, 150, 100, 100)
    assert handshakes(shares, [1000] * 300)[-1].common_rtt_us == 1500
    assert handshakes(shares, [1900] * 300)[-1].common_rtt_us == 2000
    assert handshakes(shares, [4001] * 300)[-1].common_rtt_us == 0


def test_the_overshoot_follows_from_the_median_handshake():
    assert PortRtt(A_PORT, 300, 150, 200).overshoot_bytes(10**9) == 12_500


def test_a_burst_counts_as_one_handshake():
    assert handshakes(CommonRtts(RttPolicy(300)), [400] * 1000, spacing_ns=1000) == []


@given(st.lists(st.integers(1, 5000), max_size=400))
def test_a_measured_rtt_is_bounded(rtts_us):
    for share in handshakes(CommonRtts(RttPolicy(600, measured=True)), rtts_us):
        assert share.common_rtt_us <= 2000


@given(st.integers(0, 300), st.lists(st.integers(1, 5000), max_size=10), st.integers(0, 300))
def test_a_port_stops_clamping_only_if_all_handshakes_are_twice_as_long(before, quick_us, after):
    rtts_us = [1201] * before + quick_us + [1201] * after
    shares = CommonRtts(RttPolicy(600))
    handshakes(shares, rtts_us)
    kept_us = rtts_us[-KEPT_HANDSHAKES:]
    strangled = len(kept_us) == KEPT_HANDSHAKES and min(kept_us) > 1200
    assert [share for share in shares if not share.common_rtt_us] == list(shares) * strangled


@pytest.mark.parametrize(
    ("flag", "says"), [("NO_CAPACITY", "capacity"), ("NO_QUEUE", "queue"), ("TABLE_FULL", "max_flows")]
)
def test_the_reason_why_a_port_does_not_clamp(flag, says):
    assert says in why_not_clamping(PortCountersFlags.ATTACHED | PortCountersFlags[flag])
    assert why_not_clamping(PortCountersFlags.ATTACHED | PortCountersFlags.ALARM_UP) == ""


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.delenv("WEIR_CONFIG", raising=False)
    flowdb = FlowDb(f"sqlite:///{tmp_path}/weir.db")
    app = SccpApp(flowdb=flowdb)
    app.flowdb, app.database = flowdb, tmp_path / "weir.db"
    yield app
    flowdb.close()


def test_a_connecting_switch_gets_table_i_and_the_policy(app):
    datapath = FakeDatapath()
    app.on_switch(event(datapath))
    config = wire.decode_message(bytes(datapath.sent[0].buf))
    asked = wire.PortConfigFlags.WINDOW | wire.PortConfigFlags.ALLOWANCE
    assert config == wire.PortConfig(wire.OFPP_ANY, asked, common_rtt_us=600)
    mods = datapath.flow_mods()
    assert {(m.table_id, m.priority, m.goto, m.cookie) for m in mods} == {(1, 100, 2, STAGE.cookie)}
    share, down, up = wire.SetWindow(), wire.DecrementNi(), wire.IncrementNi()
    for eth_type in (0x0800, 0x86DD):
        rows = {
            mod.match["tcp_flags"]: [action.to_wire() for action in mod.extension]
            for mod in mods
            if mod.match["eth_type"] == eth_type
        }
        assert rows == {(2, 2): [up], (1, 3): [down, share], (4, 7): [down, share], (0, 7): [share]}


@pytest.mark.parametrize(
    ("setting", "addition"),
    [
        ("fits_segments", "FITTING"),
        ("refines_scale", "FINER_SCALE"),
        ("sets_psh", "PSH"),
        ("shares_among_active", "ACTIVE_SENDERS"),
        ("remembers_crowd", "CROWD"),
        ("grants_two_segments", "TWO_SEGMENTS"),
    ],
)
def test_a_setting_switches_its_addition_off(setting, addition):
    """The message's golden bytes: port, flags, the common RTT."""
    datapath, settings = FakeDatapath(), SccpSettings(**{setting: False, "common_rtt": "fixed"})
    flags = wire.PortConfigFlags.WINDOW | wire.PortConfigFlags[f"OMIT_{addition}"]
    config = configure_ports(datapath, settings.policy, settings.scope)
    config.serialize()
    assert bytes(config.buf)[16:24] == bytes([255] * 4) + int(flags).to_bytes(4, "big")
    assert wire.decode_message(bytes(config.buf)) == wire.PortConfig(wire.OFPP_ANY, flags, common_rtt_us=600)


def test_a_policy_that_does_not_yield_clamps_whatever_the_rtt_is():
    told = handshakes(CommonRtts(RttPolicy(300, yields=False)), [700, 601, 800] * 100)
    assert [rtt.common_rtt_us for rtt in told] == [300]
    assert SccpSettings().rtt_policy.yields
    assert not SccpSettings(yields_to_long_rtt=False).rtt_policy.yields


def test_ports_correct_their_allowances_and_handshakes_change_nothing(app):
    datapath = FakeDatapath()
    app.on_switch(event(datapath))
    config = wire.decode_message(bytes(datapath.sent[0].buf))
    assert config.flags == wire.PortConfigFlags.WINDOW | wire.PortConfigFlags.ALLOWANCE
    assert config.common_rtt_us == 600
    datapath.sent.clear()
    app.on_flow_report(flow_report(datapath, [30_000] * 300))
    assert datapath.sent == []


@pytest.mark.parametrize("version", [4, 6])
def test_the_agent_accepts_table_i(app, version):
    """The agent parses each entry into a rule."""
    datapath = FakeDatapath(version=version)
    app.on_switch(event(datapath))
    rules = rules_of(datapath)
    assert [(r.match.ip_version, r.match.flags, r.match.flags_mask) for r in rules] == [
        (version, row.flags, row.mask) for version in (4, 6) for row in TABLE_I
    ]
    assert [r.window_op for r in rules[:4]] == [WindowOp.NONE] + [WindowOp.FAIR_SHARE] * 3
    counts = [CountOp.INCREMENT_NI, CountOp.DECREMENT_NI, CountOp.DECREMENT_NI, CountOp.NONE]
    assert [r.count_op for r in rules[:4]] == counts


def rules_of(datapath):
    """The rules that the agent makes of the FLOW_MODs that were sent."""
    return [
        rule_of(FlowMod.parse(bytes(message.buf)))
        for message in datapath.sent
        if message.msg_type == datapath.ofproto.OFPT_FLOW_MOD
    ]


def flags_of(datapath):
    """The flags of each PORT_CONFIG that was sent, by port."""
    found = [wire.decode_message(bytes(one.buf)) for one in datapath.sent if one.msg_type == 4]
    return {one.port_no: one.flags for one in found}


def connected(app, monkeypatch, dpid=1, version=4, **settings):
    monkeypatch.setattr(app, "settings", SccpSettings(**settings))
    datapath = FakeDatapath(dpid, version)
    app.on_switch(event(datapath))
    return datapath


OBSERVE = wire.PortConfigFlags.OBSERVE


@pytest.mark.parametrize("version", [4, 6])
def test_in_observe_mode_every_entry_and_every_port_observes(app, monkeypatch, version):
    datapath = connected(app, monkeypatch, version=version, mode="observe", act_for=["10.1.0.0/16"])
    assert flags_of(datapath)[wire.OFPP_ANY] & OBSERVE
    rules = rules_of(datapath)
    assert {rule.observes for rule in rules if rule.window_op} == {True}
    assert sum(rule.count_op is CountOp.INCREMENT_NI for rule in rules) == 2


def test_ports_share_by_host_if_asked(app, monkeypatch):
    by_host = wire.PortConfigFlags.BY_HOST
    assert not flags_of(connected(app, monkeypatch))[wire.OFPP_ANY] & by_host
    assert flags_of(connected(app, monkeypatch, share_by="host"))[wire.OFPP_ANY] & by_host


@pytest.mark.parametrize(
    ("others", "named"),
    [({"common_rtt": "fixed"}, "common_rtt"), ({"shares_among_active": False}, "shares_among_active")],
)
def test_shares_by_host_need_an_allowance_and_active_senders(others, named):
    with pytest.raises(ValidationError, match=f'share_by = "host" needs {named}'):
        SccpSettings(share_by="host", **others)


def test_sccp_acts_at_the_switches_and_ports_of_act_at_only(app, monkeypatch):
    places = ["0000000000000001:2", "7"]
    assert flags_of(connected(app, monkeypatch, 7, act_at=places))[wire.OFPP_ANY] & OBSERVE == 0
    datapath = connected(app, monkeypatch, act_at=places)
    flags = flags_of(datapath)
    assert flags[wire.OFPP_ANY] & OBSERVE
    assert not flags[2] & OBSERVE
    assert not any(rule.observes for rule in rules_of(datapath)), "the port decides"
    datapath.sent.clear()
    reason = datapath.ofproto.OFPPR_ADD
    for port_no in (2, 3):
        app.on_port_status(event(datapath, reason=reason, desc=SimpleNamespace(port_no=port_no)))
    assert list(flags_of(datapath)) == [2], "the port was created again"


REFUSED_FOR_NOW = {"type": wire.OFPET_EXPERIMENTER, "exp_type": wire.ErrorCode.NO_DATAPLANE}


@pytest.mark.parametrize("code", ["NO_DATAPLANE", "BAD_PORT"])
def test_a_port_that_refused_its_own_settings_gets_them_once_when_it_carries_programs(app, monkeypatch, code):
    datapath = connected(app, monkeypatch, act_at=["0000000000000001:2"])
    everywhere, own = [one for one in datapath.sent if one.msg_type == 4]
    assert [port_no for port_no, _ in configs(datapath)] == [wire.OFPP_ANY, 2]
    datapath.sent.clear()
    refusal = {**REFUSED_FOR_NOW, "exp_type": wire.ErrorCode[code]}
    for one in (everywhere, own):
        app.on_error(event(datapath, xid=one.xid, **refusal))
    app.on_samples(EventPortSamples(1, (a_sample(PortKey(1, 1)),)))
    assert datapath.sent == [], "port 2 carries no programs"
    for _ in range(3):
        app.on_samples(EventPortSamples(1, (a_sample(PortKey(1, 1)), a_sample(A_PORT))))
    assert list(flags_of(datapath)) == [2]
    assert not flags_of(datapath)[2] & OBSERVE
    (again,) = datapath.sent
    app.on_error(event(datapath, xid=own.xid, **refusal))
    app.on_samples(EventPortSamples(1, (a_sample(A_PORT),)))
    assert datapath.sent == [again], "a late error about older settings"
    app.on_error(event(datapath, xid=again.xid, **refusal))
    app.on_samples(EventPortSamples(1, (a_sample(A_PORT),)))
    assert len(datapath.sent) == 2


def test_settings_that_a_port_can_never_take_are_not_repeated(app, monkeypatch):
    datapath = connected(app, monkeypatch, act_at=["0000000000000001:2"])
    sent = len(datapath.sent)
    for one in list(datapath.sent):
        app.on_error(
            event(datapath, xid=one.xid, type=wire.OFPET_EXPERIMENTER, exp_type=wire.ErrorCode.BAD_VALUE)
        )
    app.on_samples(EventPortSamples(1, (a_sample(A_PORT),)))
    assert len(datapath.sent) == sent


def test_a_refusal_of_an_earlier_session_is_not_repeated(app, monkeypatch):
    old = connected(app, monkeypatch, act_at=["0000000000000001:2"])
    for one in old.sent:
        app.on_error(event(old, xid=one.xid, **REFUSED_FOR_NOW))
    app.on_switch_gone(SimpleNamespace(datapath=old))
    datapath = connected(app, monkeypatch, act_at=["0000000000000001:2"])
    datapath.sent.clear()
    app.on_samples(EventPortSamples(1, (a_sample(A_PORT),)))
    assert datapath.sent == []


def matching(rules, src, dst, dst_port=80):
    """The first rule with a window action that matches segments of these ends, as the data plane finds it."""

    def holds(match):
        return (
            match.ip_version == ip_address(src).version
            and (match.src is None or ip_address(src) in match.src)
            and (match.dst is None or ip_address(dst) in match.dst)
            and match.dst_port in (None, dst_port)
            and match.src_port is None
            and not match.flags
        )

    acting = [rule for rule in rules if rule.window_op and holds(rule.match)]
    return max(acting, key=lambda rule: rule.priority)


def test_sccp_acts_on_flows_of_act_for_and_never_on_protected_ones(app, monkeypatch):
    protect = [{"src": "10.1.0.9/32"}, {"dst_port": 22}]
    datapath = connected(app, monkeypatch, act_for=["10.1.0.0/16", "fd00::/8"], protect=protect)
    rules = rules_of(datapath)
    for src, dst, dst_port, observes in (
        ("10.1.0.1", "10.2.0.1", 80, False),
        ("10.2.0.1", "10.1.0.1", 80, False),
        ("fd00::1", "fe80::1", 80, False),
        ("10.2.0.1", "10.2.0.2", 80, True),
        ("10.1.0.9", "10.1.0.1", 80, True),
        ("10.1.0.1", "10.1.0.9", 80, True),
        ("10.1.0.1", "10.1.0.2", 22, True),
    ):
        assert matching(rules, src, dst, dst_port).observes is observes, (src, dst, dst_port)
    assert {rule.match.flags_mask for rule in rules if rule.priority == 50} == {0}, "they match SYNs, too"


def test_entries_of_an_earlier_scope_are_deleted_after_the_new_ones_are_sent(app, monkeypatch):
    old = connected(app, monkeypatch, protect=[{"dst_port": 22}])
    cookies = {rule.cookie for rule in rules_of(old)}
    assert len(cookies) == 2
    datapath = connected(app, monkeypatch, protect=[{"dst_port": 23}])
    ours = {rule.cookie for rule in rules_of(datapath)}
    datapath.sent.clear()
    stats = [SimpleNamespace(cookie=cookie) for cookie in cookies | ours | {0x1234}]
    app.on_entries(event(datapath, body=stats))
    (deleted,) = datapath.sent
    assert ({deleted.cookie}, deleted.cookie_mask) == (cookies - ours, 2**64 - 1)
    assert deleted.table_id == STAGE.table


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"act_at": ["s1"]}, "write DPID:PORT"),
        ({"act_for": ["10.0.0.1/8"]}, "act_for"),
        ({"protect": [{}]}, "matches every flow"),
        ({"protect": [{"src": "10.0.0.0/8", "dst": "fd00::/8"}]}, "same IP version"),
        ({"protect": [{"dst_port": port} for port in range(1, 20)]}, "room for 48"),
    ],
)
def test_a_wrong_scope_is_refused(wrong, says):
    with pytest.raises(ValidationError, match=says):
        SccpSettings(**wrong)


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
    """The PORT_CONFIGs that were sent: (port, common RTT)."""
    messages = [wire.decode_message(bytes(one.buf)) for one in datapath.sent if one.msg_type == 4]
    return [(one.port_no, one.common_rtt_us) for one in messages]


def test_a_common_rtt_that_is_too_short_is_logged_and_sent_after_a_reconnect(app, caplog, monkeypatch):
    monkeypatch.setattr(app, "settings", SccpSettings(common_rtt="fixed"))
    datapath, again = FakeDatapath(), FakeDatapath()
    app.on_switch(event(datapath))
    app.on_flow_report(flow_report(datapath, [0, *[1300] * 260]))
    assert configs(datapath) == [(wire.OFPP_ANY, 600), (2, 600), (2, 0)]
    assert "cannot be filled: its shortest recent handshake took 1300 us" in caplog.text
    assert "does not clamp: its shortest recent handshake took 1300 us" in caplog.text
    app.on_switch_gone(SimpleNamespace(datapath=again))
    app.on_switch_gone(SimpleNamespace(datapath=datapath))
    app.on_flow_report(flow_report(datapath, [100] * 20))
    assert len(configs(datapath)) == 3, "the switch has disconnected"
    app.on_switch(event(again))
    assert configs(again) == [(wire.OFPP_ANY, 600), (2, 0)]
    app.on_flow_report(flow_report(again, [100] * 20))
    assert configs(again)[2:] == [(2, 600)]


def test_a_measured_common_rtt_is_sent_and_in_the_metrics(app, monkeypatch):
    monkeypatch.setattr(app, "settings", SccpSettings(common_rtt="measured"))
    datapath = FakeDatapath()
    app.common_rtts = CommonRtts(RttPolicy(600, measured=True))
    app.metrics.registry.register(CommonRttMetrics(app.common_rtts, app._capacities_bps))
    app.on_switch(event(datapath))
    app.on_samples(EventPortSamples(1, (a_sample(A_PORT, capacity_bps=10**9),)))
    app.on_flow_report(flow_report(datapath, [200] * 20))
    assert configs(datapath) == [(wire.OFPP_ANY, 600), (2, 300)]
    of = {"dpid": f"{1:016x}", "port_no": "2"}
    value = app.metrics.registry.get_sample_value
    assert value("weir_sccp_overshoot_bytes", of) == 12_500
    gone = event(datapath, reason=datapath.ofproto.OFPPR_DELETE, desc=SimpleNamespace(port_no=2))
    app.on_port_status(gone)
    assert value("weir_sccp_overshoot_bytes", of) is None


def test_state_of_ports_ends_with_their_samples_and_their_switch(app):
    app.on_switch(event(FakeDatapath()))
    lacking = PortCountersFlags.ATTACHED | PortCountersFlags.NO_QUEUE
    for first in (1, 1001):
        ports = [PortKey(1, number) for number in range(first, first + 1000)]
        records = [PortCountersRecord(port.port_no, flags=lacking) for port in ports]
        samples = (PortSample(port, "p", 1, one) for port, one in zip(ports, records, strict=True))
        app.on_samples(EventPortSamples(1, tuple(samples)))
        assert list(app._capacities_bps) == list(app._not_clamping) == ports
    app.on_samples(EventPortSamples(1, ()))
    assert not app._capacities_bps
    assert not app._not_clamping


def test_a_switch_that_invents_ports_fills_its_own_part_only(monkeypatch):
    monkeypatch.setattr(common_rtt, "MOST_PORTS", 3)
    shares = CommonRtts(RttPolicy(300))
    for dpid, number in ((1, 1), (1, 2), (1, 3), (1, 4), (2, 4)):
        for step in range(20):
            shares.on_handshake(PortKey(dpid, number), 700, step * SPACING_NS)
    assert [rtt.port for rtt in shares] == [PortKey(1, 1), PortKey(1, 2), PortKey(1, 3), PortKey(2, 4)]
    shares.switch_gone(1)
    shares.switch_up(1)
    for step in range(20):
        shares.on_handshake(PortKey(1, 4), 700, step * SPACING_NS)
    assert [rtt.port.port_no for rtt in shares.of_switch(1)] == [1, 2, 3]


def test_common_rtts_of_disconnected_switches_are_bounded(monkeypatch):
    monkeypatch.setattr(common_rtt, "MOST_KEPT_PORTS", 3)
    shares = CommonRtts(RttPolicy(300))
    for dpid, ports in ((1, 2), (2, 1), (3, 1), (4, 1)):
        for number in range(ports):
            for step in range(20):
                shares.on_handshake(PortKey(dpid, number), 700, step * SPACING_NS)
    for dpid in (1, 2, 3):
        shares.switch_gone(dpid)
    assert [rtt.port.dpid for rtt in shares] == [2, 3, 4], "switch 1 disconnected first"
    shares.switch_up(2)
    for dpid in (3, 4):
        shares.switch_gone(dpid)
    assert [rtt.port.dpid for rtt in shares] == [2, 3, 4]


def test_a_switch_without_the_extension_is_logged_once(app, caplog):
    datapath = FakeDatapath(dpid=7)
    app.on_switch(event(datapath))
    for sent in datapath.sent:
        app.on_error(event(datapath, xid=sent.xid, type=1, code=1))
    assert caplog.text.count("switch 0000000000000007 refuses SCCP's settings") == 1


def test_a_port_that_stops_or_resumes_clamping_is_logged_once(app, caplog):
    caplog.set_level("INFO", app.logger.name)  # Mininet gives new loggers a level
    lacking = PortCountersFlags.ATTACHED | PortCountersFlags.NO_QUEUE
    for flags in (PortCountersFlags.ATTACHED, lacking, lacking, PortCountersFlags.ATTACHED):
        sample = PortSample(A_PORT, "s1-eth2", 1, PortCountersRecord(2, flags=flags))
        app.on_samples(EventPortSamples(1, (sample,)))
    assert [record.getMessage().split(": ")[0] for record in caplog.records] == [
        "port 0000000000000001:2 (s1-eth2) counts flows but does not clamp",
        "port 0000000000000001:2 (s1-eth2) clamps to its fair share again",
    ]


def test_a_port_that_stops_and_resumes_clamping_all_the_time_does_not_fill_the_log(app, caplog, monkeypatch):
    caplog.set_level("INFO", app.logger.name)  # Mininet gives new loggers a level
    now_s = 100.0
    monkeypatch.setattr("sccp_app.app.time", SimpleNamespace(monotonic=lambda: now_s))
    lacking = PortCountersFlags.ATTACHED | PortCountersFlags.NO_QUEUE

    def sample(flags):
        app.on_samples(EventPortSamples(1, (PortSample(A_PORT, "p", 1, PortCountersRecord(2, flags=flags)),)))

    for flags in (lacking, PortCountersFlags.ATTACHED) * 10 + (lacking,):
        sample(flags)
    assert len(caplog.records) == 2
    now_s += 11
    sample(lacking)
    assert len(caplog.records) == 3, "the last change is logged after all"
    assert "does not clamp" in caplog.records[-1].getMessage()


def test_the_settings_are_recorded_in_the_database(app):
    app.flowdb.close()
    (noted,) = rows(app.database, SettingRow)
    assert (noted.section, noted.chosen["common_rtt_us"]) == ("sccp", 600)


def test_the_metrics_cover_ports_and_database(app):
    app.on_samples(EventPortSamples(5, (a_sample(PortKey(5, 1), "s5-eth1", n_i=3),)))
    of = {"dpid": f"{5:016x}", "port_no": "1", "name": "s5-eth1"}
    assert app.metrics.registry.get_sample_value("weir_port_n_i", of) == 3
    assert app.metrics.registry.get_sample_value("weir_flowdb_rows_lost") == 0


@pytest.mark.parametrize("address", ["9466", ":9466", "127.0.0.1:port"])
def test_a_wrong_metrics_address_is_refused(address):
    with pytest.raises(ValidationError, match="metrics"):
        SccpSettings(metrics=address)
