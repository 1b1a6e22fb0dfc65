"""SDTCP's entries and handlers, with the engine's real parser and a datapath that records."""

import socket
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from app_base.pipeline import FABRIC_COOKIE
from fabric_app.events import EventFlowClosed, EventFlowOpened
from flowdb.commands import Command
from flowdb.db import FlowDb
from flowdb.flow import FiveTuple, Flow, Hop, PortKey
from flowdb.models import AlarmRow, ClampRow, DecisionRow, SettingRow
from openflow_ext import registry, wire
from openflow_ext.switch.dataplane.rules import WindowOp
from openflow_ext.switch.openflow.extension_rules import rule_of
from openflow_ext.switch.openflow.flow_mods import FlowMod
from sdtcp_app import messages
from sdtcp_app.app import SdtcpApp
from sdtcp_app.config import SdtcpSettings
from sdtcp_app.stage import STAGE
from telemetry_app.core import PortSample
from telemetry_app.events import EventPortSamples
from tests.support.database.rows import rows
from tests.support.openflow.fake_datapath import FakeDatapath, event
from weir_base.port_counters import PortCountersFlags, PortCountersRecord
from weir_base.settings import Watch

V4 = FiveTuple("10.0.0.1", "10.0.0.3", 1000, 80)
V6 = FiveTuple("fe80::1", "fe80::3", 1000, 80)


def make_flow(flow_id=1, key=V4):
    return Flow(flow_id, key, (Hop(1, 1, 3),), flow_id, 1460, 9)


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.delenv("WEIR_CONFIG", raising=False)
    flowdb = FlowDb(f"sqlite:///{tmp_path}/weir.db")
    app = SdtcpApp(flowdb=flowdb)
    app.index, app.database = flowdb.index, tmp_path / "weir.db"
    yield app
    flowdb.close()


@pytest.fixture
def datapath(app):
    datapath = FakeDatapath()
    app.on_switch(event(datapath))
    datapath.sent.clear()
    return datapath


def alarm(datapath, **changed):
    fields = {
        "port": wire.OfpPort(3), "port_buf_pkts": 30, "port_buf_bytes": 45_000,
        "port_rate_bps": 100_000_000, "n_i": 2, "crossing_ns": 5, "non_tcp_percent": 0, "allowance_bytes": 0,
    }  # fmt: skip
    return event(datapath, **fields | changed)


def test_a_flow_that_reconnects_is_slowed_before_flows_that_opened_after_its_first_connection(app, datapath):
    first = replace(make_flow(1), sent_bytes=5_000_000)
    other = replace(make_flow(2, FiveTuple("10.0.0.2", "10.0.0.3", 1, 80)), sent_bytes=5_000_000)
    again = replace(first, id=3, key=replace(V4, src_port=1001), opened_ns=10**9, sent_bytes=0)
    for flow in (first, other):
        app.flowdb.flow_opened(flow)
        app.on_flows_opened(EventFlowOpened((flow,)))
    app.flowdb.flow_closed(first, 10**9, "fin")
    app.on_flow_closed(EventFlowClosed(first, "fin", 10**9))
    app.flowdb.flow_opened(again)
    app.on_flows_opened(EventFlowOpened((again,)))
    app.on_alarm(alarm(datapath))
    assert [app.core.is_punished(flow.id) for flow in (other, again)] == [False, True]
    app.flowdb.close()
    (decision,) = rows(app.database, DecisionRow)
    assert [(one["flow_id"], one["sent_bytes"]) for one in decision.ranking] == [
        (3, 5_000_000),
        (2, 5_000_000),
    ]


def sampled(app, **counters):
    """A sample of port 3 arrives."""
    sample = PortSample(PortKey(1, 3), "s1-eth3", 1, PortCountersRecord(3, **counters))
    app.on_samples(EventPortSamples(1, (sample,)))


@pytest.mark.parametrize("apart_s", [-7 * 3600, 0, 7 * 3600])
def test_an_alarm_of_another_clock_is_recorded_with_its_arrival(app, datapath, apart_s):
    now_ns = app.flowdb.clock.now_ns()
    app.on_normal(alarm(datapath, crossing_ns=now_ns + apart_s * 10**9))
    app.flowdb.close()
    (row,) = rows(app.database, AlarmRow)
    assert row.crossing_ns == (row.received_ns if apart_s else now_ns)


def observing(app, **settings):
    app._change_settings(SdtcpSettings(**settings))


