"""The fabric's entries and handlers, with the engine's real parser and a datapath that records."""

import itertools
from ipaddress import ip_address
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from app_base.headers import DATA, OPENING_OR_CLOSING
from app_base.pipeline import FABRIC_COOKIE
from fabric_app import messages
from fabric_app.app import FabricApp
from fabric_app.config import FabricSettings
from fabric_app.events import EventFlowClosed
from fabric_app.fleet_switch import ANSWER_NS
from fabric_app.flow_entries import FlowEntries
from flowdb.commands import Command
from flowdb.flow import PortKey
from flowdb.models import HostRow, LinkRow, PortRow
from openflow_ext import wire
from sdtcp_app.stage import STAGE as SDTCP
from tests.support.database.rows import rows
from tests.support.openflow.fake_datapath import FakeDatapath, event
from tests.support.openflow.scripted_switch import FLOW_MOD, PACKET_OUT, arp, handshake, mac

SECOND_NS = 10**9


@pytest.mark.parametrize("version", [4, 6])
def test_probes_are_the_messages_that_the_engine_would_send(version):
    datapath, packet_outs = FakeDatapath(version=version), messages.PacketOuts()
    frames = [(1, b"first"), (2, b"second, longer"), (1, b"third")]
    datapath.send(packet_outs.encode(datapath, frames))
    ours = [bytes(message.buf) for message in datapath.sent]
    datapath.sent.clear()
    for port_no, frame in frames:
        message = messages.packet_out(datapath, (port_no,), frame)
        message.set_xid(0)
        datapath.send_msg(message)
    assert ours == [bytes(message.buf) for message in datapath.sent]


@pytest.mark.parametrize("version", [4, 6])
def test_a_quiet_network_ticks_once_a_second_and_a_change_shortens_that(app, version):
    datapath = FakeDatapath(version=version)
    come(app, datapath, 1, 2)
    assert app.tick_interval_s() == 1.0, "the next probe is seconds away"
    app.on_ports(event(datapath, body=[of_port(datapath, 3)], flags=0))
    assert [message.data for message in datapath.sent if message.msg_type == PACKET_OUT], "probed at once"
    assert app.tick_interval_s() == 0.1, "the new port is not in the entries"
    app.on_tick(None)
    assert 0.1 < app.tick_interval_s() <= 0.5, "the new port settles in half a second"


def packet_in(datapath, in_port, data, cookie=FABRIC_COOKIE, table_id=2):
    return event(datapath, data=data, cookie=cookie, match={"in_port": in_port}, table_id=table_id)


def come(app, datapath, *port_nos):
    """The switch connects, and its ports settle."""
    app.on_switch(event(datapath))
    app.on_ports(event(datapath, body=[of_port(datapath, number) for number in port_nos], flags=0))
    app.flowdb.clock.now_ns = lambda now_ns=app.flowdb.clock.now_ns: now_ns() + 10**9
    app.on_tick(None)
    datapath.sent.clear()


def test_a_switch_is_known_although_the_engine_has_not_yet_set_its_datapath_id(app):
    """os-ken's own handler of the same message runs in another thread."""
    datapath = FakeDatapath()
    datapath.id = None
    app.on_switch(event(datapath, datapath_id=7))
    assert (datapath.id, app.datapaths) == (7, {7: datapath})


def of_port(datapath, number, state=0):
    if datapath.ofproto.OFP_VERSION == 6:
        return datapath.ofproto_parser.OFPPort(number, 40, mac(number), b"h", 0, state, [])
    return datapath.ofproto_parser.OFPPort(number, mac(number), b"h", 0, state, 0, 0, 0, 0, 0, 0)


def built(datapath, table):
    return [messages.add(datapath, entry, 0) for entry in table]


def test_every_segment_matches_one_row_of_flags():
    rows = [*OPENING_OR_CLOSING, DATA]
    for flags in range(256):
        assert len([row for row in rows if flags & row[1] == row[0]]) == 1


