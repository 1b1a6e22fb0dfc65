"""Hosts, ARP and connections of one switch."""

import itertools

import pytest

from fabric_app.connections import Closed, Connections, Opened
from fabric_app.core import Fabric, Options
from fabric_app.core_types import Learned, Put, Send
from fabric_app.frames import PROBE_MAC, Arp, MalformedFrame, Neighbour, neighbour_advertisement, parse
from fabric_app.host_tracking import HostLimits
from fabric_app.hosts import Host, Hosts
from fabric_app.refusals import Reason, Refused
from flowdb.flow import Hop, PortKey
from tests.support.openflow.scripted_switch import (
    ACK,
    FIN,
    RST,
    SYN,
    arp,
    dhcp_ack,
    ethernet,
    handshake,
    mac,
    segment,
    solicitation,
    syn_options,
)

AT = 7
"""The one switch."""


def port(number):
    return PortKey(AT, number)


@pytest.fixture
def fabric():
    """One switch whose ports 1 to 4 have settled."""
    options = Options(hosts=HostLimits(max_hosts=10), dhcp_ports=frozenset({port(2)}), max_connections=4)
    fabric = Fabric(itertools.count(1).__next__, b"k" * 32, options)
    fabric.switch_up(AT, 0)
    for number in (1, 2, 3, 4):
        fabric.port_up(port(number), 0)
    fabric.on_tick(10**9)
    return fabric


def feed(fabric, *frames, now_ns=1000):
    """Frames with the port at which each arrives. Returns all decisions except learned hosts and entries."""
    decisions = [d for number, frame in frames for d in fabric.on_packet(frame, port(number), now_ns)]
    return [decision for decision in decisions if not isinstance(decision, Learned | Put)]


def connect(fabric, **kwargs):
    syn, syn_ack = handshake(1, 3, **kwargs)
    (opened,) = feed(fabric, (1, syn), (3, syn_ack))
    return opened.flows


def test_arp_for_an_unknown_host_goes_to_edge_ports_and_is_answered_later(fabric):
    question = arp(1, 1, 3)
    learned, put, asked = fabric.on_packet(question, port(1), 0)
    assert learned == Learned(Host(mac(1), port(1), "10.0.0.1"))
    assert (put.dpid, [entry.out for entry in put.added]) == (AT, [(1,)])
    assert asked == Send(AT, (2, 3, 4), question)
    assert feed(fabric, (3, arp(2, 3, 1, mac(1)))) == []
    (answer,) = feed(fabric, (1, question))
    assert (answer.dpid, answer.ports) == (AT, (1,))
    assert parse(answer.frame).content == Arp(2, mac(3), "10.0.0.3", "10.0.0.1")


def test_an_arp_probe_is_passed_on_because_the_owner_of_an_address_may_be_gone(fabric):
    feed(fabric, (3, arp(2, 3, 1, mac(1))))
    probe = bytearray(arp(1, 2, 3))
    probe[28:32] = bytes(4)
    assert feed(fabric, (2, bytes(probe))) == [Send(AT, (1, 3, 4), bytes(probe))]


def test_neighbour_discovery_works_like_arp(fabric):
    asked = solicitation(1, "fe80::1", "fe80::3")
    assert feed(fabric, (1, asked)) == [Send(AT, (2, 3, 4), asked)]
    feed(fabric, (3, neighbour_advertisement(mac(3), "fe80::3", mac(1), "fe80::1")))
    (answer,) = feed(fabric, (1, asked))
    assert answer.ports == (1,)
    assert parse(answer.frame).content == Neighbour(136, "fe80::3", "fe80::3")
    assert parse(answer.frame).src_mac == mac(3)
    probe = solicitation(2, "::", "fe80::3")
    assert feed(fabric, (2, probe)) == [Send(AT, (1, 3, 4), probe)], "the owner defends its address itself"
    to_one = bytes.fromhex(mac(3).replace(":", "")) + asked[6:]
    assert feed(fabric, (1, to_one)) == []


def test_a_dhcp_ack_teaches_an_address(fabric):
    feed(fabric, (1, arp(1, 1, 9)), (2, dhcp_ack(1, "10.0.0.77")))
    assert fabric.network.hosts.with_ip("10.0.0.77").mac == mac(1)
    feed(fabric, (2, dhcp_ack(9, "10.0.0.78")))
    assert fabric.network.hosts.with_ip("10.0.0.78") is None, "a host that never sent is nowhere"


def test_a_dhcp_ack_from_a_port_that_is_not_trusted_teaches_nothing(fabric):
    refused = feed(fabric, (1, arp(1, 1, 9)), (3, dhcp_ack(1, "10.0.0.77")))[-1]
    assert fabric.network.hosts.with_ip("10.0.0.77") is None
    assert (refused.port, refused.reason) == (port(3), Reason.DHCP)