def test_changed_settings_are_recorded_in_the_database(app):
    app._change_settings(app.settings.model_copy(update={"k_pkts": 31}))
    app.flowdb.close()
    (noted,) = rows(app.database, SettingRow)
    assert (noted.section, noted.chosen["k_pkts"]) == ("sdtcp", 31)


def extension_actions(datapath):
    return [[action.to_wire() for action in mod.extension] for mod in datapath.flow_mods()]


def test_in_observe_mode_a_decision_is_recorded_and_its_entry_observes(app, datapath):
    observing(app, mode="observe")
    app.flowdb.flow_opened(make_flow())
    app.on_alarm(alarm(datapath))
    ((observe, window),) = extension_actions(datapath)
    assert observe == wire.Observe()
    assert isinstance(window, wire.ModWindow)
    app.flowdb.close()
    (decision,) = rows(app.database, DecisionRow)
    assert decision.entry["observed"] is True
    assert decision.window_bytes == window.window_bytes
    assert rows(app.database, ClampRow) == [], "no flow is slowed"


@pytest.mark.parametrize(
    ("scope", "acts"),
    [
        ({"act_at": ["0000000000000001:3"]}, True),
        ({"act_at": ["1"]}, True),
        ({"act_at": ["0000000000000001:4", "2"]}, False),
        ({"act_for": ["10.0.0.3/32"]}, True),
        ({"act_for": ["10.9.0.0/16", "fd00::/8"]}, False),
    ],
)
def test_sdtcp_acts_in_its_scope_only(app, datapath, scope, acts):
    observing(app, **scope)
    app.index.add(make_flow())
    app.on_alarm(alarm(datapath))
    ((*before, _),) = extension_actions(datapath)
    assert before == ([] if acts else [wire.Observe()])


def test_a_decision_at_a_switch_that_is_off_is_recorded_as_observed(app, datapath):
    for flags in (PortCountersFlags.NONE, OFF):
        sampled(app, flags=flags)
    app.flowdb.flow_opened(make_flow())
    app.on_alarm(alarm(datapath))
    ((window,),) = extension_actions(datapath)
    assert isinstance(window, wire.ModWindow), "it acts when the switch is turned on"
    app.flowdb.close()
    (decision,) = rows(app.database, DecisionRow)
    assert decision.entry["observed"] is True
    assert rows(app.database, ClampRow) == []


OFF = PortCountersFlags.OBSERVES | PortCountersFlags.OFF


def test_clamps_have_rows_while_their_switch_is_on(app, datapath):
    app.flowdb.flow_opened(make_flow())
    app.on_alarm(alarm(datapath))
    for flags in (OFF, OFF, PortCountersFlags.NONE, OFF):
        sampled(app, flags=flags)
    app._obey(Command(9, "release", {"flow": 1}, "someone"), 0)
    sampled(app, flags=PortCountersFlags.NONE)
    app.flowdb.close()
    first, second = rows(app.database, ClampRow)
    assert {first.lift_reason, second.lift_reason} == {"switch turned off"}
    assert first.lifted_ns < second.pushed_ns < second.lifted_ns
    assert (second.decision_id, second.window_bytes) == (first.decision_id, first.window_bytes)


def test_a_clamp_that_is_made_while_its_switch_is_off_has_a_row_from_when_it_is_on(app, datapath):
    sampled(app, flags=OFF)
    app.flowdb.flow_opened(make_flow())
    app.on_alarm(alarm(datapath))
    sampled(app, flags=PortCountersFlags.NONE)
    app.flowdb.close()
    (clamp,) = rows(app.database, ClampRow)
    (decision,) = rows(app.database, DecisionRow)
    assert (clamp.decision_id, clamp.lifted_ns) == (decision.id, None)
    assert clamp.pushed_ns > decision.decided_ns


def test_a_switch_that_disconnects_while_it_is_off_leaves_no_clamp(app, datapath):
    app.flowdb.flow_opened(make_flow())
    app.on_alarm(alarm(datapath))
    sampled(app, flags=OFF)
    app.on_switch_gone(SimpleNamespace(datapath=datapath))
    app.on_samples(EventPortSamples(1, ()))
    sampled(app, flags=PortCountersFlags.NONE)
    app.flowdb.close()
    (clamp,) = rows(app.database, ClampRow)
    assert clamp.lift_reason == "switch turned off"


