"""The meters of the fabric: ids, refusals, other apps, counters, and frames behind meters."""

from __future__ import annotations

import pytest

from app_base.headers import ACK, FIN
from fabric_app.core import Options
from fabric_app.frames import PROBE_MAC
from fabric_app.host_tracking import HostLimits
from fabric_app.meters import MOST_CONFLICTS, READ_NS, Found, Kind, Meter, MeterRates, Meters
from flowdb.flow import PortKey
from tests.support.controllers.fake_network import FakeNetwork, diamond, meet
from tests.support.openflow.scripted_switch import (
    arp,
    dhcp_ack,
    ethernet,
    handshake,
    mac,
    segment,
    solicitation,
)

RATES = MeterRates({Kind.ANSWERS: 256, Kind.SEGMENTS: 1000, Kind.PACKET_INS: 200}, frozenset({PortKey(1, 9)}))
MOST = 1000


def connected(*found: Found, most: int = MOST) -> Meters:
    meters = Meters(RATES)
    meters.offered(1, most)
    meters.found(1, found, last=True)
    return meters


def added(meters: Meters, *port_nos: int) -> list[Meter]:
    changes = meters.changes(1, set(port_nos))
    return list(changes.added) if changes else []


def confirm(meters: Meters, *port_nos: int) -> list[Meter]:
    new = added(meters, *port_nos)
    meters.confirmed(1, [meter.id for meter in new])
    return new


def test_a_port_gets_three_meters_with_ids_from_the_greatest_down() -> None:
    meters = connected()
    assert added(meters, 3) == [
        Meter(1000, 3, Kind.ANSWERS, 256),
        Meter(999, 3, Kind.SEGMENTS, 1000),
        Meter(998, 3, Kind.PACKET_INS, 200),
    ]
    assert meters.changes(1, {3}) is None


def test_answers_of_an_uplink_are_not_limited() -> None:
    assert [meter.kind for meter in added(connected(), 9)] == [Kind.SEGMENTS, Kind.PACKET_INS]


def test_a_switch_that_has_not_stated_its_meters_gets_none() -> None:
    meters = Meters(RATES)
    assert meters.changes(1, {3}) is None
    meters.offered(1, MOST)
    meters.found(1, [Found(1000)], last=False)
    assert meters.changes(1, {3}) is None
    meters.found(1, [Found(999)], last=True)
    assert [meter.id for meter in added(meters, 3)] == [998, 997, 996]


def test_meters_of_other_apps_are_left_alone_and_meters_of_earlier_sessions_used_again() -> None:
    others = [Found(1), Found(400, 200, 400), Found(1000), Found(998, 200, 200)]
    changes = connected(*others, Found(999, 50, 100)).changes(1, {3})
    assert changes is not None
    assert changes.deleted == ()
    assert [(meter.id, meter.exists) for meter in changes.added] == [(999, True), (997, False), (996, False)]


def test_what_a_meter_dropped_in_an_earlier_session_is_not_counted_again() -> None:
    meters = connected(Found(1000, 200, 400))
    confirm(meters, 3)
    assert meters.read(1, 1000, 70) is None
    assert meters.read(1, 1000, 71) == (PortKey(1, 3), Kind.ANSWERS, 1)
    assert meters.read(1, 999, 5) == (PortKey(1, 3), Kind.SEGMENTS, 5)


def test_a_meter_of_an_earlier_session_that_was_deleted_meanwhile_is_added() -> None:
    meters = connected(Found(1000, 200, 400))
    refused = added(meters, 3)
    meters.refuse(refused[0], 1, in_use=False)
    again = added(meters, 3)
    assert {meter.id for meter in again} == {998, 999, 1000}
    assert not any(meter.exists for meter in again)


def test_a_switch_that_states_meters_for_ever_is_not_limited() -> None:
    meters = Meters(RATES)
    meters.offered(1, 0xFFFF_FFFF)
    for number in range(66):
        meters.found(1, [Found(number * 1000 + n) for n in range(1000)], last=False)
    meters.found(1, [], last=True)
    assert meters.changes(1, {3}) is None


def test_ids_never_exceed_those_of_openflow() -> None:
    assert added(connected(most=0xFFFF_FFFF), 3)[0].id == 0xFFFF_0000


def test_a_removed_port_loses_its_meters_and_a_new_one_may_have_their_ids() -> None:
    meters = connected()
    confirm(meters, 3, 4)
    changes = meters.changes(1, {4})
    assert changes is not None
    assert (changes.added, sorted(changes.deleted)) == ((), [998, 999, 1000])
    assert sorted(meter.id for meter in added(meters, 4, 5)) == [998, 999, 1000]