def test_table_misses_lead_on_and_copied_segments_are_forwarded():
    datapath = FakeDatapath()
    for message in built(datapath, FlowEntries().permanent()):
        datapath.send_msg(message)
    mods = datapath.flow_mods()
    misses = {mod.table_id: mod.goto for mod in mods if mod.priority == 0}
    assert misses == {0: 1, 1: 2, 2: 3}
    copies = [mod for mod in mods if mod.table_id == 2 and mod.priority in (80, 100)]
    assert len(copies) == 12
    assert {mod.goto for mod in copies} == {3}
    assert {(mod.idle_timeout, mod.hard_timeout) for mod in mods} == {(0, 0)}
    flags = [
        m.match["tcp_flags"] for m in copies if (m.match["eth_type"], m.match.get("ip_proto")) == (0x0800, 6)
    ]
    assert flags == [(2, 2), (1, 3), (4, 7)]


def test_tcp_flags_follow_their_prerequisites():
    """OVS wants eth_type and ip_proto before the flags; Ryu writes its NXM form of the field first."""
    datapath = FakeDatapath()
    for message in built(datapath, FlowEntries().permanent()):
        datapath.send_msg(message)
    with_flags = [bytes(m.buf) for m in datapath.sent if m.match.get("tcp_flags")]
    assert with_flags
    ip_proto, flags = bytes.fromhex("8000140106"), bytes.fromhex("ffff55084f4e4600")
    assert all(0 < m.index(ip_proto) < m.index(flags) for m in with_flags)


def test_a_connecting_switch_gets_entries_and_loses_those_of_absent_stages(app):
    datapath = FakeDatapath()
    app.on_switch(event(datapath))
    app.on_switch(event(datapath))
    deletes = [mod for mod in datapath.flow_mods() if mod.command == 3]
    assert len(deletes) == 4
    assert {mod.table_id for mod in deletes} == {0, 1}
    assert FABRIC_COOKIE not in {mod.cookie for mod in deletes}
    assert {mod.cookie_mask for mod in deletes} == {0xFFFF_FFFF_0000_0000}
    assert SDTCP.cookie in {mod.cookie for mod in deletes}


@pytest.mark.parametrize("version", [4, 6])
def test_arp_is_sent_to_edge_ports_until_the_host_is_known(app, version):
    datapath = FakeDatapath(version=version)
    come(app, datapath, 1, 2, 3)
    app.on_packet_in(packet_in(datapath, 1, arp(1, 1, 3)))
    app.on_packet_in(packet_in(datapath, 3, arp(2, 3, 1, mac(1))))
    app.on_packet_in(packet_in(datapath, 1, arp(1, 1, 3)))
    asked, answer = (message for message in datapath.sent if message.msg_type == PACKET_OUT)
    assert [action.port for action in asked.actions] == [2, 3]
    assert [action.port for action in answer.actions] == [1]
    to_hosts = [message for message in datapath.sent if message.msg_type == FLOW_MOD]
    assert [(mod.match["eth_dst"], mod.table_id) for mod in to_hosts] == [(mac(1), 3), (mac(3), 3)]


def test_flow_events_reach_observers_and_the_index(app, monkeypatch):
    events = []
    monkeypatch.setattr(app, "send_event_to_observers", events.append)
    datapath = FakeDatapath()
    for port, frame in zip((1, 3), handshake(1, 3), strict=True):
        app.on_packet_in(packet_in(datapath, port, frame))
    (opened,) = events
    assert {flow.id for flow in opened.flows} == {flow.id for flow in app.flowdb.index.flows()}


def test_packets_of_other_apps_and_malformed_frames_are_ignored(app, caplog):
    datapath = FakeDatapath()
    app.on_packet_in(packet_in(datapath, 1, arp(1, 1, 3), cookie=1))
    for _ in range(3):
        app.on_packet_in(packet_in(datapath, 1, b"\0" * 5))
    assert datapath.sent == []
    assert app.core.malformed == 3


def test_connections_that_are_not_kept_are_counted_and_logged(app, caplog):
    datapath = FakeDatapath()
    come(app, datapath, 1, 3)
    app.core.connections._places.places = 1
    for sport in range(1000, 1005):
        for port_no, frame in zip((1, 3), handshake(1, 3, sport=sport), strict=True):
            app.on_packet_in(packet_in(datapath, port_no, frame))
        app.on_tick(None)
    assert app.metrics.registry.get_sample_value("weir_fabric_connections_refused_total") == 4
    lines = [record.getMessage() for record in caplog.records if "not kept" in record.getMessage()]
    assert lines == ["1 connections and SYNs were not kept so far: see [fabric] max_connections"]