def test_a_change_of_the_scope_lifts_the_clamps_at_once(app, datapath):
    app.flowdb.flow_opened(make_flow())
    app.on_alarm(alarm(datapath))
    assert app.core.punished == 1
    datapath.sent.clear()
    observing(app, mode="observe")
    assert app.core.punished == 0
    (deleted,) = datapath.flow_mods()
    assert deleted.command == datapath.ofproto.OFPFC_DELETE_STRICT
    app.flowdb.close()
    (clamp,) = rows(app.database, ClampRow)
    assert clamp.lift_reason == "settings changed"


def test_a_port_outside_the_scope_is_not_armed(app, datapath):
    observing(app, mode="reflex", act_at=["0000000000000001:4"])
    app.index.add(make_flow())
    app.armed_ports.set_capacity(PortKey(1, 3), 10**8)
    app.tick()
    armed = [wire.decode_message(bytes(one.buf)) for one in datapath.sent if one.msg_type == 4]
    assert [one.entries for one in armed if isinstance(one, wire.Arm)] in ([], [()])


def test_a_connecting_switch_loses_old_clamps_and_gets_the_alarm_settings(app):
    datapath = FakeDatapath()
    app.on_switch(event(datapath))
    delete, config = datapath.sent
    assert (delete.table_id, delete.cookie, delete.command) == (
        0,
        STAGE.cookie,
        datapath.ofproto.OFPFC_DELETE,
    )
    sent = wire.decode_message(bytes(config.buf))
    flags = wire.PortConfigFlags.ALARM | wire.PortConfigFlags.ALLOWANCE
    assert sent == wire.PortConfig(wire.OFPP_ANY, flags, k_pkts=20, rtt_us=1000, cookie=STAGE.cookie)


@pytest.mark.parametrize("refuses", [True, False])
def test_a_clamp_is_at_the_switch_that_the_acks_pass_first_unless_it_runs_no_agent(app, refuses):
    app._change_settings(app.settings.model_copy(update={"corrects_allowance": False}))
    near, far = FakeDatapath(1), FakeDatapath(2)
    for datapath in (near, far):
        app.on_switch(event(datapath))
    if refuses:
        app.on_error(event(far, xid=far.sent[-1].xid, type=1, code=3))
    for datapath in (near, far):
        datapath.sent.clear()
    app.index.add(replace(make_flow(), path=(Hop(1, 1, 3), Hop(2, 1, 4))))
    app.on_alarm(alarm(near))
    assert [len(datapath.flow_mods()) for datapath in (near, far)] == ([1, 0] if refuses else [0, 1])


@pytest.mark.parametrize("key", [V4, V6], ids=["IPv4", "IPv6"])
def test_a_clamp_matches_the_acks_and_goes_to_the_next_table(app, datapath, key):
    app.index.add(make_flow(key=key))
    app.on_alarm(alarm(datapath))
    (mod,) = datapath.flow_mods()
    assert mod.extension[0].to_wire() == wire.ModWindow(14_375, 5)
    assert (mod.table_id, mod.goto, mod.priority, mod.cookie) == (0, 1, 65535, STAGE.cookie)
    assert (mod.match["tcp_src"], mod.match["tcp_dst"]) == (80, 1000)
    assert messages.clamped_flow(mod.match) == key
    data = bytes(datapath.sent[0].buf)
    rule = rule_of(FlowMod.parse(data))
    assert rule.match.exact
    assert (rule.window_op, rule.window_bytes, rule.alpha) == (WindowOp.MOD_WINDOW, 14_375, 5)
    assert (rule.idle_timeout_s, rule.hard_timeout_s) == (5, 30)


@pytest.mark.parametrize(
    ("settings", "flag"),
    [
        ({}, 0),
        ({"fits_segments": False}, wire.PortConfigFlags.OMIT_FITTING),
        ({"mode": "observe"}, wire.PortConfigFlags.OMIT_FITTING),
        ({"act_for": ["10.0.0.0/8"]}, wire.PortConfigFlags.OMIT_FITTING),
    ],
)
def test_ports_fit_segments_if_the_controller_acts_on_all_flows(app, datapath, settings, flag):
    app._change_settings(SdtcpSettings(k_pkts=30, **settings))
    flags = wire.PortConfigFlags.ALARM | wire.PortConfigFlags.ALLOWANCE | flag
    configs = [wire.decode_message(bytes(message.buf)) for message in datapath.sent]
    assert [config.flags for config in configs if isinstance(config, wire.PortConfig)] == [flags]