def test_a_lease_does_not_take_an_address_that_answers_elsewhere(fabric):
    feed(fabric, (1, arp(1, 1, 9)), (3, arp(1, 3, 9)), (2, dhcp_ack(1, "10.0.0.3")))
    (asked,) = [d for d in fabric.on_tick(2 * 10**9) if isinstance(d, Send) and d.ports == (3,)]
    assert parse(asked.frame).content == Arp(1, PROBE_MAC, "0.0.0.0", "10.0.0.3")
    feed(fabric, (3, arp(2, 3, 0, PROBE_MAC)), now_ns=2 * 10**9)
    fabric.on_tick(4 * 10**9)
    assert fabric.network.hosts.with_ip("10.0.0.3").mac == mac(3)


def test_packet_ins_of_a_port_are_limited_and_other_ports_are_served(fabric):
    question = arp(1, 1, 200)
    asked = feed(fabric, *[(1, question)] * 1000)
    sent = [decision for decision in asked if isinstance(decision, Send)]
    refused = [decision for decision in asked if isinstance(decision, Refused)]
    assert (len(sent), len(refused)) == (400, 600)
    assert {(each.port, each.reason) for each in refused} == {(port(1), Reason.PACKET_INS)}
    assert [bool(each.text) for each in refused] == [True] + [False] * 599
    other = arp(1, 2, 200)
    assert feed(fabric, (2, other)) == [Send(AT, (1, 3, 4), other)]
    assert len(connect(fabric)) == 2, "segments have a limit of their own"


def test_the_answer_to_a_probe_is_heard_in_a_flood(fabric):
    feed(fabric, (1, arp(1, 1, 200)))
    now_ns = 7 * 10**9
    (probe,) = [d for d in fabric.on_tick(now_ns) if isinstance(d, Send) and parse(d.frame).dst_mac == mac(1)]
    assert probe.ports == (1,)
    feed(fabric, *[(1, arp(1, 9, 200))] * 1000, (1, arp(2, 1, 0, PROBE_MAC)), now_ns=now_ns)
    for second in range(8, 20):
        fabric.on_tick(second * 10**9)
    assert [host.mac for host in fabric.network.hosts] == [mac(1)]


def test_an_announcement_in_doubt_is_passed_on_when_the_address_has_moved(fabric):
    feed(fabric, (3, arp(1, 3, 9)))
    taken = bytearray(arp(1, 3, 3))
    taken[6:12] = taken[22:28] = bytes.fromhex("0000000000aa")
    assert feed(fabric, (1, bytes(taken)), now_ns=10**9) == []
    sent = [d for tenth in range(10, 26) for d in fabric.on_tick(tenth * 10**8) if isinstance(d, Send)]
    assert Send(AT, (2, 3, 4), bytes(taken)) in sent
    assert fabric.network.hosts.with_ip("10.0.0.3").mac == "00:00:00:00:00:aa"


def test_segments_of_a_host_beyond_the_limit_open_no_flow():
    options = Options(hosts=HostLimits(port_hosts=1), reactive=True)
    fabric = Fabric(itertools.count(1).__next__, b"k" * 32, options)
    fabric.switch_up(AT, 0)
    fabric.port_up(port(1), 0)
    fabric.port_up(port(3), 0)
    fabric.on_tick(10**9)
    feed(fabric, (1, arp(1, 1, 9)), (3, arp(1, 3, 9)))
    syn, _ = handshake(2, 3)
    (refused,) = fabric.on_packet(syn, port(1), 10**9, waits=True)
    assert (refused.port, refused.reason) == (port(1), Reason.HOSTS)


def test_a_host_that_asks_for_its_own_address_is_not_answered(fabric):
    own = arp(1, 3, 3)
    assert feed(fabric, (3, own), (3, own)) == [Send(AT, (1, 2, 4), own)] * 2


def test_arp_with_a_foreign_sender_mac_teaches_no_address(fabric):
    forged = bytearray(arp(1, 3, 9))
    forged[6:12] = bytes.fromhex("0000000000aa")
    feed(fabric, (4, bytes(forged)))
    assert fabric.network.hosts.with_ip("10.0.0.3") is None