@pytest.mark.parametrize("match", [{}, {"in_port": (1, 1)}], ids=["none", "masked"])
def test_a_frame_that_names_no_port_is_counted_and_dropped(app, match):
    datapath = FakeDatapath()
    frame = event(datapath, data=arp(1, 1, 3), cookie=FABRIC_COOKIE, match=match, table_id=2)
    app.on_packet_in(frame)
    assert (app.core.malformed, len(app.core.network.hosts), datapath.sent) == (1, 0, [])


def test_refusals_are_counted_for_each_port_and_logged_once(app, caplog):
    datapath = FakeDatapath()
    come(app, datapath, 1, 2)
    for _ in range(1000):
        app.on_packet_in(packet_in(datapath, 1, arp(1, 1, 3)))
    labels = {"dpid": "0000000000000001", "port_no": "1", "reason": "packet-ins"}
    assert app.metrics.registry.get_sample_value("weir_fabric_refused_total", labels) > 500
    assert app.metrics.registry.get_sample_value("weir_fabric_hosts") == 1
    lines = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert lines == [
        "port 0000000000000001:1: refused: packet-ins above [fabric] port_packet_ins_per_s",
    ]


def test_error_messages_of_a_switch_are_logged_once_a_second(app, caplog):
    """A hostile switch sends as many as it likes, and another one has lines of its own."""
    for dpid in (1, 2):
        datapath = FakeDatapath(dpid)
        for xid in range(100, 1100):
            app.on_error(event(datapath, xid=xid, type=1, code=2))
    lines = [record.getMessage() for record in caplog.records if "refuses" in record.getMessage()]
    assert lines == [f"switch {dpid:016x} refuses message 0x64: type 1 code 2" for dpid in (1, 2)]


def test_a_host_that_is_gone_loses_its_entries_and_its_row(app, tmp_path):
    datapath = FakeDatapath()
    come(app, datapath, 1, 2)
    app.on_packet_in(packet_in(datapath, 2, arp(1, 2, 3)))
    datapath.sent.clear()
    start_ns = app.flowdb.clock.now_ns()
    for second in range(1, 12):
        app.flowdb.clock.now_ns = lambda second=second: start_ns + second * 10**9
        app.on_tick(None)
    (deleted,) = [mod for mod in datapath.flow_mods() if mod.command == 4]
    assert deleted.match == {"eth_dst": mac(2)}
    app.flowdb.close()
    assert rows(tmp_path / "weir.db", HostRow) == []


@pytest.mark.parametrize("name", ["1", "x:1", "1:x", "1:0", f"{1 << 64:x}:1"])
def test_the_name_of_a_port_in_the_settings_is_checked(name):
    with pytest.raises(ValidationError, match="is no port"):
        FabricSettings(dhcp_ports=(name,))


def test_settings_name_ports():
    options = FabricSettings(dhcp_ports=("000000000000000a:3",), uplinks=("b:4",)).options
    assert (options.dhcp_ports, options.hosts.uplinks) == ({PortKey(10, 3)}, {PortKey(11, 4)})


def test_a_deleted_port_removes_its_hosts(app, tmp_path):
    datapath = FakeDatapath()
    come(app, datapath, 1, 2)
    app.on_packet_in(packet_in(datapath, 2, arp(1, 2, 3)))
    datapath.sent.clear()
    gone = of_port(datapath, 2)
    app.on_port_status(event(datapath, reason=datapath.ofproto.OFPPR_DELETE, desc=gone))
    assert len(app.core.network.hosts) == 0
    (deleted,) = [mod for mod in datapath.flow_mods() if mod.command == 4]
    assert (deleted.match, deleted.table_id) == ({"eth_dst": mac(2)}, 3)
    app.flowdb.close()
    assert rows(tmp_path / "weir.db", HostRow) == []
    assert {row.port_no: row.up for row in rows(tmp_path / "weir.db", PortRow)} == {1: True, 2: False}