def test_a_share_is_a_constant_window_if_ports_do_not_correct_the_allowance(app, datapath):
    app._change_settings(app.settings.model_copy(update={"corrects_allowance": False}))
    app.index.add(make_flow())
    app.on_alarm(alarm(datapath))
    assert datapath.flow_mods()[0].extension[0].to_wire() == wire.SetWindow(21_250)


def test_a_closed_flow_s_clamp_is_deleted_strictly(app, datapath):
    flow = make_flow()
    app.index.add(flow)
    app.on_alarm(alarm(datapath))
    app.index.remove(flow.id)
    app.on_flow_closed(EventFlowClosed(flow, "fin", 1))
    added, deleted = datapath.flow_mods()
    assert deleted.command == datapath.ofproto.OFPFC_DELETE_STRICT
    assert (deleted.match, deleted.priority, deleted.table_id) == (added.match, 65535, 0)


@pytest.fixture
def noted(app, monkeypatch):
    """The recorded alarms, each with its kind and time, while a further event waits."""
    noted, record = [], app.recorder.alarm

    def note(port, kind, msg, now_ns):
        noted.append((kind, now_ns))
        return record(port, kind, msg, now_ns)

    monkeypatch.setattr(app.recorder, "alarm", note)
    app.index.add(make_flow())
    app.events.put("another event")
    return noted


def test_waiting_alarms_are_answered_before_any_is_recorded(app, datapath, noted):
    app.on_alarm(alarm(datapath))
    assert len(datapath.flow_mods()) == 1
    assert noted == []
    app.on_normal(alarm(datapath))
    assert [kind for kind, _ in noted] == ["alarm", "normal"]
    assert noted == sorted(noted), "each with its own time"


def test_alarms_of_a_queue_that_is_not_tcp_are_recorded_once_until_its_end(app, datapath):
    app.flowdb.flow_opened(make_flow())
    for _ in range(3):
        app.on_alarm(alarm(datapath, non_tcp_percent=90))
    app.on_normal(alarm(datapath))
    app.on_alarm(alarm(datapath, non_tcp_percent=60))
    app.flowdb.close()
    assert [(row.kind, row.non_tcp_percent, row.repeats) for row in rows(app.database, AlarmRow)] == [
        ("alarm", 90, 0),
        ("normal", 0, 2),
        ("alarm", 60, 0),
    ]
    assert datapath.flow_mods() == []


def test_answered_alarms_are_recorded_before_the_app_ends(app, datapath, noted):
    app.on_alarm(alarm(datapath))
    app.close()
    assert [kind for kind, _ in noted] == ["alarm"]


def test_the_number_of_unrecorded_alarms_is_bounded(app, datapath, noted, monkeypatch):
    monkeypatch.setattr("sdtcp_app.executor.MOST_UNRECORDED", 2)
    monkeypatch.setattr("sdtcp_app.app.time.monotonic_ns", lambda: 1)  # less than a step between the alarms
    app.on_alarm(alarm(datapath))
    app.on_alarm(alarm(datapath))
    assert [kind for kind, _ in noted] == ["alarm"], "the second led to nothing"


def test_an_alarm_without_a_decision_has_a_row_every_five_minutes(app, datapath, monkeypatch):
    """All flows are punished already, or none is TCP: who reads the rows must see that the alarm lasts."""
    begin_ns, minute_ns = app.flowdb.clock.now_ns(), 60 * 10**9
    for minute in range(12):
        monkeypatch.setattr(app.executor, "_now_ns", lambda at=begin_ns + minute * minute_ns: at)
        app.on_alarm(alarm(datapath))
    app.on_normal(alarm(datapath))
    app.flowdb.close()
    kinds = [(row.kind, row.repeats) for row in rows(app.database, AlarmRow)]
    assert kinds == [("alarm", 0), ("alarm", 5), ("normal", 5)]


def removed(datapath, match, reason, cookie=STAGE.cookie):
    return event(datapath, cookie=cookie, reason=reason, match=match)


def test_only_a_timeout_of_our_own_entry_releases_a_flow(app, datapath):
    app.index.add(make_flow())
    app.on_alarm(alarm(datapath))
    match = datapath.sent[0].match
    ofp = datapath.ofproto
    app.on_entry_gone(removed(datapath, match, ofp.OFPRR_DELETE))
    app.on_entry_gone(removed(datapath, match, ofp.OFPRR_IDLE_TIMEOUT, FABRIC_COOKIE))
    app.on_entry_gone(removed(datapath, datapath.ofproto_parser.OFPMatch(), ofp.OFPRR_IDLE_TIMEOUT))
    assert app.core.punished == 1
    app.on_entry_gone(removed(datapath, match, ofp.OFPRR_IDLE_TIMEOUT))
    assert app.core.punished == 0


