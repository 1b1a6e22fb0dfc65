"""SDTCP's entries and handlers, with the engine's real parser and a datapath that records."""

from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from fabric_app.events import EventFlowClosed
from fabric_app.pipeline import COOKIE_FABRIC, COOKIE_SDTCP
from flowdb.db import FlowDb
from flowdb.flow import FiveTuple, Flow
from openflow_ext import wire
from openflow_ext.switch.openflow import FlowMod
from openflow_ext.switch.rules import WindowOp
from openflow_ext.switch.split import rule_for, split
from sdtcp_app import entries
from sdtcp_app.app import SdtcpApp
from sdtcp_app.config import SdtcpSettings
from tests.unit.fake_datapath import FakeDatapath, event

V4 = FiveTuple("10.0.0.1", "10.0.0.3", 1000, 80)
V6 = FiveTuple("fe80::1", "fe80::3", 1000, 80)


def make_flow(flow_id=1, key=V4):
    return Flow(flow_id, key, 1, 1, 3, flow_id, 1460, 9)


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.delenv("WEIR_CONFIG", raising=False)
    flowdb = FlowDb(f"sqlite:///{tmp_path}/weir.db")
    app = SdtcpApp(flowdb=flowdb)
    app.index = flowdb.index
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
        "port_rate_bps": 100_000_000, "n_i": 2, "crossing_ns": 5,
    }  # fmt: skip
    return event(datapath, **fields | changed)


def test_a_switch_that_comes_is_cleaned_and_watched(app):
    datapath = FakeDatapath()
    app.on_switch(event(datapath))
    delete, config = datapath.sent
    assert (delete.table_id, delete.cookie, delete.command) == (
        0,
        COOKIE_SDTCP,
        datapath.ofproto.OFPFC_DELETE,
    )
    sent = wire.decode_message(bytes(config.buf))
    assert sent == wire.PortConfig(
        wire.OFPP_ANY, wire.PortConfigFlags.ALARM, k_pkts=20, rtt_us=1000, cookie=COOKIE_SDTCP
    )


@pytest.mark.parametrize("key", [V4, V6], ids=["IPv4", "IPv6"])
def test_a_clamp_matches_the_acks_and_leads_on(app, datapath, key):
    app.index.add(make_flow(key=key))
    app.on_alarm(alarm(datapath))
    (mod,) = datapath.flow_mods()
    assert mod.extension[0].to_wire() == wire.ModWindow(14_375, 5)
    assert (mod.table_id, mod.goto, mod.priority, mod.cookie) == (0, 1, 65535, COOKIE_SDTCP)
    assert (mod.match["tcp_src"], mod.match["tcp_dst"]) == (80, 1000)
    assert entries.clamped_flow(mod.match) == key
    data = bytes(datapath.sent[0].buf)
    rule = rule_for(FlowMod.parse(data), split(data).actions)
    assert rule.match.exact
    assert (rule.window_op, rule.window_bytes, rule.alpha) == (WindowOp.MOD_WINDOW, 14_375, 5)
    assert (rule.idle_timeout_s, rule.hard_timeout_s) == (5, 30)


def test_a_share_is_a_steady_window(app, datapath, monkeypatch):
    app.index.add(make_flow())
    app.on_alarm(alarm(datapath))
    monkeypatch.setattr("sdtcp_app.app.time.monotonic_ns", lambda: 10**18)
    app.on_alarm(alarm(datapath))
    assert datapath.flow_mods()[1].extension[0].to_wire() == wire.SetWindow(21_250)


def test_a_closed_flow_s_clamp_is_deleted_strictly(app, datapath):
    flow = make_flow()
    app.index.add(flow)
    app.on_alarm(alarm(datapath))
    app.index.remove(flow.id)
    app.on_flow_closed(EventFlowClosed(flow, "fin", 1))
    added, deleted = datapath.flow_mods()
    assert deleted.command == datapath.ofproto.OFPFC_DELETE_STRICT
    assert (deleted.match, deleted.priority, deleted.table_id) == (added.match, 65535, 0)


def removed(datapath, match, reason, cookie=COOKIE_SDTCP):
    return event(datapath, cookie=cookie, reason=reason, match=match)


def test_only_our_timed_out_entries_free_flows(app, datapath):
    app.index.add(make_flow())
    app.on_alarm(alarm(datapath))
    match = datapath.sent[0].match
    ofp = datapath.ofproto
    app.on_entry_gone(removed(datapath, match, ofp.OFPRR_DELETE))
    app.on_entry_gone(removed(datapath, match, ofp.OFPRR_IDLE_TIMEOUT, COOKIE_FABRIC))
    app.on_entry_gone(removed(datapath, datapath.ofproto_parser.OFPMatch(), ofp.OFPRR_IDLE_TIMEOUT))
    assert app.core.punished == 1
    app.on_entry_gone(removed(datapath, match, ofp.OFPRR_IDLE_TIMEOUT))
    assert app.core.punished == 0


@pytest.mark.parametrize(
    "changed", [{"port_rate_bps": 0}, {"port_rate_bps": 2**64 - 1}, {"crossing_ns": 2**64 - 1}]
)
def test_an_alarm_that_makes_no_sense_is_counted_and_dropped(app, datapath, changed):
    app.index.add(make_flow())
    app.on_alarm(alarm(datapath, **changed))
    app.on_normal(alarm(datapath, **changed))
    assert (datapath.sent, app.malformed) == ([], 2)


def test_the_largest_alarm_can_still_be_sent(app, datapath):
    app.index.add(make_flow(key=V4))
    app.on_alarm(alarm(datapath, port_rate_bps=10**15, port_buf_bytes=2**32 - 1, n_i=1))
    assert datapath.flow_mods()[0].extension[0].to_wire().window_bytes == 65535 << 9


def test_a_session_that_ends_frees_its_flows_but_not_for_an_older_one(app, datapath):
    app.index.add(make_flow())
    app.on_alarm(alarm(datapath))
    app.on_switch_gone(SimpleNamespace(datapath=FakeDatapath()))
    assert app.core.punished == 1
    app.on_switch_gone(SimpleNamespace(datapath=datapath))
    assert app.core.punished == 0


@pytest.mark.parametrize(
    "wrong", [{"k_pkts": 0}, {"rtt_us": 0}, {"alpha": 0}, {"hard_timeout_s": 0}, {"speed": 1}]
)
def test_settings_that_are_refused(wrong):
    with pytest.raises(ValidationError):
        SdtcpSettings(**wrong)
