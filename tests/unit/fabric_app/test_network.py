"""The whole core over flow tables in software: discovery, routes, failures, ARP, both modes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_base.headers import ACK, FIN, RST
from fabric_app.connections import Changed, Closed, Opened
from fabric_app.core import Options
from fabric_app.core_types import LinkDown, LinkUp, Lost, Put
from fabric_app.frames import Arp, parse
from fabric_app.host_tracking import HostLimits
from fabric_app.hosts import Host
from fabric_app.paths import BUCKETS, bucket_of
from flowdb.flow import PortKey
from tests.support.controllers.fake_network import FakeNetwork, diamond, link, meet
from tests.support.openflow.scripted_switch import arp, ethernet, handshake, mac, segment

PROACTIVE, REACTIVE = Options(), Options(reactive=True)
MOVED_S = 1.5
"""A host that has moved is known at its new port by then."""


def pings(net: FakeNetwork, src: int, dst: int) -> bool:
    """A frame from one host arrives at the other one, and only there."""
    frame = ethernet(mac(src), mac(dst), 0x0800, segment(src, dst, ACK)[14:])
    return net.inject(net.hosts[src], frame) == [net.hosts[dst]]


def switches_of(net: FakeNetwork) -> set[int]:
    """The switches that the last frame crossed."""
    return {port.dpid for port in net.crossed}


def test_links_are_found_and_hosts_are_learned_only_at_edge_ports() -> None:
    net = diamond()
    assert {event.link for event in net.events if isinstance(event, LinkUp)} == net.links
    assert net.core.network.edges == {1: (1, 2), 2: (), 3: (), 4: (1, 2)}
    meet(net, 1, 2, 3, 4)
    assert {host.mac: host.port for host in net.core.network.hosts} == {
        mac(number): port for number, port in net.hosts.items()
    }


def test_hosts_at_a_port_that_becomes_a_link_are_lost() -> None:
    net = FakeNetwork({link(1, 11, 2, 11)}, [1, 2], {1: PortKey(1, 1), 2: PortKey(2, 1)})
    net.connect(1)
    net.run(1)
    net.inject(PortKey(1, 11), arp(1, 2, 200))
    net.connect(2)
    net.run(1)
    assert [event.host for event in net.events if isinstance(event, Lost)] == [
        Host(mac(2), PortKey(1, 11), "10.0.0.2")
    ]
    assert len(net.core.network.hosts) == 0


def test_a_broadcast_reaches_every_host_once_and_ends() -> None:
    net = diamond()
    dhcp = ethernet(mac(1), "ff:ff:ff:ff:ff:ff", 0x1234, bytes(50))
    assert sorted(net.inject(net.hosts[1], dhcp), key=str) == [PortKey(1, 2), PortKey(4, 1), PortKey(4, 2)]


def test_arp_is_forwarded_for_an_unknown_host_and_answered_for_a_known_one() -> None:
    net = diamond()
    assert sorted(net.inject(net.hosts[1], arp(1, 1, 3)), key=str) == [
        PortKey(1, 2), PortKey(4, 1), PortKey(4, 2),
    ]  # fmt: skip
    assert net.crossed == []
    assert net.inject(net.hosts[3], arp(2, 3, 1, mac(1))) == [net.hosts[1]]
    assert net.inject(net.hosts[2], arp(1, 2, 3)) == [net.hosts[2]]
    assert parse(net.delivered[0][1]).content == Arp(2, mac(3), "10.0.0.3", "10.0.0.2")
    assert net.crossed == []


def test_every_bucket_takes_the_core_s_path_in_both_directions() -> None:
    net = diamond()
    meet(net, 1, 3)
    middles = []
    for sport in range(1000, 1200):
        there, back = segment(1, 3, ACK, sport=sport), segment(3, 1, ACK, sport=80, dport=sport)
        key = parse(there).content.key
        path = net.core.network.path(key, net.hosts[1], net.hosts[3])
        assert net.inject(net.hosts[1], there) == [net.hosts[3]]
        assert [(port.dpid, port.port_no) for port in net.crossed] == [
            (hop.dpid, hop.out_port) for hop in path[:-1]
        ]
        assert net.inject(net.hosts[3], back) == [net.hosts[1]]
        assert {port.dpid for port in net.crossed} - {4} == {path[1].dpid}
        middles.append(path[1].dpid)
    assert 40 < middles.count(2) < 160


def test_flows_open_with_their_whole_path_and_close() -> None:
    net = diamond()
    meet(net, 1, 3)
    syn, syn_ack = handshake(1, 3)
    net.inject(net.hosts[1], syn)
    net.inject(net.hosts[3], syn_ack)
    (opened,) = [event for event in net.events if isinstance(event, Opened)]
    there, back = opened.flows
    assert [hop.dpid for hop in there.path] == [1, there.path[1].dpid, 4]
    assert [(hop.dpid, hop.in_port, hop.out_port) for hop in back.path] == [
        (hop.dpid, hop.out_port, hop.in_port) for hop in reversed(there.path)
    ]
    net.inject(net.hosts[1], segment(1, 3, FIN | ACK))
    assert [e.flow.key for e in net.events if isinstance(e, Closed)] == [there.key]


@pytest.mark.parametrize("options", [PROACTIVE, REACTIVE], ids=["proactive", "reactive"])
def test_a_cut_link_moves_its_flows_and_no_others(options: Options) -> None:
    net = diamond(options)
    meet(net, 1, 3)
    for sport in range(1000, 1040):
        for host, frame in zip((1, 3), handshake(1, 3, sport=sport), strict=True):
            net.inject(net.hosts[host], frame)
    before = {flow.key: flow.path for flow in net.core.connections}
    assert len(before) == 80
    net.events.clear()
    net.cut(link(1, 11, 2, 1))
    moved = {event.flow.key for event in net.events if isinstance(event, Changed)}
    assert moved == {key for key, path in before.items() if path[1].dpid == 2}
    assert 0 < len(moved) < 80
    for sport in range(1000, 1040):
        assert net.inject(net.hosts[1], segment(1, 3, ACK, sport=sport)) == [net.hosts[3]]
        assert net.crossed[0] == PortKey(1, 12)
    net.mend(link(1, 11, 2, 1))
    net.run(1)
    assert {flow.key: flow.path for flow in net.core.connections} == before


def test_a_link_that_fails_silently_is_detected() -> None:
    net = diamond()
    meet(net, 1, 3)
    dead = link(2, 2, 4, 11)
    net.cut(dead, silently=True)
    net.run(4)
    assert LinkDown(dead) in net.events
    assert all(net.inject(net.hosts[1], segment(1, 3, ACK, sport=s)) for s in range(1000, 1040))
    broadcast = ethernet(mac(1), "ff:ff:ff:ff:ff:ff", 0x1234, bytes(50))
    assert len(net.inject(net.hosts[1], broadcast)) == 3


def test_paths_avoid_a_disconnected_switch_and_keep_entries_that_only_it_serves() -> None:
    net = diamond()
    meet(net, 1, 3)
    net.disconnect(2)
    for sport in range(1000, 1020):
        net.inject(net.hosts[1], segment(1, 3, ACK, sport=sport))
        assert 2 not in switches_of(net)
    net.disconnect(3)
    net.run(40)
    assert pings(net, 1, 3), "the last way stays, for switches forward without a controller"
    broadcast = ethernet(mac(1), "ff:ff:ff:ff:ff:ff", 0x1234, bytes(50))
    net.inject(net.hosts[1], broadcast)
    net.connect(2, 3)
    net.run(2)
    assert pings(net, 3, 1)


def ring() -> FakeNetwork:
    """Three switches in a ring; one host at each, with the number of its switch."""
    links = {link(1, 12, 2, 11), link(1, 13, 3, 11), link(2, 13, 3, 12)}
    net = FakeNetwork(links, [1, 2, 3], {number: PortKey(number, 1) for number in (1, 2, 3)})
    net.connect()
    net.run(1)
    meet(net, 1, 2, 3)
    return net


@pytest.mark.parametrize("returning", [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
def test_entries_of_a_session_that_ended_go_when_they_are_no_longer_wanted(returning: tuple[int]) -> None:
    net = ring()
    (closed,) = {one for one in net.links if not {*one.ends} <= net.core.network.paths.graph.tree_ports}
    tree = sorted(net.links - {closed}, key=str)
    for dpid in net.switches:
        net.disconnect(dpid)
    net.run(1)
    net.cut(tree[0])
    for dpid in returning:
        net.connect(dpid)
        net.run(1)
    broadcast = ethernet(mac(1), "ff:ff:ff:ff:ff:ff", 0x1234, bytes(50))
    assert sorted(net.inject(net.hosts[1], broadcast), key=str) == [net.hosts[2], net.hosts[3]]
    wanted = {dpid: switch.table for dpid, switch in net.core.network._switches.items()}
    assert net.tables == wanted


def test_switches_that_return_one_by_one_make_no_loop_and_lose_no_way() -> None:
    net = ring()
    for dpid in net.switches:
        net.disconnect(dpid)
    broadcast = ethernet(mac(1), "ff:ff:ff:ff:ff:ff", 0x1234, bytes(50))
    for dpid in (2, 3, 1):
        net.connect(dpid)
        net.run(40)
        assert set(net.inject(net.hosts[1], broadcast)) <= {net.hosts[2], net.hosts[3]}
        assert len(net.delivered) <= 2
        assert all(pings(net, src, dst) for src in (1, 2, 3) for dst in (1, 2, 3) if src != dst)


def test_a_switch_that_is_started_anew_may_have_hosts_where_links_were() -> None:
    net = ring()
    for dpid in net.switches:
        net.disconnect(dpid)
    net.links, net.hosts = set(), {1: PortKey(1, 12), 2: PortKey(1, 13)}
    net.tables[1] = {}
    net.connect(1)
    net.run(1)
    assert net.core.network.edges == {1: (12, 13)}
    meet(net, 1, 2)
    assert pings(net, 1, 2)


def test_a_new_controller_learns_from_the_entries_in_the_switches() -> None:
    net = diamond()
    meet(net, 1, 2, 3, 4)
    old = net.tables
    successor = FakeNetwork(net.links, net.switches, net.hosts)
    successor.tables = {dpid: dict(table) for dpid, table in old.items()}
    broadcast = ethernet(mac(1), "ff:ff:ff:ff:ff:ff", 0x1234, bytes(50))
    for dpid in (2, 4, 1, 3):
        successor.connect(dpid)
        hosts = [(e.match[0][1], e.out[0]) for e in old[dpid].values() if e.priority == 100 and e.out]
        hosts = [(address, port) for address, port in hosts if isinstance(address, str)]
        links = [e.match[0][1] for e in old[dpid].values() if (e.table, e.priority) == (2, 150)]
        successor.core.network.inherit(dpid, hosts, links, {7})
        assert successor.inject(successor.hosts[1], segment(1, 3, ACK)) == [successor.hosts[3]]
        successor.run(1)
        assert successor.inject(successor.hosts[1], segment(1, 3, ACK)) == [successor.hosts[3]]
        assert len(successor.inject(successor.hosts[1], broadcast)) in (1, 3), "no loop, no storm"
    assert len(successor.core.network.hosts) == 4
    assert all(pings(successor, src, dst) for src in (1, 2) for dst in (3, 4))


def test_reactive_a_syn_waits_for_its_path_on_every_switch() -> None:
    net = diamond(REACTIVE)
    meet(net, 1, 3)
    syn, syn_ack = handshake(1, 3)
    key = parse(syn).content.key
    path = net.core.network.path(key, net.hosts[1], net.hosts[3])
    net.deaf = {path[-1].dpid}
    assert net.inject(net.hosts[1], syn) == []
    with_entries = {d for d, table in net.tables.items() if any(e.idle_s for e in table.values())}
    assert with_entries == {hop.dpid for hop in path}
    assert net.core.reactive_paths.on_done(4, 99) == []
    net.do(net.core.reactive_paths.on_done(4, 1))
    assert [at for at, _ in net.delivered] == [net.hosts[3]]
    assert net.inject(net.hosts[3], syn_ack) == [net.hosts[1]]
    assert len(net.core.connections) == 1
    for src, dst, ports in ((1, 3, {}), (3, 1, {"sport": 80, "dport": 1000})):
        net.inject(net.hosts[src], segment(src, dst, FIN | ACK, **ports))
    assert not any(e.idle_s for table in net.tables.values() for e in table.values())
    assert len(net.core.reactive_paths) == 0


def test_reactive_a_refused_connection_leaves_no_path() -> None:
    net = diamond(REACTIVE)
    meet(net, 1, 3)
    before = {dpid: dict(table) for dpid, table in net.tables.items()}
    syn, _ = handshake(1, 3)
    assert net.inject(net.hosts[1], syn) == [net.hosts[3]]
    assert len(net.core.reactive_paths) == 1
    refused = segment(3, 1, RST | ACK, sport=80, dport=1000)
    assert net.inject(net.hosts[3], refused) == [net.hosts[1]]
    assert (len(net.core.reactive_paths), net.tables) == (0, before)


def test_reactive_a_syn_whose_entries_are_gone_is_still_forwarded() -> None:
    net = diamond(REACTIVE)
    meet(net, 1, 3)
    syn, _ = handshake(1, 3)
    assert net.inject(net.hosts[1], syn) == [net.hosts[3]]
    for table in net.tables.values():
        for entry in [entry for entry in table.values() if entry.idle_s]:
            del table[entry.place]
    assert net.inject(net.hosts[1], syn) == [net.hosts[3]]
    middle = net.crossed[0]
    peer = next(end for one in net.links if middle in one.ends for end in one.ends if end != middle)
    for entry in [entry for entry in net.tables[peer.dpid].values() if entry.idle_s]:
        del net.tables[peer.dpid][entry.place]
    assert net.inject(net.hosts[1], syn) == [net.hosts[3]]


def test_entries_follow_a_host_that_moves() -> None:
    net = diamond()
    meet(net, 1, 3)
    net.hosts = {1: PortKey(4, 2), 3: PortKey(4, 1)}
    net.inject(PortKey(4, 2), arp(1, 1, 200))
    net.run(MOVED_S)
    assert pings(net, 3, 1)


def opened(net: FakeNetwork) -> None:
    """Hosts 1 and 3 open a connection."""
    for number, frame in zip((1, 3), handshake(1, 3), strict=True):
        assert net.inject(net.hosts[number], frame)


def test_a_flow_that_opened_without_a_path_has_one_when_links_are_found() -> None:
    net = diamond()
    meet(net, 1, 3)
    for one in net.links:
        net.cut(one)
    net.run(1)
    for number, frame in zip((1, 3), handshake(1, 3), strict=True):
        net.inject(net.hosts[number], frame)
    assert {flow.path for flow in net.core.connections} == {()}
    for one in net.links:
        net.mend(one)
    net.run(3)
    for flow in net.core.connections:
        assert flow.path == net.core.network.path_of_hosts(flow.key) != ()
        assert flow in [event.flow for event in net.events if isinstance(event, Changed)]


@pytest.mark.parametrize("moves", ["from a port that is down", "from a silent port", "from a removed port"])
def test_reactive_a_connection_follows_a_host_that_moves(moves: str) -> None:
    net = diamond(REACTIVE)
    meet(net, 1, 3)
    opened(net)
    before = net.hosts[1]
    net.hosts = {1: PortKey(4, 2), 3: PortKey(4, 1)}
    if moves == "from a port that is down":
        net.do(net.core.port_down(before, net.now_ns))
    elif moves == "from a removed port":
        net.do(net.core.port_gone(before, net.now_ns))
    net.inject(net.hosts[1], arp(1, 1, 200))
    net.run(MOVED_S)
    assert net.inject(net.hosts[3], segment(3, 1, ACK, sport=80, dport=1000)) == [net.hosts[1]]
    assert net.inject(net.hosts[1], segment(1, 3, ACK)) == [net.hosts[3]]
    assert not any(entry.idle_s for table in net.tables.values() for entry in table.values())


def test_a_machine_that_its_hypervisor_announces_by_rarp_moves() -> None:
    net = diamond()
    meet(net, 1, 3)
    net.hosts = {1: PortKey(4, 2), 3: PortKey(4, 1)}
    net.inject(PortKey(4, 2), ethernet(mac(1), "ff:ff:ff:ff:ff:ff", 0x8035, bytes(46)))
    net.run(MOVED_S)
    assert pings(net, 3, 1)


def test_a_host_that_answers_keeps_its_traffic_when_another_port_uses_its_addresses() -> None:
    net = diamond()
    meet(net, 1, 2, 3)
    for _ in range(20):
        net.inject(PortKey(4, 2), arp(1, 1, 200))
        net.run(0.2)
        assert pings(net, 3, 1)


def test_hosts_without_arp_are_learned_from_their_first_segments_only() -> None:
    net = diamond()
    for dpid in net.switches:
        net.core.network.reports_flows(dpid)
    net.run(0.1)
    syn, syn_ack = handshake(1, 3)
    net.inject(net.hosts[1], syn)
    assert net.told == [(net.hosts[1], syn)]
    net.inject(net.hosts[3], syn_ack)
    for sport in (1000, 1001):
        syn, syn_ack = handshake(1, 3, sport=sport)
        assert net.inject(net.hosts[1], syn) == [net.hosts[3]]
        assert net.inject(net.hosts[3], syn_ack) == [net.hosts[1]]
        assert net.told == []


def test_a_host_that_moves_twice_is_learned_from_its_segments() -> None:
    net = diamond()
    for dpid in net.switches:
        net.core.network.reports_flows(dpid)
    meet(net, 1, 3)
    first, second = PortKey(1, 1), PortKey(4, 2)
    for place in (second, first, second):
        net.hosts = {1: place, 3: PortKey(4, 1)}
        assert net.inject(place, handshake(1, 3)[0]) == [net.hosts[3]]
        assert [at for at, _ in net.told] == [place]
        net.run(MOVED_S)
        assert pings(net, 3, 1)
    net.do(net.core.port_gone(second, net.now_ns))
    assert not any(
        dict(e.match).get("eth_src") == mac(1) for table in net.tables.values() for e in table.values()
    )


def test_a_switch_that_stops_reporting_copies_segments_of_all_hosts() -> None:
    net = diamond()
    net.core.network.reports_flows(1)
    meet(net, 1)
    net.run(0.1)
    net.disconnect(1)
    net.connect(1)
    net.run(1)
    net.inject(net.hosts[1], handshake(1, 3)[0])
    assert [at for at, _ in net.told] == [net.hosts[1]]


def test_the_entries_of_a_switch_name_a_bounded_number_of_things() -> None:
    """A hostile switch states entries without end."""
    net = diamond(Options(hosts=HostLimits(max_hosts=50)))
    network = net.core.network
    for first in range(100, 40_000, 100):
        numbers = range(first, first + 100)
        network.inherit(1, [(mac(1), number) for number in numbers], numbers, numbers)
    switch = network._switches[1]
    kept = [len(some) for some in (switch.claims, switch.was_links, switch.generations)]
    assert kept == [50, 10_000, 1_000]


def test_a_cable_between_two_ports_of_one_switch_floods_nothing() -> None:
    net = FakeNetwork({link(1, 5, 1, 6)}, [1], {1: PortKey(1, 1), 2: PortKey(1, 2)})
    net.connect()
    net.run(1)
    assert net.core.network.edges == {1: (1, 2)}
    assert net.inject(net.hosts[1], ethernet(mac(1), "ff:ff:ff:ff:ff:ff", 0x1234, bytes(50))) == [
        net.hosts[2]
    ]


def test_nothing_is_sent_twice() -> None:
    net = diamond()
    meet(net, 1, 2, 3, 4)
    net.core.network._version = -1
    assert [d for d in net.core.on_tick(net.now_ns) if isinstance(d, Put)] == []


def test_buckets_are_symmetric_and_many() -> None:
    keys = [parse(segment(1, 3, ACK, sport=sport)).content.key for sport in range(32768, 33768, 2)]
    assert all(bucket_of(key) == bucket_of(key.reverse) for key in keys)
    counts = [[bucket_of(key) for key in keys].count(bucket) for bucket in range(BUCKETS)]
    assert min(counts) > 0.5 * len(keys) / BUCKETS


@st.composite
def networks(draw: st.DrawFn) -> FakeNetwork:
    """Up to 6 switches with up to 9 cables, parallel ones too; one host at each of up to 3 switches."""
    count = draw(st.integers(1, 6))
    pairs = draw(st.lists(st.tuples(st.integers(1, count), st.integers(1, count)), max_size=9))
    links = {link(a, 10 + 2 * n, b, 11 + 2 * n) for n, (a, b) in enumerate(pairs)}
    at = draw(st.lists(st.integers(1, count), min_size=1, max_size=3))
    hosts = {number: PortKey(dpid, number) for number, dpid in enumerate(at, 1)}
    reactive, meters = draw(st.booleans()), draw(st.booleans())
    return FakeNetwork(links, list(range(1, count + 1)), hosts, Options(reactive=reactive), meters)


def connected(net: FakeNetwork, a: int, b: int) -> bool:
    reached, before = {a}, set()
    while reached != before:
        before = set(reached)
        for one in net.links - net.dead:
            if {one.a.dpid, one.b.dpid} & reached:
                reached |= {one.a.dpid, one.b.dpid}
    return b in reached


@settings(max_examples=60, deadline=None)
@given(networks(), st.data())
def test_after_any_failure_connected_hosts_reach_each_other_without_loops(
    net: FakeNetwork, data: st.DataObject
) -> None:
    net.connect()
    net.run(1)
    assert {event.link for event in net.events if isinstance(event, LinkUp)} == net.links
    meet(net, *net.hosts)
    for _ in range(3):
        broadcast = ethernet(mac(1), "ff:ff:ff:ff:ff:ff", 0x1234, bytes(50))
        reach = [n for n, at in net.hosts.items() if n != 1 and connected(net, net.hosts[1].dpid, at.dpid)]
        assert sorted(net.inject(net.hosts[1], broadcast), key=str) == sorted(
            (net.hosts[n] for n in reach), key=str
        )
        for number in reach:
            sport = data.draw(st.integers(1024, 65535))
            assert net.inject(net.hosts[1], handshake(1, number, sport=sport)[0]) == [net.hosts[number]]
            assert pings(net, number, 1)
        if not net.links - net.dead:
            return
        net.cut(data.draw(st.sampled_from(sorted(net.links - net.dead, key=str))))
        net.run(0.2)