@pytest.mark.parametrize(
    "changed", [{"port_rate_bps": 0}, {"port_rate_bps": 2**64 - 1}, {"crossing_ns": 2**64 - 1}]
)
def test_an_impossible_alarm_is_counted_and_dropped(app, datapath, changed):
    app.index.add(make_flow())
    app.on_alarm(alarm(datapath, **changed))
    app.on_normal(alarm(datapath, **changed))
    assert datapath.sent == []
    assert app.metrics.registry.get_sample_value("weir_sdtcp_alarms_total", {"outcome": "malformed"}) == 2


def test_a_switch_that_raises_alarms_of_port_after_port_takes_no_more_memory(app, monkeypatch, caplog):
    monkeypatch.setattr("sdtcp_app.app._MOST_PORTS", 3)
    for _ in range(2):
        datapath = FakeDatapath()
        app.on_switch(event(datapath))
        for number in range(1, 100):
            for percent in (0, 90, 0):
                app.on_alarm(alarm(datapath, port=wire.OfpPort(number), non_tcp_percent=percent))
    recorder = app.recorder
    kept = (recorder._repeats, recorder._recorded_ns, recorder._without_tcp, app._ports_without_flows)
    assert [{port.port_no for port in of_ports} for of_ports in kept] == [{1, 2, 3}] * 4
    assert sample(app, "weir_sdtcp_alarms_total", outcome="malformed") == 2 * 3 * 96
    assert len(caplog.records) < 10
    gone = SimpleNamespace(port_no=2)
    app.on_port_status(event(datapath, reason=datapath.ofproto.OFPPR_DELETE, desc=gone))
    app.on_alarm(alarm(datapath, port=wire.OfpPort(50)))
    assert {port.port_no for port in recorder._recorded_ns} == {1, 3, 50}, "a port that is gone makes room"
    app.on_switch_gone(SimpleNamespace(datapath=datapath))
    assert not any((*kept[:2], recorder._without_tcp, app._ports_without_flows))


def test_impossible_alarms_are_logged_once_a_second(app, datapath, caplog, monkeypatch):
    """A hostile switch sends as many as it likes."""
    for now_s, number in ((100.0, 1000), (101.0, 1)):
        monkeypatch.setattr("app_base.app.time.monotonic", lambda now_s=now_s: now_s)
        for _ in range(number):
            app.on_alarm(alarm(datapath, port_rate_bps=0))
    lines = [record.getMessage() for record in caplog.records]
    text = "port 0000000000000001:3: alarm dropped: impossible rate 0 bit/s or time 5 ns"
    assert lines == [text, f"{text} (999 more were not logged)"]


def test_the_largest_alarm_can_still_be_sent(app, datapath):
    app.index.add(make_flow(key=V4))
    app.on_alarm(alarm(datapath, port_rate_bps=10**15, port_buf_bytes=2**32 - 1, n_i=1))
    assert datapath.flow_mods()[0].extension[0].to_wire().window_bytes == 65535 << 9


def test_only_the_end_of_the_newest_session_releases_flows(app, datapath):
    app.index.add(make_flow())
    app.on_alarm(alarm(datapath))
    app.on_switch_gone(SimpleNamespace(datapath=FakeDatapath()))
    assert app.core.punished == 1
    app.on_switch_gone(SimpleNamespace(datapath=datapath))
    assert app.core.punished == 0


@pytest.mark.parametrize(
    "wrong", [{"k_pkts": 0}, {"rtt_us": 0}, {"alpha": 0}, {"hard_timeout_s": 0}, {"speed": 1}]
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValidationError):
        SdtcpSettings(**wrong)


def sample(app, name, **labels):
    return app.metrics.registry.get_sample_value(name, labels)


def test_answers_of_the_switch_are_recorded(app, datapath, monkeypatch):
    answered = []
    monkeypatch.setattr(app.recorder, "answered", lambda *args: answered.append(args[1]))
    app.index.add(make_flow())
    app.on_alarm(alarm(datapath))
    xid = datapath.sent[-1].xid
    app.executor.ask_confirmations()
    barrier = datapath.sent[-1].xid
    app.executor.ask_confirmations()
    assert datapath.sent[-1].xid == barrier, "one barrier at a time"
    app.on_barrier(event(datapath, xid=barrier + 100))
    assert answered == []
    app.on_barrier(event(datapath, xid=barrier))
    app.on_error(event(datapath, xid=xid, type=5, code=1))
    assert answered == ["done"]