@pytest.mark.parametrize("version", [4, 6])
def test_the_ports_that_a_switch_lost_while_it_was_away_are_recorded_as_down(app, tmp_path, version):
    datapath = FakeDatapath(version=version)
    come(app, datapath, 1, 2, 3)
    app.on_switch_gone(SimpleNamespace(datapath=datapath))
    again = FakeDatapath(version=version)
    app.on_switch(event(again))
    more, added = again.ofproto.OFPMPF_REPLY_MORE, again.ofproto.OFPPR_ADD
    app.on_ports(event(again, body=[of_port(again, 1)], flags=more))
    app.on_port_status(event(again, reason=added, desc=of_port(again, 3)))
    app.on_ports(event(again, body=[of_port(again, 4)], flags=0))
    app.flowdb.close()
    known = {row.port_no: row.up for row in rows(tmp_path / "weir.db", PortRow)}
    assert known == {1: True, 2: False, 3: True, 4: True}


def test_a_host_that_lost_its_address_to_another_one_has_none_in_the_database(app, tmp_path):
    datapath = FakeDatapath()
    come(app, datapath, 1)
    with_address_of_1 = bytearray(arp(1, 4, 3))
    with_address_of_1[28:32] = bytes([10, 0, 0, 1])
    for frame in (arp(1, 1, 3), bytes(with_address_of_1)):
        app.on_packet_in(packet_in(datapath, 1, frame))
    app.flowdb.close()
    found = {row.mac: row.ipv4 for row in rows(tmp_path / "weir.db", HostRow)}
    assert found == {mac(1): None, mac(4): "10.0.0.1"}


def test_a_port_that_is_down_is_not_flooded(app):
    datapath = FakeDatapath()
    come(app, datapath, 1, 2)
    down = of_port(datapath, 2, datapath.ofproto.OFPPS_LINK_DOWN)
    app.on_port_status(event(datapath, reason=datapath.ofproto.OFPPR_MODIFY, desc=down))
    assert app.core.network.edges == {1: (1,)}


@pytest.mark.parametrize("version", [4, 6])
def test_entries_of_an_earlier_controller_are_read_then_deleted(app, version):
    datapath = FakeDatapath(version=version)
    app.on_switch(event(datapath))
    left = [
        FlowEntries().to_host(mac(5), (4,), 0),
        *FlowEntries().ports([7], [7], [4]),
        *FlowEntries().permanent(),
    ]
    left.append(FlowEntries().known_host(mac(5), 4))
    body = [messages.add(datapath, entry, 77) for entry in left]
    foreign = messages.add(datapath, FlowEntries().to_host(mac(6), (4,), 0), 78)
    foreign.cookie = 9
    app.on_entries(event(datapath, body=[*body, foreign], xid=1, flags=0))
    app.on_ports(event(datapath, body=[of_port(datapath, number) for number in (4, 7)], flags=0))
    app.flowdb.clock.now_ns = lambda now_ns=app.flowdb.clock.now_ns: now_ns() + 10**9
    datapath.sent.clear()
    app.on_tick(None)
    assert {host.mac: host.port for host in app.core.network.hosts} == {mac(5): PortKey(1, 4)}
    assert app.core.network.edges == {1: (4,)}, "behind port 7 may be a switch that is not back yet"
    app.flowdb.clock.now_ns = lambda now_ns=app.flowdb.clock.now_ns: now_ns() + 40 * 10**9
    app.on_tick(None)
    swept = [m for m in datapath.sent if m.msg_type == FLOW_MOD and m.command == 3]
    assert [(m.cookie, m.cookie_mask, m.table_id) for m in swept] == [(FABRIC_COOKIE | 77, 2**64 - 1, 0xFF)]


