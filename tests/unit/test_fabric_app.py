"""The fabric's entries and handlers, with the engine's real parser and a datapath that records."""

import itertools
from ipaddress import IPv4Address

import pytest

from fabric_app import entries
from fabric_app.app import FabricApp
from fabric_app.hosts import Host
from fabric_app.pipeline import COOKIE_FABRIC, COOKIE_SDTCP, DATA, OPENING_OR_CLOSING
from flowdb.db import FlowDb
from flowdb.flow import Hop
from openflow_ext.engine import ofproto_v1_3_parser
from openflow_ext.wire import FlowKind, FlowKinds, FlowRecord
from tests.unit.fake_datapath import FakeDatapath, event
from tests.unit.scripted_switch import PACKET_OUT, arp, handshake, mac

REPORT_CONFIG = ofproto_v1_3_parser.OFPFlowReportConfig


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.delenv("WEIR_CONFIG", raising=False)
    flowdb = FlowDb(f"sqlite:///{tmp_path}/weir.db")
    yield FabricApp(flowdb=flowdb)
    flowdb.close()


def packet_in(datapath, in_port, data, cookie=COOKIE_FABRIC):
    return event(datapath, data=data, cookie=cookie, match={"in_port": in_port})


def test_every_segment_matches_one_row_of_flags():
    rows = [*OPENING_OR_CLOSING, DATA]
    for flags in range(256):
        assert len([row for row in rows if flags & row[1] == row[0]]) == 1


def test_the_pipeline_leads_on_and_copies_wait_for_nobody():
    datapath = FakeDatapath()
    for message in entries.pipeline(datapath):
        datapath.send_msg(message)
    mods = datapath.flow_mods()
    misses = {mod.table_id: mod.goto for mod in mods if mod.priority == 0}
    assert misses == {0: 1, 1: 2, 2: 3, 3: None}
    copies = [mod for mod in mods if mod.table_id == 2 and mod.priority == 100]
    assert len(copies) == 9
    assert {mod.goto for mod in copies} == {3}
    assert {(mod.idle_timeout, mod.hard_timeout) for mod in mods} == {(0, 0)}
    flags = [mod.match["tcp_flags"] for mod in copies if mod.match.get("eth_type") == 0x0800]
    assert flags == [(2, 2), (1, 3), (4, 7)]


def test_tcp_flags_follow_what_they_need():
    """OVS wants eth_type and ip_proto before the flags; Ryu writes its NXM form of the field first."""
    datapath = FakeDatapath()
    for message in entries.pipeline(datapath):
        datapath.send_msg(message)
    with_flags = [bytes(m.buf) for m in datapath.sent if m.match.get("tcp_flags")]
    assert with_flags
    ip_proto, flags = bytes.fromhex("8000140106"), bytes.fromhex("ffff55084f4e4600")
    assert all(0 < m.index(ip_proto) < m.index(flags) for m in with_flags)


def test_a_switch_that_comes_gets_entries_and_loses_only_absent_apps_leftovers(app):
    datapath = FakeDatapath()
    app.on_switch(event(datapath))
    app.on_switch(event(datapath))
    deletes = [mod for mod in datapath.flow_mods() if mod.command == 3]
    assert len(deletes) == 4
    assert {mod.table_id for mod in deletes} == {0, 1}
    assert COOKIE_FABRIC not in {mod.cookie for mod in deletes}
    assert {mod.cookie_mask for mod in deletes} == {0xFFFF_FFFF_0000_0000}
    assert COOKIE_SDTCP in {mod.cookie for mod in deletes}


def test_arp_is_flooded_then_answered(app):
    datapath = FakeDatapath()
    app.on_packet_in(packet_in(datapath, 1, arp(1, 1, 3)))
    app.on_packet_in(packet_in(datapath, 3, arp(2, 3, 1, mac(1))))
    app.on_packet_in(packet_in(datapath, 1, arp(1, 1, 3)))
    flood, answer = (message for message in datapath.sent if message.msg_type == PACKET_OUT)
    assert (flood.in_port, flood.actions[0].port) == (1, datapath.ofproto.OFPP_FLOOD)
    assert answer.actions[0].port == 1
    to_hosts = [(mod.match["eth_dst"], mod.table_id) for mod in datapath.flow_mods()]
    assert to_hosts == [(mac(1), 3), (mac(3), 3)]