@pytest.mark.parametrize("error", [{"type": 5, "code": 1}, {"type": 0xFFFF, "exp_type": 3}])
def test_a_refused_entry_is_recorded(app, datapath, monkeypatch, error):
    answered = []
    monkeypatch.setattr(app.recorder, "answered", lambda *args: answered.append(args[1]))
    app.index.add(make_flow())
    app.on_alarm(alarm(datapath))
    xid = datapath.sent[-1].xid
    app.on_error(event(datapath, xid=xid, **error))
    app.executor.ask_confirmations()
    app.on_barrier(event(datapath, xid=datapath.sent[-1].xid))
    assert answered == [f"refused: type {error['type']} code {[*error.values()][1]}"]
    assert sample(app, "weir_sdtcp_answers_total", outcome="refused") == 1


def test_a_refused_entry_ends_its_clamp(app, datapath):
    app.index.add(make_flow())
    app.on_alarm(alarm(datapath))
    assert app.core.punished == 1
    app.on_error(event(datapath, xid=datapath.sent[-1].xid, type=5, code=1))
    assert app.core.punished == 0
    assert sample(app, "weir_sdtcp_lifts_total", reason="refused by the switch") == 1
    assert app.index.candidates(PortKey(1, 3), 9) == []


def test_unconfirmed_entries_of_a_disconnected_switch_are_recorded_as_lost(app, datapath, monkeypatch):
    answered = []
    monkeypatch.setattr(app.recorder, "answered", lambda *args: answered.append(args[1]))
    app.index.add(make_flow())
    app.on_alarm(alarm(datapath))
    app.on_switch_gone(SimpleNamespace(datapath=datapath))
    assert answered == ["none: the switch went"]


def test_an_alarm_of_a_port_without_flows_is_logged_once(app, datapath, caplog):
    for _ in range(3):
        app.on_alarm(alarm(datapath))
    assert [record.message for record in caplog.records].count(
        "port 0000000000000001:3 raised an alarm, but no flow is known to leave through it"
    ) == 1
    assert sample(app, "weir_sdtcp_alarms_total", outcome="nothing") == 3


@pytest.mark.parametrize("flows", [[], [make_flow()]], ids=["no flow", "a flow"])
def test_an_alarm_of_a_queue_that_is_not_tcp_names_the_cause(app, datapath, caplog, monkeypatch, flows):
    now_s = [100.0]
    monkeypatch.setattr("sdtcp_app.app.time.monotonic", lambda: now_s[0])
    for flow in flows:
        app.index.add(flow)
    said = (
        "port 0000000000000001:3 raised an alarm: packets other than TCP fill its queue (80 %), "
        "no flow is punished"
    )
    for waited_s, times in ((0, 1), (9, 1), (2, 2)):
        now_s[0] += waited_s
        app.on_alarm(alarm(datapath, non_tcp_percent=80))
        assert [record.message for record in caplog.records] == [said] * times


def test_metrics_count_and_serve(app, datapath):
    app.index.add(make_flow())
    app.on_alarm(alarm(datapath))
    app.on_flow_closed(EventFlowClosed(make_flow(), "fin", 1))
    assert sample(app, "weir_sdtcp_decisions_total", equation="punished") == 1
    assert sample(app, "weir_sdtcp_lifts_total", reason="flow closed") == 1
    assert sample(app, "weir_sdtcp_alarm_to_flow_mod_seconds_count") == 1
    assert sample(app, "weir_sdtcp_clamps") == 0
    assert sample(app, "weir_flowdb_flows") == 1
    dropped, ended = registry.malformed.total(), registry.ended_sessions.total()
    registry.malformed[None] += 2
    registry.ended_sessions["ryu"] += 3
    assert sample(app, "weir_openflow_dropped_messages") == dropped + 2
    assert sample(app, "weir_openflow_ended_sessions") == ended + 3
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        taken.listen()
        with pytest.raises(SystemExit, match=f"metrics: cannot listen on {address}"):
            app.metrics.serve_or_exit(address)