@pytest.mark.parametrize(
    ("own", "edges"), [([False, True], ()), ([False, False], (5,))], ids=["kept", "started anew"]
)
def test_a_port_that_was_a_link_stays_one_if_the_switch_kept_its_entries(app, own, edges):
    one, two = connect_two(app)
    for datapath in (one, two):
        app.on_switch_gone(SimpleNamespace(datapath=datapath))
    again = FakeDatapath(1)
    app.on_switch(event(again))
    asked = next(m for m in again.sent if type(m).__name__ == "OFPFlowStatsRequest")
    assert again.sent.index(asked) < next(
        at for at, m in enumerate(again.sent) if m.msg_type == FLOW_MOD and m.command == 0
    ), "the reply has only entries of earlier sessions"
    entry = messages.add(again, FlowEntries().to_host(mac(5), (4,), 0), app._generation)
    app.on_entries(event(again, body=[], xid=asked.xid + 1000, flags=0))  # the reply to another app
    for is_own, more in zip(own, (again.ofproto.OFPMPF_REPLY_MORE, 0), strict=True):
        app.on_entries(event(again, body=[entry] if is_own else [], xid=asked.xid, flags=more))
    app.on_ports(event(again, body=[of_port(again, 5)], flags=0))
    app.flowdb.clock.now_ns = lambda now_ns=app.flowdb.clock.now_ns: now_ns() + 10**9
    app.on_tick(None)
    assert app.core.network.edges == {1: edges}


def test_a_new_controller_starts_with_the_open_flows(app):
    datapath = FakeDatapath()
    for port, frame in zip((1, 3), handshake(1, 3), strict=True):
        app.on_packet_in(packet_in(datapath, port, frame))
    assert len(FabricApp(flowdb=app.flowdb).core.connections) == 1


def test_flow_ids_come_from_the_database(app):
    first, second = itertools.islice(iter(app.flowdb.next_id, None), 2)
    assert second == first + 1


def asked_for_reports(datapath):
    """The request for flow reports, and the barrier behind it."""
    (ask,) = [m for m in datapath.sent if hasattr(m, "wire_cls") and m.wire_cls is wire.FlowReportConfig]
    (barrier,) = [m for m in datapath.sent if type(m).__name__ == "OFPBarrierRequest"]
    return ask, barrier


def spared(datapath):
    """The hosts whose segments are not copied to the controller."""
    return [m.match for m in datapath.flow_mods() if (m.command, m.table_id, m.priority) == (0, 2, 90)]


@pytest.mark.parametrize("mode", ["proactive", "reactive"])
def test_a_switch_that_reports_flows_copies_no_segments_of_known_hosts(app, mode):
    app.core.network.entries.reactive = mode == "reactive"
    datapath = FakeDatapath()
    app.on_switch(event(datapath))
    app.on_packet_in(packet_in(datapath, 1, arp(1, 1, 3)))
    ask, barrier = asked_for_reports(datapath)
    assert ask.to_wire() == wire.FlowReportConfig(wire.FlowKinds(0x1E), 10, 1000)
    app.on_barrier(event(datapath, xid=barrier.xid))
    app.on_tick(None)
    assert spared(datapath) == ([{"in_port": 1, "eth_src": mac(1)}] if mode == "proactive" else [])
    record = wire.FlowRecord(
        wire.FlowKind.OPENED, ip_address("10.0.0.1"), ip_address("10.0.0.3"), 1000, 80, 3,
        scale_src=7, scale_dst=9, mss_src=1460, mss_dst=1460, first_ns=5, handshake_rtt_us=250,
    )  # fmt: skip
    app.on_flow_report(event(datapath, records=(record,), lost=0, roll_called=False, now_s=0))
    (flow,) = app.flowdb.index.flows()
    assert (flow.receiver_wscale, flow.sender_wscale, flow.handshake_rtt_us) == (9, 7, 250)


def test_other_events_run_during_a_long_flow_report(app, monkeypatch):
    """The app yields to other events after every few records."""
    datapath, known = FakeDatapath(), []
    app.on_switch(event(datapath))
    monkeypatch.setattr("fabric_app.app.hub.sleep", lambda _: known.append(len(app.flowdb.index)))
    record = wire.FlowRecord(
        wire.FlowKind.OPENED, ip_address("10.0.0.1"), ip_address("10.0.0.3"), 0, 80, 3, mss_dst=1460
    )
    records = tuple(record._replace(src_port=port) for port in range(1, 631))
    app.on_flow_report(event(datapath, records=records, lost=0, roll_called=False, now_s=0))
    assert len(app.flowdb.index) == 630
    assert max(later - earlier for earlier, later in itertools.pairwise([0, *known])) <= 16