def test_flow_events_reach_observers_and_the_index(app, monkeypatch):
    events = []
    monkeypatch.setattr(app, "send_event_to_observers", events.append)
    datapath = FakeDatapath()
    for port, frame in zip((1, 3), handshake(1, 3), strict=True):
        app.on_packet_in(packet_in(datapath, port, frame))
    (opened,) = events
    assert {flow.id for flow in opened.flows} == {flow.id for flow in app.flowdb.index.flows()}


def test_other_apps_packets_and_nonsense_are_left_alone(app, caplog):
    datapath = FakeDatapath()
    app.on_packet_in(packet_in(datapath, 1, arp(1, 1, 3), cookie=1))
    for _ in range(3):
        app.on_packet_in(packet_in(datapath, 1, b"\0" * 5))
    assert datapath.sent == []
    assert app.fabrics[1].malformed == 3


def test_a_port_that_is_deleted_takes_its_hosts_along(app):
    datapath = FakeDatapath()
    app.on_packet_in(packet_in(datapath, 2, arp(1, 2, 3)))
    port = datapath.ofproto_parser.OFPPort(2, mac(2), b"h2", 0, 0, 0, 0, 0, 0, 0, 0)
    app.on_port_status(event(datapath, reason=datapath.ofproto.OFPPR_DELETE, desc=port))
    assert len(app.fabric(1).hosts) == 0
    assert [mod.command for mod in datapath.flow_mods()] == [0, 3]
    assert datapath.sent[-1].out_port == 2


def test_hosts_are_read_back_from_the_switch(app):
    datapath = FakeDatapath()
    entry = entries.to_host(datapath, Host(mac(5), 4))
    app.on_flow_stats(event(datapath, body=[entry]))
    assert app.fabric(1).hosts.learn(mac(5), 4) is None
    foreign = entries.to_host(datapath, Host(mac(6), 4))
    foreign.cookie = 9
    assert list(entries.hosts_of([foreign, *entries.pipeline(datapath)])) == []


def test_a_successor_starts_with_the_flows_that_are_open(app):
    fabric = app.fabric(1)
    syn, syn_ack = handshake(1, 3)
    fabric.on_packet(syn, 1, 0)
    (flow, *_) = next(d for d in fabric.on_packet(syn_ack, 3, 0) if hasattr(d, "flows")).flows
    app.flowdb.flow_opened(flow)
    app.fabrics.clear()
    assert len(app.fabric(1).connections) == 1
    assert len(app.fabric(2).connections) == 0


def test_a_switch_that_comes_is_asked_which_flows_live(app, monkeypatch, caplog):
    events = []
    monkeypatch.setattr(app, "send_event_to_observers", events.append)
    datapath = FakeDatapath()
    app.on_switch(event(datapath))
    (ask,) = (message for message in datapath.sent if isinstance(message, REPORT_CONFIG))
    assert ask.kinds == FlowKinds.ACTIVE | FlowKinds.IDLE
    there, back = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.3")
    records = (
        FlowRecord(FlowKind.ACTIVE, there, back, 1000, 80, 3, first_ns=5),
        FlowRecord(FlowKind.IDLE, back, there, 80, 1000, 1, first_ns=5),
    )
    with caplog.at_level("INFO", app.logger.name):
        app.on_flow_report(event(datapath, records=records, lost=2))
        app.on_error(event(datapath, xid=ask.xid, type=1, code=3))
    assert {flow.path for flow in app.flowdb.index.flows()} == {(Hop(1, 1, 3),), (Hop(1, 3, 1),)}
    assert {flow.id for one in events for flow in one.flows} == {f.id for f in app.flowdb.index.flows()}
    assert "lost 2 flow reports" in caplog.text
    assert [record.levelname for record in caplog.records if "does not report" in record.message] == ["INFO"]


def test_ids_are_the_database_s(app):
    first, second = itertools.islice(iter(app.flowdb.next_id, None), 2)
    assert second == first + 1