@pytest.fixture
def reflex_app(app, datapath):
    app._change_settings(app.settings.model_copy(update={"mode": "reflex"}))
    app.flowdb.flow_opened(make_flow(1))
    app.flowdb.flow_opened(make_flow(2, V6))
    app.on_flows_opened(EventFlowOpened((make_flow(1), make_flow(2, V6))))
    app.on_tick(None)
    datapath.sent.clear()
    app.on_port_config(event(datapath, port_no=3, capacity_bps=100_000_000))
    app.on_tick(None)
    return app


def test_reflex_mode_arms_ports_and_replaces_activated_entries(reflex_app, datapath, monkeypatch):
    now_ns = time.monotonic_ns()
    monkeypatch.setattr("sdtcp_app.app.time.monotonic_ns", lambda: now_ns)
    armed = wire.decode_message(bytes(datapath.sent[-1].buf))
    assert [(entry.src_port, entry.alpha, entry.priority) for entry in armed.entries] == [(80, 5, 65535)] * 2
    assert [str(entry.src) for entry in armed.entries] == ["10.0.0.3", "fe80::3"]
    assert armed.entries[0].cookie == STAGE.cookie | 1
    datapath.sent.clear()
    step = {"port_no": 3, "rank": 0, "n_i": 2, "when_ns": 5}
    reflex_app.on_reflex(event(datapath, on=True, cookie=armed.entries[0].cookie, **step))
    clamp, disarmed = datapath.sent
    (action,) = clamp.instructions[0].actions
    assert action.to_wire() == wire.ModWindow(armed.entries[0].window_bytes, 5)
    assert wire.decode_message(bytes(disarmed.buf)) == wire.Arm(3)
    reflex_app.on_reflex(event(datapath, on=False, cookie=armed.entries[0].cookie, **step))
    reflex_app.on_alarm(alarm(datapath))
    assert len(datapath.sent) == 2
    reflex_app.flowdb.close()
    (decision,) = rows(reflex_app.database, DecisionRow)
    (row,) = rows(reflex_app.database, AlarmRow)
    assert (decision.origin, decision.alarm_id) == ("reflex", row.id)


def test_the_end_of_an_alarm_is_not_the_cause_of_a_reflex(reflex_app, datapath):
    armed = wire.decode_message(bytes(datapath.sent[-1].buf))
    step = {"port_no": 3, "rank": 0, "n_i": 2, "when_ns": 5}
    reflex_app.on_reflex(event(datapath, on=True, cookie=armed.entries[0].cookie, **step))
    reflex_app.on_normal(alarm(datapath, port_buf_pkts=4))
    reflex_app.on_alarm(alarm(datapath))
    reflex_app.flowdb.close()
    decisions = rows(reflex_app.database, DecisionRow)
    assert [(one.origin, one.alarm_id) for one in decisions if one.origin == "reflex"] == [("reflex", None)]


def armed_windows(datapath):
    """The windows of each message that armed a port."""
    sent = [wire.decode_message(bytes(one.buf)) for one in datapath.sent if one.msg_type == 4]
    return [[entry.window_bytes for entry in one.entries] for one in sent if isinstance(one, wire.Arm)]


def test_armed_windows_follow_the_capacity_in_a_port_s_counters(reflex_app, datapath, monkeypatch):
    ((before, _),) = armed_windows(datapath)
    for later, capacity_bps in enumerate((0, 10**16, 10**9, 10**9), 1):
        monkeypatch.setattr("sdtcp_app.app.time.monotonic_ns", lambda later=later: later * 10**18)
        sampled(reflex_app, capacity_bps=capacity_bps)
        reflex_app.on_tick(None)
    _, (after, _) = armed_windows(datapath)
    assert after > before


def test_a_port_whose_capacity_was_unknown_is_armed_when_its_counters_state_it(app, datapath):
    app._change_settings(app.settings.model_copy(update={"mode": "reflex"}))
    app.flowdb.flow_opened(make_flow())
    app.on_flows_opened(EventFlowOpened((make_flow(),)))
    app.on_tick(None)
    app.on_port_config(event(datapath, port_no=3, capacity_bps=0))
    app.on_tick(None)
    assert armed_windows(datapath) == []
    sampled(app, capacity_bps=100_000_000)
    app.on_tick(None)
    assert len(armed_windows(datapath)) == 1