def test_contradicting_reports_are_logged_more_and_more_rarely(app, caplog):
    datapath = FakeDatapath()
    app.on_switch(event(datapath))
    record = wire.FlowRecord(
        wire.FlowKind.OPENED, ip_address("10.0.0.1"), ip_address("10.0.0.3"), 1000, 80, 3, mss_src=1460
    )
    for mss in (0, 1000, 1001, 1002, 1003):
        report = {"records": (record._replace(mss_dst=mss),), "lost": 0, "roll_called": False, "now_s": 0}
        app.on_flow_report(event(datapath, **report))
    said = [one.getMessage() for one in caplog.records if "another MSS" in one.getMessage()]
    assert [text.rpartition("(")[2] for text in said] == ["number 1)", "number 2)", "number 4)"]
    assert "switch 0000000000000001 reports flow 10.0.0.1:1000>10.0.0.3:80" in said[0]


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("lost", [0, 1])
def test_flows_missing_from_a_complete_roll_call_are_closed(app, version, lost, monkeypatch):
    events = []
    monkeypatch.setattr(app, "send_event_to_observers", events.append)
    datapath = FakeDatapath(version=version)
    for port, frame in zip((1, 3), handshake(1, 3), strict=True):
        app.on_packet_in(packet_in(datapath, port, frame))
    app.flowdb.clock.now_ns = lambda now_ns=app.flowdb.clock.now_ns: now_ns() + 2 * 10**9
    app.on_switch(event(datapath))
    app.on_flow_report(event(datapath, records=(), lost=lost, roll_called=True, now_s=0))
    assert len(app.flowdb.index) == 2 * lost
    closed = [(one.flow.key.src, one.reason) for one in events if isinstance(one, EventFlowClosed)]
    assert closed == ([] if lost else [("10.0.0.1", "missing"), ("10.0.0.3", "missing")])


@pytest.mark.parametrize("version", [4, 6])
def test_flows_that_ended_in_a_lost_report_are_closed_after_a_new_roll_call(app, version, caplog):
    datapath = FakeDatapath(version=version)
    app.on_switch(event(datapath))
    app.on_flow_report(event(datapath, records=(), lost=0, roll_called=True, now_s=0))
    record = wire.FlowRecord(
        wire.FlowKind.OPENED, ip_address("10.0.0.1"), ip_address("10.0.0.3"), 1000, 80, 3, mss_dst=1460
    )
    records = tuple(record._replace(src_port=port) for port in (1000, 1001))
    app.on_flow_report(event(datapath, records=records, lost=0, roll_called=False, now_s=0))
    app.on_tick(None)
    datapath.sent.clear()
    app.on_flow_report(event(datapath, records=(), lost=1, roll_called=False, now_s=0))
    assert 0.1 <= app.tick_interval_s() <= 1.0
    app.on_tick(None)
    assert datapath.sent == [], "not at once: the switch may be overloaded"
    app.flowdb.clock.now_ns = lambda now_ns=app.flowdb.clock.now_ns: now_ns() + 2 * 10**9
    app.on_tick(None)
    ask, _ = asked_for_reports(datapath)
    assert ask.to_wire().kinds == wire.FlowKinds(0x1E)
    alive = record._replace(kind=wire.FlowKind.ACTIVE)
    app.on_flow_report(event(datapath, records=(alive,), lost=0, roll_called=True, now_s=0))
    assert [flow.key.src_port for flow in app.flowdb.index.flows()] == [1000]
    assert "switch 0000000000000001 lost 1 flow reports (number 1)" in caplog.text