def test_a_port_is_limited_when_the_switch_has_confirmed_its_meters() -> None:
    meters = connected()
    new = added(meters, 3)
    assert meters.of_ports(1) == {}
    meters.confirmed(1, [meter.id for meter in new[:2]])
    assert meters.of_ports(1) == {}
    meters.confirmed(1, [new[2].id])
    assert meters.of_ports(1) == {3: {Kind.ANSWERS: 1000, Kind.SEGMENTS: 999, Kind.PACKET_INS: 998}}


def test_a_refused_meter_leaves_its_port_without_and_other_ports_as_they_are() -> None:
    meters = connected()
    confirm(meters, 3)
    refused = added(meters, 3, 4)
    meters.refuse(refused[1], 1, in_use=False)
    changes = meters.changes(1, {3, 4})
    assert changes is not None
    assert (changes.added, set(changes.deleted)) == ((), {refused[0].id, refused[2].id})
    assert list(meters.of_ports(1)) == [3]
    assert meters.changes(1, {3}) is None, "port 4 is gone"
    assert len(added(meters, 3, 4)) == 3, "a new port has another try"
    assert meters.refusals == 1


def test_another_id_is_tried_if_one_is_in_use() -> None:
    meters = connected()
    refused = added(meters, 3)
    meters.refuse(refused[0], 1, in_use=True)
    ids = {meter.id for meter in added(meters, 3)}
    assert len(ids) == 3
    assert refused[0].id not in ids


def test_a_switch_that_says_in_use_for_ever_gets_no_meters() -> None:
    meters = connected()
    for _ in range(MOST_CONFLICTS + 1):
        meters.refuse(added(meters, 3)[0], 1, in_use=True)
    assert added(meters, 3, 4) == []


def test_no_port_is_limited_if_an_entry_with_a_meter_is_refused() -> None:
    meters = connected()
    confirm(meters, 3, 4)
    meters.unusable(1)
    changes = meters.changes(1, {3, 4})
    assert changes is not None
    assert (changes.added, len(changes.deleted)) == ((), 6)
    assert meters.of_ports(1) == {}
    assert added(meters, 3, 4, 5) == []


def test_ports_beyond_the_last_id_are_not_limited() -> None:
    meters = connected(most=4)
    assert [meter.port_no for meter in confirm(meters, 3, 4)] == [3, 3, 3]
    assert list(meters.of_ports(1)) == [3]


def test_what_meters_drop_is_counted_once() -> None:
    meters = connected()
    new = confirm(meters, 3, 4)
    assert meters.read(1, new[0].id, 5) == (PortKey(1, 3), Kind.ANSWERS, 5)
    assert meters.read(1, new[0].id, 5) is None
    assert meters.read(1, new[5].id, 7) == (PortKey(1, 4), Kind.PACKET_INS, 7)
    assert meters.read(1, new[5].id, 9) == (PortKey(1, 4), Kind.PACKET_INS, 2)
    assert meters.read(1, 1, 9) is None, "another app's"


def test_ports_are_read_in_turn_and_suspected_ports_each_time() -> None:
    meters = connected()
    new = confirm(meters, 3, 4, 5)
    ids = {port_no: {one.id for one in new if one.port_no == port_no} for port_no in (3, 4, 5)}
    meters.suspect(PortKey(1, 5), READ_NS)
    meters.suspect(PortKey(2, 5), READ_NS)
    read = []
    for number in range(1, 9):
        assert meters.due(number * READ_NS - 1) == []
        ((dpid, due),) = meters.due(number * READ_NS)
        read.append({port_no for port_no in ids if ids[port_no] & set(due)})
        assert (dpid, set(due)) == (1, set().union(*(ids[port_no] for port_no in read[-1])))
    assert read == [{3, 5}, {4, 5}, {5}, {3, 5}, {4, 5}, {5}, {3}, {4}]


def test_a_meter_that_another_app_has_deleted_is_made_again() -> None:
    meters = connected()
    new = confirm(meters, 3, 4)
    meters.read(1, new[4].id, None)
    assert list(meters.of_ports(1)) == [3], "the entries of port 4 are replaced"
    changes = meters.changes(1, {3, 4})
    assert changes is not None
    assert set(changes.deleted) == {new[3].id, new[5].id}
    assert {meter.port_no for meter in changes.added} == {4}
    assert meters.read(1, new[4].id, 9) is None, "an answer to an earlier request"
    meters.confirmed(1, [meter.id for meter in changes.added])
    assert sorted(meters.of_ports(1)) == [3, 4]