def test_a_port_that_was_not_armed_is_tried_again(reflex_app, datapath, monkeypatch):
    arm = datapath.sent[-1]
    reflex_app.on_error(event(datapath, xid=arm.xid, type=0xFFFF, exp_type=3))
    monkeypatch.setattr("sdtcp_app.app.time.monotonic_ns", lambda: 10**18)
    reflex_app.on_tick(None)
    again = datapath.sent[-1]
    assert wire.decode_message(bytes(again.buf)) == wire.decode_message(bytes(arm.buf))
    assert again is not arm


def test_the_end_of_reflex_mode_disarms_ports(reflex_app, datapath):
    datapath.sent.clear()
    reflex_app._change_settings(reflex_app.settings.model_copy(update={"mode": "alarm"}))
    assert [wire.decode_message(bytes(msg.buf)) for msg in datapath.sent] == [wire.Arm(3)]


def test_settings_are_changed_without_a_restart(app, datapath, tmp_path, monkeypatch, caplog):
    file = tmp_path / "weir.toml"
    file.write_text("[sdtcp]\nk_pkts = 20\n")
    monkeypatch.setenv("WEIR_CONFIG", str(file))
    app._watch = Watch("sdtcp", SdtcpSettings)
    app._reload_settings()
    assert datapath.sent == []
    file.write_text('[sdtcp]\nk_pkts = 65\npolicy = "largest-volume"\nmetrics = "127.0.0.1:9"\n')
    app._reload_settings()
    assert wire.decode_message(bytes(datapath.sent[0].buf)).k_pkts == 65
    assert app.core.parameters.k_pkts == 65
    for number, sent in ((1, 10), (2, 20)):
        app.index.add(replace(make_flow(number), sent_bytes=sent))
    app.on_alarm(alarm(datapath))
    assert app.core.is_punished(2)
    assert "[sdtcp] metrics takes effect at the next start" in caplog.text
    file.write_text("[sdtcp]\nk_pkts = 0\n")
    app._reload_settings()
    assert "the settings stay as they are" in caplog.text
    assert app.settings.k_pkts == 65


def test_a_command_is_obeyed_and_answered(app, datapath, monkeypatch):
    app.index.add(make_flow())
    asked = [Command(5, "punish", {"flow": 1}, "ann"), Command(6, "release", {"flow": 9}, "ann")]
    answered = []
    monkeypatch.setattr(app.flowdb, "take_commands", lambda _: [asked.pop(0)] if asked else [])
    monkeypatch.setattr(app.flowdb, "command_done", lambda *done: answered.append(done[1:]))
    app.on_tick(None)
    app.on_tick(None)
    assert answered == [(True, f"{V4} slowed down"), (False, "no flow 9 is open")]
    (mod,) = datapath.flow_mods()
    assert mod.extension[0].to_wire() == wire.SetWindow(1460)
    assert sample(app, "weir_sdtcp_commands_total", outcome="obeyed") == 1
    assert sample(app, "weir_sdtcp_commands_total", outcome="refused") == 1


def test_a_clamp_in_openflow_1_5(app):
    datapath = FakeDatapath(version=6)
    app.on_switch(event(datapath))
    app.index.add(make_flow())
    app.on_alarm(alarm(datapath))
    data = bytes(datapath.sent[-1].buf)
    rule = rule_of(FlowMod.parse(data))
    assert (data[0], rule.window_op, rule.window_bytes) == (6, WindowOp.MOD_WINDOW, 14_375)
    app.executor.ask_confirmations()
    app.executor.carry_out(app.core.on_flow_closed(make_flow()))
    assert FlowMod.parse(bytes(datapath.sent[-1].buf)).command == datapath.ofproto.OFPFC_DELETE_STRICT


def test_in_mode_weights_ports_are_armed_and_raise_no_alarm(reflex_app, datapath):
    datapath.sent.clear()
    reflex_app._change_settings(reflex_app.settings.model_copy(update={"mode": "weights"}))
    config, *_ = (wire.decode_message(bytes(msg.buf)) for msg in datapath.sent)
    assert (config.flags, config.k_pkts) == (wire.PortConfigFlags.ALARM | wire.PortConfigFlags.ALLOWANCE, 0)
    assert reflex_app.settings.arms_ports


def test_without_a_corrected_allowance_only_the_alarm_is_asked_for(app, datapath):
    app._change_settings(app.settings.model_copy(update={"corrects_allowance": False}))
    (config,) = (wire.decode_message(bytes(msg.buf)) for msg in datapath.sent)
    assert config.flags == wire.PortConfigFlags.ALARM
