"""Hosts, ARP and connections of one switch."""

import itertools
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from fabric_app.connections import Changed, Closed, Connections, Opened
from fabric_app.core import Fabric, Flood, Learned, Send
from fabric_app.frames import Arp, MalformedFrame, parse
from fabric_app.hosts import Host, Hosts
from flowdb.flow import NS_PER_S, FlowState, Hop, PortKey
from openflow_ext.wire import SCALE_UNKNOWN, FlowKind, FlowRecord
from tests.unit.scripted_switch import ACK, FIN, RST, SYN, arp, ethernet, handshake, mac, segment, syn_options


@pytest.fixture
def fabric():
    return Fabric(7, itertools.count(1).__next__, max_hosts=10, max_connections=4)


def feed(fabric, *frames, now_ns=1000):
    """Frames with the port that each comes in by; returns all decisions but the hosts learned."""
    decisions = [d for port, frame in frames for d in fabric.on_packet(frame, port, now_ns)]
    return [decision for decision in decisions if not isinstance(decision, Learned)]


def connect(fabric, **kwargs):
    syn, syn_ack = handshake(1, 3, **kwargs)
    (opened,) = feed(fabric, (1, syn), (3, syn_ack))
    return opened.flows


def test_an_unknown_host_is_asked_for_by_flooding_and_then_answered_for(fabric):
    question = arp(1, 1, 3)
    assert fabric.on_packet(question, 1, 0) == [
        Learned(Host(mac(1), 1, "10.0.0.1")),
        Flood(1, question),
    ]
    assert feed(fabric, (3, arp(2, 3, 1, mac(1)))) == []
    (answer,) = feed(fabric, (1, question))
    assert isinstance(answer, Send)
    assert answer.port_no == 1
    assert parse(answer.frame).content == Arp(2, mac(3), "10.0.0.3", "10.0.0.1")


def test_a_host_that_asks_for_its_own_address_is_not_answered(fabric):
    own = arp(1, 3, 3)
    assert feed(fabric, (3, own), (3, own)) == [Flood(3, own), Flood(3, own)]


def test_arp_for_another_s_mac_teaches_no_address(fabric):
    forged = bytearray(arp(1, 3, 9))
    forged[6:12] = bytes.fromhex("0000000000aa")
    feed(fabric, (4, bytes(forged)))
    assert fabric.hosts.with_ip("10.0.0.3") is None


def test_a_host_moves():
    hosts = Hosts()
    assert hosts.learn(mac(1), 1, "10.0.0.1") == Host(mac(1), 1, "10.0.0.1")
    assert hosts.learn(mac(1), 1) is None
    assert hosts.learn(mac(1), 2) == Host(mac(1), 2, "10.0.0.1")
    assert hosts.learn(mac(1), 2, "fe80::1") == Host(mac(1), 2, "10.0.0.1", "fe80::1")
    assert hosts.with_ip("10.0.0.1").port_no == 2
    assert hosts.learn(mac(2), 3, "10.0.0.1") == Host(mac(2), 3, "10.0.0.1")
    assert hosts.with_ip("10.0.0.1").mac == mac(2)
    assert [host.mac for host in hosts.forget_port(2)] == [mac(1)]
    assert hosts.with_ip("fe80::1") is None
    assert hosts.with_ip("10.0.0.1").mac == mac(2)


def test_hosts_are_bounded_and_unicast():
    hosts = Hosts(max_hosts=2)
    for number in range(5):
        hosts.learn(mac(number), 1)
    assert (len(hosts), hosts.refused) == (2, 3)
    assert hosts.learn("ff:ff:ff:ff:ff:ff", 1) is None


def test_a_connection_is_two_flows_dated_from_the_syn(fabric):
    syn, syn_ack = handshake(1, 3, wscales=(9, 7))
    assert feed(fabric, (1, syn), now_ns=1000) == []
    assert feed(fabric, (1, syn), now_ns=2000) == []
    (opened,) = feed(fabric, (3, syn_ack), now_ns=3000)
    there, back = opened.flows
    assert (str(there.key), there.path) == ("10.0.0.1:1000>10.0.0.3:80", (Hop(7, 1, 3),))
    assert (str(back.key), back.path) == ("10.0.0.3:80>10.0.0.1:1000", (Hop(7, 3, 1),))
    assert (there.receiver_wscale, back.receiver_wscale) == (7, 9)
    assert {(f.opened_ns, f.mss_bytes) for f in opened.flows} == {(1000, 1400)}
    assert feed(fabric, (1, syn), (3, syn_ack)) == []


def test_without_the_option_on_both_sides_windows_are_not_scaled(fabric):
    assert {flow.receiver_wscale for flow in connect(fabric, wscales=(9, None))} == {0}


def test_each_fin_closes_its_sender_s_direction_once(fabric):
    there, back = connect(fabric)
    fin = segment(1, 3, FIN | ACK)
    assert feed(fabric, (1, fin), (1, fin)) == [Closed(there, "fin")]
    assert feed(fabric, (3, segment(3, 1, FIN | ACK, sport=80, dport=1000))) == [Closed(back, "fin")]
    assert len(fabric.connections) == 0
    assert feed(fabric, (1, segment(1, 3, RST))) == []


def test_rst_closes_both(fabric):
    there, back = connect(fabric)
    assert feed(fabric, (3, segment(3, 1, RST | ACK, sport=80, dport=1000))) == [
        Closed(there, "rst"),
        Closed(back, "rst"),
    ]