@pytest.mark.parametrize("ahead_s", [-7 * 3600, 0, 7 * 3600])
def test_the_age_of_a_flow_does_not_depend_on_the_switch_s_clock(app, ahead_s):
    datapath = FakeDatapath()
    app.on_switch(event(datapath))
    now_ns = app.flowdb.clock.now_ns()
    switch_now_ms = (now_ns + ahead_s * 10**9) // 10**6
    record = wire.FlowRecord(
        wire.FlowKind.ACTIVE, ip_address("10.0.0.1"), ip_address("10.0.0.3"), 1000, 80, 3, mss_dst=1460,
        first_ns=switch_now_ms * 10**6 - 60 * 10**9, last_ns=switch_now_ms * 10**6 - 10**9,
    )  # fmt: skip
    report = {"lost": 0, "now_s": switch_now_ms // 1000, "now_ms": switch_now_ms % 1000}
    app.on_flow_report(event(datapath, records=(record,), roll_called=False, **report))
    (flow,) = app.flowdb.index.flows()
    assert flow.opened_ns == pytest.approx(now_ns - 60 * 10**9, abs=10**9)
    assert flow.last_active_ns == pytest.approx(now_ns - 10**9, abs=10**9)


def test_a_switch_without_flow_reports_keeps_copying_segments(app, caplog):
    datapath = FakeDatapath()
    app.on_switch(event(datapath))
    app.on_packet_in(packet_in(datapath, 1, arp(1, 1, 3)))
    ask, barrier = asked_for_reports(datapath)
    app.on_error(event(datapath, xid=ask.xid, type=1, code=3))
    app.on_barrier(event(datapath, xid=barrier.xid))
    app.on_tick(None)
    assert spared(datapath) == []
    assert "refuses" not in caplog.text


def connect_two(app):
    """Two switches, with a link between their ports 5."""
    one, two = FakeDatapath(1), FakeDatapath(2)
    for datapath in (one, two):
        app.on_switch(event(datapath))
        app.on_ports(event(datapath, body=[of_port(datapath, 5)], flags=0))
    cable = {one: two, two: one}
    heard = [(cable[d], m.data) for d in (one, two) for m in d.sent if m.msg_type == PACKET_OUT]
    for datapath, frame in heard:
        app.on_packet_in(packet_in(datapath, 5, frame))
    return one, two


def test_links_are_recorded_in_the_database(app, tmp_path):
    one, two = connect_two(app)
    own_probe = next(m.data for m in one.sent if m.msg_type == PACKET_OUT)
    app.on_packet_in(packet_in(one, 5, own_probe))
    app.on_tick(None)
    app.on_switch_gone(SimpleNamespace(datapath=FakeDatapath(2)))
    app.on_switch_gone(SimpleNamespace(datapath=two))
    app.flowdb.close()
    found = {(row.src_dpid, row.dst_dpid, row.up) for row in rows(tmp_path / "weir.db", LinkRow)}
    assert found == {(1, 2, False), (2, 1, False)}
    assert app.core.network.discovery.forged == 1


def test_a_command_turns_all_switches_off_and_waits_for_their_answers(app, monkeypatch):
    datapaths = [FakeDatapath(dpid) for dpid in (1, 2, 3)]
    for datapath in datapaths:
        app.on_switch(event(datapath))
        datapath.sent.clear()
    asked, answered, now = [Command(9, "off", {}, "ann")], [], [SECOND_NS]
    monkeypatch.setattr(app.flowdb, "take_commands", lambda _: [asked.pop(0)] if asked else [])
    monkeypatch.setattr(app.flowdb, "command_done", lambda *done: answered.append(done[1:]))
    monkeypatch.setattr(app, "_now_ns", lambda: now[0])
    app.on_tick(None)
    requests = [next(one for one in datapath.sent if is_switch(one)) for datapath in datapaths]
    assert all(wire.decode_message(bytes(one.buf)).off for one in requests)
    app.on_port_config(event(datapaths[0], xid=requests[0].xid))
    app.on_error(event(datapaths[1], xid=requests[1].xid, type=1, code=1))
    app.on_tick(None)
    assert answered == [], "the third switch has not answered"
    now[0] += ANSWER_NS
    app.on_tick(None)
    ((succeeded, outcome),) = answered
    assert not succeeded
    assert outcome == (
        "off at 1 connected switches (0000000000000001); refused by 1 connected switches (0000000000000002), "
        "which runs no agent or an older one; no answer from 1 connected switches (0000000000000003)"
    )


def is_switch(message):
    if message.msg_type != 4:
        return False
    decoded = wire.decode_message(bytes(message.buf))
    return isinstance(decoded, wire.PortConfig) and decoded.flags == wire.PortConfigFlags.SWITCH