def test_a_host_that_moves_is_found_at_its_new_port():
    hosts = Hosts()
    assert hosts.learn(mac(1), port(1), "10.0.0.1") == Host(mac(1), port(1), "10.0.0.1")
    assert hosts.learn(mac(1), port(1)) is None
    assert hosts.learn(mac(1), port(2)) == Host(mac(1), port(2), "10.0.0.1")
    assert hosts.learn(mac(1), port(2), "fe80::1") == Host(mac(1), port(2), "10.0.0.1", "fe80::1")
    assert hosts.with_ip("10.0.0.1").port == port(2)
    assert hosts.learn(mac(2), port(3), "10.0.0.1") == Host(mac(2), port(3), "10.0.0.1")
    assert hosts.with_ip("10.0.0.1").mac == mac(2)
    assert hosts.get(mac(1)) == Host(mac(1), port(2), None, "fe80::1")
    assert [host.mac for host in hosts.forget_port(port(2))] == [mac(1)]
    assert hosts.with_ip("fe80::1") is None
    assert hosts.with_ip("10.0.0.1").mac == mac(2)


def test_the_addresses_of_a_host_are_bounded():
    hosts = Hosts()
    for number in range(40):
        hosts.learn(mac(1), port(1), f"10.0.1.{number}")
    assert hosts.with_ip("10.0.1.23") is None
    assert hosts.with_ip("10.0.1.24").mac == hosts.with_ip("10.0.1.39").mac == mac(1)
    assert hosts.learn(mac(1), port(1), "10.0.1.30") is None


def test_hosts_are_bounded_and_have_unicast_addresses():
    hosts = Hosts(max_hosts=2)
    for number in range(5):
        hosts.learn(mac(number), port(1))
    assert (len(hosts), hosts.full) == (2, True)
    assert hosts.learn("ff:ff:ff:ff:ff:ff", port(1)) is None


def test_a_connection_is_two_flows_that_date_from_the_syn(fabric):
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


def test_windows_are_scaled_only_if_both_sides_have_the_option(fabric):
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


def test_a_refused_connection_opens_no_flow(fabric):
    syn, syn_ack = handshake(1, 3)
    refused = segment(3, 1, RST | ACK, sport=80, dport=1000)
    assert feed(fabric, (1, syn), (3, refused), (3, syn_ack)) == []


def test_a_syn_ack_without_its_syn_opens_no_flow(fabric):
    syn, _ = handshake(1, 3)
    wrong = segment(3, 1, SYN | ACK, 500, 77, syn_options(), 80, 1000)
    assert feed(fabric, (3, wrong), (1, syn), (3, wrong)) == []


def test_messages_of_two_switches_may_arrive_in_any_order(fabric):
    syn, syn_ack = handshake(1, 3)
    fin = segment(1, 3, FIN | ACK)
    assert feed(fabric, (3, syn_ack)) == []
    (opened,) = feed(fabric, (1, syn))
    assert [flow.key.src_port for flow in opened.flows] == [1000, 80]
    assert feed(fabric, (3, syn_ack), (1, syn)) == []
    syn, syn_ack = handshake(1, 3, sport=1001)
    feed(fabric, (1, syn), (1, segment(1, 3, FIN | ACK, sport=1001)))
    opened, closed = feed(fabric, (3, syn_ack))
    assert closed == Closed(opened.flows[0], "fin")
    assert feed(fabric, (1, fin)) != []


def test_a_new_connection_with_the_same_5_tuple_replaces_the_flows(fabric):
    old = connect(fabric)
    syn, syn_ack = handshake(1, 3, client_seq=9000, server_seq=9500)
    *closed, opened = feed(fabric, (1, syn), (3, syn_ack))
    assert closed == [Closed(flow, "replaced") for flow in old]
    assert isinstance(opened, Opened)


def test_the_memory_of_syns_is_bounded():
    connections = Connections(itertools.count(1).__next__, lambda *_: (), max_syns=10, max_connections=2)
    for sport in range(1000, 1100):
        connections.on_segment(parse(handshake(1, 3, sport=sport)[0]).content, port(1), 0)
    assert len(connections._syns) == 10
    answers = [parse(handshake(1, 3, sport=sport)[1]).content for sport in range(1000, 1100)]
    opened = [change for answer in answers for change in connections.on_segment(answer, port(3), 0)]
    assert len(opened) == len(connections) == 2
    assert connections.refused == 90 + 80 + 8, "SYNs, SYN-ACKs without them, connections"


def test_flows_of_an_earlier_controller_close(fabric):
    flows = connect(fabric)
    successor = Fabric(itertools.count(100).__next__, b"k" * 32, Options())
    successor.adopt(flows)
    assert feed(successor, (1, segment(1, 3, FIN | ACK))) == [Closed(flows[0], "fin")]


def test_malformed_frames_are_counted(fabric):
    with pytest.raises(MalformedFrame):
        fabric.on_packet(ethernet(mac(1), mac(2), 0x0800, b"\x45"), port(1), 0)
    assert fabric.malformed == 1
    assert len(fabric.network.hosts) == 0