def test_a_port_that_uses_more_than_half_of_its_limit_is_suspected() -> None:
    net = diamond(Options(port_packet_ins_per_s=10), meters=True)
    meet(net, 1, 3)
    ids = {port_no: set(meters.values()) for port_no, meters in net.core.network.meters.of_ports(1).items()}
    for frames, times in ((5, 1), (15, 2)):
        net.run(20)
        net.read.clear()
        for _ in range(frames):
            net.inject(net.hosts[2], arp(1, 2, 200))
        net.run(4)
        assert [ids[2] <= set(read) for dpid, read in net.read if dpid == 1].count(True) == times


def test_a_new_session_starts_from_nothing() -> None:
    meters = connected()
    confirm(meters, 3)
    meters.forget(1)
    assert meters.of_ports(1) == {}
    assert meters.due(READ_NS) == []
    assert meters.read(1, 1000, 5) is None


FRAMES = [
    (1, arp(1, 1, 3)),
    (3, arp(2, 3, 1, mac(1))),
    (3, arp(2, 3, 0, PROBE_MAC)),
    (1, solicitation(1, "2001:db8::1", "2001:db8::3")),
    (2, dhcp_ack(1, "10.0.0.1")),
    *zip((1, 3), handshake(1, 3), strict=True),
    (1, segment(1, 3, ACK)),
    (1, segment(1, 3, FIN | ACK)),
    (2, ethernet(mac(2), mac(3), 0x1234, bytes(50))),
]


@pytest.mark.parametrize("reactive", [False, True])
def test_frames_take_the_same_way_with_and_without_meters(reactive: bool) -> None:
    plain, limited = (diamond(Options(reactive=reactive), meters=meters) for meters in (False, True))
    assert set(limited.core.network.meters.of_ports(1)) == {1, 2}, "links are not limited"
    assert set(limited.core.network.meters.of_ports(2)) == set()
    for net in (plain, limited):
        meet(net, 1, 2, 3)
    for host, frame in FRAMES:
        seen = [(net.inject(net.hosts[host], frame), net.told, net.crossed) for net in (plain, limited)]
        assert seen[0] == seen[1], frame.hex()


def metered(net: FakeNetwork, host: int, frame: bytes) -> set[int]:
    """The meters that a host's frame meets at its switch."""
    net.inject(net.hosts[host], frame)
    return {meter for _, meter in net.metered}


@pytest.mark.parametrize("reactive", [False, True])
def test_each_kind_of_frame_meets_its_meter(reactive: bool) -> None:
    net = diamond(
        Options(reactive=reactive, hosts=HostLimits(uplinks=frozenset({PortKey(4, 2)}))), meters=True
    )
    meet(net, 1, 3, 4)
    ids = net.core.network.meters.of_ports(4)
    assert metered(net, 3, arp(1, 3, 1)) == {ids[1][Kind.PACKET_INS]}
    assert metered(net, 3, arp(2, 3, 1, mac(1))) == {ids[1][Kind.PACKET_INS]}
    assert metered(net, 3, arp(2, 3, 0, PROBE_MAC)) == {ids[1][Kind.ANSWERS]}
    assert metered(net, 4, arp(2, 4, 0, PROBE_MAC)) == set(), "an uplink has any number of hosts"
    for frame in handshake(3, 1)[0], segment(3, 1, FIN | ACK):
        assert metered(net, 3, frame) == {ids[1][Kind.SEGMENTS]}
    assert metered(net, 3, segment(3, 1, ACK)) == set()


def test_a_port_keeps_its_meters_while_it_is_down_and_loses_them_when_it_is_removed() -> None:
    net = diamond(meters=True)
    port = net.hosts[2]
    net.do(net.core.port_down(port, net.now_ns))
    net.run(1)
    assert port.port_no in net.core.network.meters.of_ports(port.dpid)
    net.do(net.core.port_gone(port, net.now_ns))
    net.run(1)
    assert port.port_no not in net.core.network.meters.of_ports(port.dpid)
    limits = net.core.network.entries.tables.limits
    ports = {dict(entry.match).get("in_port") for entry in net.tables[1].values() if entry.table == limits}
    assert ports == {None, 1}
