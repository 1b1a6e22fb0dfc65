"""Hosts, ARP and connections of one switch."""

import itertools

import pytest

from fabric_app.connections import Closed, Connections, Opened
from fabric_app.core import Fabric, Flood, Learned, Send
from fabric_app.frames import Arp, MalformedFrame, parse
from fabric_app.hosts import Host, Hosts
from flowdb.flow import Hop
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


def test_malformed_is_counted(fabric):
    with pytest.raises(MalformedFrame):
        fabric.on_packet(ethernet(mac(1), mac(2), 0x0800, b"\x45"), 1, 0)
    assert fabric.malformed == 1
    assert len(fabric.hosts) == 0