def test_a_refused_connection_never_opened(fabric):
    syn, syn_ack = handshake(1, 3)
    refused = segment(3, 1, RST | ACK, sport=80, dport=1000)
    assert feed(fabric, (1, syn), (3, refused), (3, syn_ack)) == []


def test_a_syn_ack_that_answers_nothing_opens_nothing(fabric):
    syn, _ = handshake(1, 3)
    wrong = segment(3, 1, SYN | ACK, 500, 77, syn_options(), 80, 1000)
    assert feed(fabric, (3, handshake(1, 3)[1]), (1, syn), (3, wrong)) == []


def test_a_5_tuple_used_anew_replaces_the_flows(fabric):
    old = connect(fabric)
    syn, syn_ack = handshake(1, 3, client_seq=9000, server_seq=9500)
    *closed, opened = feed(fabric, (1, syn), (3, syn_ack))
    assert closed == [Closed(flow, "replaced") for flow in old]
    assert isinstance(opened, Opened)


def test_a_syn_flood_is_bounded():
    connections = Connections(1, itertools.count(1).__next__, max_syns=10, max_connections=2)
    for sport in range(1000, 1100):
        connections.on_segment(parse(handshake(1, 3, sport=sport)[0]).content, 1, 0)
    assert len(connections._syns) == 10
    answers = [parse(handshake(1, 3, sport=sport)[1]).content for sport in range(1000, 1100)]
    opened = [change for answer in answers for change in connections.on_segment(answer, 3, 0)]
    assert len(opened) == len(connections) == 2
    assert connections.refused == 90 + 8


def test_adopted_flows_close(fabric):
    flows = connect(fabric)
    successor = Fabric(7, itertools.count(100).__next__, 10, 4)
    successor.adopt(flows)
    assert feed(successor, (1, segment(1, 3, FIN | ACK))) == [Closed(flows[0], "fin")]


def told(src, dst, out_port, **fields):
    """What switch 7 tells of the flow from host ``src``, port 1000, to host ``dst``, port 80."""
    ends = {"src": IPv4Address(f"10.0.0.{src}"), "dst": IPv4Address(f"10.0.0.{dst}")}
    ports = {"src_port": 1000, "dst_port": 80, "out_port": out_port}
    offers = {"scale_src": 9, "scale_dst": 7, "mss_src": 1460, "mss_dst": 1400}
    times = {"first_ns": 500, "last_ns": NS_PER_S + 500, "sent_bytes": 3000}
    return FlowRecord(FlowKind.ACTIVE, **ends | ports | offers | times | fields)


def told_back(**fields):
    """The other direction of ``told(1, 3, ...)``, which leaves by port 1."""
    return told(3, 1, 1, src_port=80, dst_port=1000, scale_src=7, scale_dst=9, **fields)


def test_a_flow_that_the_switch_tells_of_opens_as_old_as_it_is(fabric):
    now_ns = 2 * NS_PER_S
    (opened,) = fabric.on_records([told(1, 3, 3)], now_ns)
    (there,) = opened.flows
    assert (str(there.key), there.path[0].port) == ("10.0.0.1:1000>10.0.0.3:80", PortKey(7, 3))
    assert (there.opened_ns, there.mss_bytes) == (500, 1400)
    assert (there.receiver_wscale, there.sender_wscale) == (7, 9)
    assert (there.sent_bytes, there.rate_bps, there.state) == (3000, 24_000, FlowState.ACTIVE)
    opened, changed = fabric.on_records([told_back(), told(1, 3, 3), told_back()], now_ns)
    assert [flow.path for flow in opened.flows] == [(Hop(7, 3, 1),)]
    assert changed == Changed(replace(there, path=(Hop(7, 1, 3),)))
    assert feed(fabric, (1, segment(1, 3, FIN | ACK))) == [Closed(changed.flow, "fin")]


def test_of_a_connection_that_it_knows_the_switch_tells_nothing_new(fabric):
    flows = connect(fabric)
    assert fabric.on_records([told(1, 3, 3), told_back()], 0) == []
    feed(fabric, (1, segment(1, 3, FIN | ACK)))
    assert fabric.on_records([told(1, 3, 3)], 0) == [], "it was told before the FIN"
    successor = Fabric(7, itertools.count(100).__next__, 10, 4)
    successor.adopt(flows[:1])
    (opened,) = successor.on_records([told(1, 3, 3), told_back()], 2 * NS_PER_S)
    assert [flow.path for flow in opened.flows] == [(Hop(7, 3, 1),)]


def test_flows_that_are_told_of_are_bounded_alive_and_not_of_the_future(fabric):
    closed = told(1, 3, 3)._replace(kind=FlowKind.CLOSED)
    assert fabric.on_records([closed], 1000) == []
    records = [told(1, 3, 3, src_port=port, scale_dst=SCALE_UNKNOWN) for port in range(9)]
    events = fabric.on_records(records, 400)
    flows = [flow for event in events for flow in event.flows]
    assert len(flows) == len(fabric.connections) == 4
    assert fabric.connections.refused == 5
    assert {(flow.opened_ns, flow.receiver_wscale, flow.sender_wscale) for flow in flows} == {(400, 0, 0)}


def test_malformed_is_counted(fabric):
    with pytest.raises(MalformedFrame):
        fabric.on_packet(ethernet(mac(1), mac(2), 0x0800, b"\x45"), 1, 0)
    assert fabric.malformed == 1
    assert len(fabric.hosts) == 0
