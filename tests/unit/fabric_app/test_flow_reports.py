"""Flow reports: several switches report one flow; they agree or disagree, early or late."""

from __future__ import annotations

import itertools
from dataclasses import replace
from ipaddress import ip_address

import pytest

from fabric_app.connections import Changed, Closed, Connections, Opened
from fabric_app.core import Options
from fabric_app.flow_reports import Doubt, Reports
from fabric_app.paths import UNKNOWN_PORT
from flowdb.flow import FiveTuple, Flow, FlowState, Hop, PortKey
from openflow_ext.wire import SCALE_UNKNOWN, CloseReason, FlowKind, FlowRecord
from tests.support.controllers.fake_network import SECOND, FakeNetwork, diamond, link, meet
from tests.support.openflow.scripted_switch import ACK, FIN, RST, arp, handshake, mac, segment

KEY = FiveTuple("10.0.0.1", "10.0.0.3", 1000, 80)
OPENED = FlowRecord(
    FlowKind.OPENED, ip_address("10.0.0.1"), ip_address("10.0.0.3"), 1000, 80, 1,
    scale_src=7, scale_dst=9, mss_src=1460, mss_dst=1400, sent_bytes=74, first_ns=SECOND, last_ns=SECOND,
)  # fmt: skip


@pytest.fixture
def net() -> FakeNetwork:
    net = diamond()
    meet(net, 1, 3)
    net.events.clear()
    return net


def path(net: FakeNetwork) -> tuple[Hop, ...]:
    return net.core.network.path(KEY, net.hosts[1], net.hosts[3])


def tell(net: FakeNetwork, dpid: int, record: FlowRecord = OPENED, **changed: object) -> list:
    """Report a record now, or at its last time if that is later."""
    record = record._replace(**changed)
    return tell_at(net, max(net.now_ns, record.last_ns), dpid, record)


def tell_at(net: FakeNetwork, now_ns: int, dpid: int, record: FlowRecord) -> list:
    before = len(net.events)
    net.do(net.core.on_records(dpid, [record], now_ns))
    return net.events[before:]


def tell_all(net: FakeNetwork) -> Flow:
    """Every switch of the path reports the flow."""
    for hop in path(net):
        tell(net, hop.dpid, out_port=hop.out_port)
    flow = net.core.connections.get(KEY)
    assert flow is not None
    return flow


def test_the_first_report_opens_a_flow_and_the_others_confirm_its_path(net: FakeNetwork) -> None:
    flow = tell_all(net)
    assert net.events == [Opened((flow,))]
    assert flow.path == path(net)
    assert (flow.mss_bytes, flow.receiver_wscale, flow.sender_wscale) == (1400, 9, 7)
    assert (flow.opened_ns, net.core.reports.doubts) == (SECOND, 0)


def test_copied_segments_and_reports_give_one_flow(net: FakeNetwork) -> None:
    for number, frame in zip((1, 3), handshake(1, 3), strict=True):
        net.inject(net.hosts[number], frame)
    (changed,) = tell(net, 4, scale_src=9, scale_dst=7, handshake_rtt_us=250)
    assert isinstance(changed, Changed)
    assert (len(net.core.connections), changed.flow.handshake_rtt_us) == (1, 250)


@pytest.mark.parametrize("flags", [RST, RST | ACK, FIN | ACK])
def test_a_copied_segment_ends_no_flow_of_a_switch_that_reports_flows(net: FakeNetwork, flags: int) -> None:
    """The switch copies segments of unknown hosts, so a forged source MAC address is enough."""
    for dpid in net.switches:
        net.core.network.reports_flows(dpid)
    net.run(0.1)
    flow = tell_all(net)
    forged = bytearray(segment(1, 3, flags))
    forged[6:12] = bytes.fromhex("0000000000aa")
    net.inject(net.hosts[1], bytes(forged))
    assert [at for at, _ in net.told] == [net.hosts[1]]
    assert net.core.connections.get(KEY) == flow


def test_a_copied_segment_with_the_address_of_another_port_ends_no_flow(net: FakeNetwork) -> None:
    """These switches report no flows."""
    for number, frame in zip((1, 3), handshake(1, 3), strict=True):
        net.inject(net.hosts[number], frame)
    flow = net.core.connections.get(KEY)
    forged = bytearray(segment(1, 3, RST))
    forged[6:12] = bytes.fromhex(mac(2).replace(":", ""))
    net.inject(net.hosts[2], bytes(forged))
    assert [at for at, _ in net.told] == [net.hosts[2]]
    assert net.core.connections.get(KEY) == flow
    net.inject(net.hosts[1], segment(1, 3, RST))
    assert net.core.connections.get(KEY) is None


def test_a_report_may_arrive_before_the_syn_ack(net: FakeNetwork) -> None:
    syn, syn_ack = handshake(1, 3)
    net.inject(net.hosts[1], syn)
    (opened,) = tell(net, 4, first_ns=net.now_ns, last_ns=net.now_ns)
    net.inject(net.hosts[3], syn_ack)
    assert [type(event) for event in net.events] == [Opened, Opened]
    assert net.core.connections.get(KEY) == opened.flows[0]
    assert len(list(net.core.connections)) == 2
    net.inject(net.hosts[3], syn_ack)
    assert len(net.events) == 2, "retransmitted"


def test_a_switch_that_contradicts_the_topology_is_believed_for_itself(net: FakeNetwork) -> None:
    planned = tell_all(net).path
    other = 5 - planned[1].dpid
    *_, doubt = tell(net, other, out_port=2)
    assert doubt == Doubt(
        f"switch {other:016x} reports flow {KEY} leaving by port 2, not as known: it is believed"
    )
    now = net.core.connections.get(KEY).path
    assert {(hop.dpid, hop.out_port) for hop in now} == {
        (hop.dpid, hop.out_port) for hop in (*planned, Hop(other, 0, 2))
    }
    assert now[0] == planned[0]


@pytest.mark.parametrize("reported_first", [False, True])
def test_a_flow_whose_host_moves_to_another_switch_loses_its_old_hops(
    net: FakeNetwork, reported_first: bool
) -> None:
    old = tell_all(net).path
    alive = {"kind": FlowKind.ACTIVE, "out_port": 2}
    if reported_first:
        assert len(tell(net, 1, **alive, last_ns=net.now_ns)) == 2, "its path changes, and there is a doubt"
    net.do(net.core.port_down(net.hosts[3], net.now_ns))
    net.hosts[3] = PortKey(1, 2)
    net.inject(net.hosts[3], arp(1, 3, 200))
    (changed,) = tell(net, 1, **alive, last_ns=net.now_ns)
    assert changed.flow.path == path(net) == (Hop(1, 1, 2),)
    for hop in old[1:]:
        late = {"out_port": hop.out_port, "last_ns": net.now_ns - SECOND}
        assert tell(net, hop.dpid, kind=FlowKind.IDLE, **late) == []
        assert tell(net, hop.dpid, kind=FlowKind.CLOSED, reason=CloseReason.SILENT, **late) == []
    assert net.core.reports.doubts == reported_first


def test_a_flow_whose_sender_moves_to_the_receiver_s_switch_loses_its_old_hops(net: FakeNetwork) -> None:
    """The receiver's switch reports the same port as before."""
    *old, last = tell_all(net).path
    net.do(net.core.port_down(net.hosts[1], net.now_ns))
    net.hosts[1] = PortKey(4, 2)
    net.inject(net.hosts[1], arp(1, 1, 200))
    (changed,) = tell(net, 4, kind=FlowKind.ACTIVE, out_port=last.out_port, last_ns=net.now_ns)
    assert changed.flow.path == path(net) == (Hop(4, 2, 1),)
    for hop in old:
        late = {"out_port": hop.out_port, "last_ns": net.now_ns - SECOND}
        assert tell(net, hop.dpid, kind=FlowKind.IDLE, **late) == []
        assert tell(net, hop.dpid, kind=FlowKind.CLOSED, reason=CloseReason.SILENT, **late) == []
    silent = {"kind": FlowKind.CLOSED, "reason": CloseReason.SILENT, "last_ns": net.now_ns}
    assert tell(net, 4, out_port=last.out_port, **silent) == [Closed(changed.flow, "silent")]


def test_a_flow_whose_sender_is_found_where_it_is_not_keeps_its_path(net: FakeNetwork) -> None:
    """Its first switch contradicts that, and is believed."""
    planned = tell_all(net).path
    net.do(net.core.port_down(net.hosts[1], net.now_ns))
    net.inject(PortKey(4, 2), arp(1, 1, 200))
    for round_s in range(2, 8, 2):
        for hop in planned:
            seen = {"out_port": hop.out_port, "last_ns": net.now_ns + round_s * SECOND}
            tell(net, hop.dpid, kind=FlowKind.ACTIVE, **seen)
    ports = [hop.port for hop in net.core.connections.get(KEY).path]
    assert ports == [hop.port for hop in planned]
    assert net.core.reports.doubts == 2, "once for each switch that the topology leaves out"


def test_a_contradiction_that_lasts_changes_a_path_once(net: FakeNetwork) -> None:
    planned = tell_all(net).path
    other = 5 - planned[1].dpid
    tell(net, other, out_port=2)
    doubted = net.core.connections.get(KEY).path
    for dpid, out_port in ((1, planned[0].out_port), (other, 2), (4, 1)):
        tell(net, dpid, kind=FlowKind.ACTIVE, out_port=out_port, last_ns=net.now_ns + 5 * SECOND)
        assert net.core.connections.get(KEY).path == doubted
    assert net.core.reports.doubts == 1


def test_reports_from_before_a_reroute_are_old(net: FakeNetwork) -> None:
    planned = tell_all(net).path
    near, far = planned[0].port, net.core.network.paths.graph.peer(planned[0].port)
    net.cut(next(one for one in net.links if set(one.ends) == {near, far}))
    net.run(3)
    new = net.core.connections.get(KEY).path
    assert new[1].dpid == 5 - planned[1].dpid
    for kind in (FlowKind.ACTIVE, FlowKind.IDLE):
        assert tell(net, 1, kind=kind, out_port=near.port_no, last_ns=net.now_ns - 4 * SECOND) == []
    silent = {"kind": FlowKind.CLOSED, "reason": CloseReason.SILENT, "last_ns": net.now_ns}
    assert tell(net, 1, out_port=near.port_no, **silent) == []
    (changed,) = tell(net, 4, kind=FlowKind.ACTIVE, sent_bytes=9000, last_ns=net.now_ns)
    assert changed.flow.sent_bytes == 9000
    assert changed.flow.path == new


def test_bytes_and_activity_come_from_the_first_switch(net: FakeNetwork) -> None:
    tell_all(net)
    (changed,) = tell(net, 1, kind=FlowKind.ACTIVE, out_port=path(net)[0].out_port, sent_bytes=1000,
                      last_ns=2 * SECOND)  # fmt: skip
    assert (changed.flow.sent_bytes, changed.flow.rate_bps) == (1000, 8000)
    assert tell(net, 4, kind=FlowKind.IDLE, sent_bytes=900, last_ns=2 * SECOND) == []
    (changed,) = tell(net, 1, kind=FlowKind.IDLE, out_port=path(net)[0].out_port, sent_bytes=1000,
                      last_ns=2 * SECOND)  # fmt: skip
    assert changed.flow.state is FlowState.IDLE


def test_without_its_first_switch_a_flow_s_bytes_come_from_the_next_one(net: FakeNetwork) -> None:
    first, second, _ = tell_all(net).path
    net.disconnect(first.dpid)
    alive = {"kind": FlowKind.ACTIVE, "sent_bytes": 1000, "last_ns": 2 * SECOND}
    (changed,) = tell(net, second.dpid, out_port=second.out_port, **alive)
    assert (changed.flow.sent_bytes, changed.flow.rate_bps) == (1000, 8000)
    net.connect(first.dpid)
    more = {"kind": FlowKind.ACTIVE, "sent_bytes": 3000, "last_ns": 3 * SECOND}
    (changed,) = tell(net, first.dpid, out_port=first.out_port, **more)
    assert changed.flow.sent_bytes == 3000
    later = {"kind": FlowKind.ACTIVE, "sent_bytes": 4000, "last_ns": 4 * SECOND}
    assert tell(net, second.dpid, out_port=second.out_port, **later) == [], "the roll call named it again"


@pytest.mark.parametrize("disconnects", [True, False], ids=["disconnects", "refuses reports"])
def test_a_silent_flow_ends_without_a_switch_that_no_longer_reports(
    net: FakeNetwork, disconnects: bool
) -> None:
    """A newer session may begin before the end of the earlier one is known."""
    flow = tell_all(net)
    first, *others = flow.path
    if disconnects:
        net.disconnect(first.dpid)
    else:
        net.connect(first.dpid)
        net.do(net.core.no_reports(first.dpid))
    silent = {"kind": FlowKind.CLOSED, "reason": CloseReason.SILENT, "last_ns": 5 * SECOND}
    events = [tell(net, hop.dpid, out_port=hop.out_port, **silent) for hop in others]
    assert events == [[], [Closed(flow, "silent")]]


@pytest.mark.parametrize("reason", [CloseReason.FIN, CloseReason.RST])
def test_an_end_at_one_switch_ends_the_flow_and_late_reports_are_ignored(
    net: FakeNetwork, reason: CloseReason
) -> None:
    flow = tell_all(net)
    end = {"kind": FlowKind.CLOSED, "reason": reason, "last_ns": 5 * SECOND}
    assert tell(net, 4, **end) == [Closed(flow, reason.name.lower())]
    assert tell(net, 1, **end) == []
    assert tell(net, 1, last_ns=5 * SECOND) == []
    assert tell(net, 1, kind=FlowKind.ACTIVE, last_ns=5 * SECOND + SECOND // 2) == []
    (opened,) = tell(net, 4, kind=FlowKind.ACTIVE, sent_bytes=10**6, last_ns=8 * SECOND)
    assert isinstance(opened, Opened), "data that still flows 3 s later: it did not end"
    assert opened.flows[0].sent_bytes == 10**6
    again = tell(net, 1, **end | {"last_ns": SECOND // 2})
    assert again == [], "an end from before it opened"


def test_the_end_at_the_first_switch_states_the_last_bytes(net: FakeNetwork) -> None:
    flow = tell_all(net)
    end = {"kind": FlowKind.CLOSED, "reason": CloseReason.FIN, "last_ns": 5 * SECOND}
    changed, closed = tell(net, 1, out_port=flow.path[0].out_port, sent_bytes=9_000_000, **end)
    assert (changed.flow, closed.flow) == (closed.flow, changed.flow)
    assert closed.flow.sent_bytes == 9_000_000


@pytest.mark.parametrize("kind", [FlowKind.OPENED, FlowKind.ACTIVE, FlowKind.CLOSED])
@pytest.mark.parametrize("field", ["first_ns", "last_ns", "sent_bytes"])
def test_a_report_with_an_impossible_number_is_dropped(net: FakeNetwork, kind: FlowKind, field: str) -> None:
    """The database could not hold it, and refused the row of the flow."""
    flow = tell_all(net)
    changed = {"kind": kind, "reason": CloseReason.FIN, "out_port": flow.path[0].out_port, field: 2**63}
    (doubt,) = tell(net, 1, **changed)
    assert doubt == Doubt(
        f"switch {1:016x} reports flow {KEY} with an impossible time or number of bytes: it is dropped"
    )
    assert net.core.connections.get(KEY) == flow


def test_an_end_may_arrive_before_the_opening(net: FakeNetwork) -> None:
    assert tell(net, 1, kind=FlowKind.CLOSED, reason=CloseReason.FIN, last_ns=2 * SECOND) == []
    assert tell(net, 4) == []


@pytest.mark.parametrize("is_open", [True, False])
def test_an_end_in_the_future_keeps_no_later_flow_unknown(net: FakeNetwork, is_open: bool) -> None:
    """A switch may be hostile, or its clock may have been set."""
    if is_open:
        tell_all(net)
    end = OPENED._replace(kind=FlowKind.CLOSED, reason=CloseReason.FIN, last_ns=2**62)
    tell_at(net, 2 * SECOND, 1, end)
    (opened,) = tell(net, 1, first_ns=3 * SECOND, last_ns=3 * SECOND)
    assert isinstance(opened, Opened)


def test_silence_ends_a_flow_only_when_all_switches_report_it(net: FakeNetwork) -> None:
    flow = tell_all(net)
    silent = {"kind": FlowKind.CLOSED, "reason": CloseReason.SILENT, "last_ns": 5 * SECOND}
    *before, last = flow.path
    assert [tell(net, hop.dpid, out_port=hop.out_port, **silent) for hop in before] == [[]] * len(before)
    assert tell(net, last.dpid, out_port=last.out_port, **silent) == [Closed(flow, "silent")]


def test_a_new_flow_with_the_same_5_tuple_replaces_the_old_one(net: FakeNetwork) -> None:
    flow = tell_all(net)
    net.now_ns = 60 * SECOND
    closed, opened = tell(net, 4, first_ns=60 * SECOND, last_ns=60 * SECOND)
    assert closed == Closed(flow, "replaced")
    assert opened.flows[0].opened_ns == 60 * SECOND


def test_the_first_report_of_a_handshake_holds(net: FakeNetwork) -> None:
    flow = tell_all(net)
    (doubt,) = tell(net, 4, mss_dst=9, scale_dst=1)
    assert "with another MSS or scale than the first report, which holds" in doubt.text
    assert net.core.connections.get(KEY) == flow


def test_scales_need_both_sides_and_a_seen_handshake(net: FakeNetwork) -> None:
    tell(net, 4, scale_dst=SCALE_UNKNOWN)
    assert net.core.connections.get(KEY).receiver_wscale == 0
    unseen = {"mss_src": 0, "mss_dst": 0, "scale_src": SCALE_UNKNOWN, "scale_dst": SCALE_UNKNOWN}
    _, doubt = tell(net, 4, src_port=2000, kind=FlowKind.ACTIVE, last_ns=2 * SECOND, **unseen)
    assert "10.0.0.1:2000>10.0.0.3:80 without its handshake: its scale is unknown" in doubt.text
    flow = net.core.connections.get(replace(KEY, src_port=2000))
    assert (flow.receiver_wscale, flow.mss_bytes) == (None, 536)


def test_a_flow_between_unknown_hosts_has_the_reported_path(net: FakeNetwork) -> None:
    strange = {"src": ip_address("192.0.2.1"), "dst": ip_address("192.0.2.2")}
    key = replace(KEY, src="192.0.2.1", dst="192.0.2.2")
    tell(net, 2, out_port=2, **strange)
    assert net.core.connections.get(key).path == (Hop(2, UNKNOWN_PORT, 2),)
    tell(net, 4, out_port=2, **strange)
    assert net.core.connections.get(key).path == (Hop(2, UNKNOWN_PORT, 2), Hop(4, 11, 2))
    net.cut(link(1, 12, 3, 1))
    assert net.core.connections.get(key).path[0].dpid == 2, "nobody knows where it goes now"


def test_too_many_flows_are_refused(net: FakeNetwork) -> None:
    net.core.connections._places.places = 2
    for port in range(1000, 1010):
        tell(net, 4, src_port=port)
    assert (len(net.core.connections), net.core.connections.refused) == (2, 8)


def test_a_switch_that_reports_many_flows_leaves_room_for_the_flows_of_others(net: FakeNetwork) -> None:
    connections = net.core.connections
    connections._places.places = 100
    for port in range(1000, 1200):
        tell(net, 4, src_port=port)
    assert (len(connections), connections.refused) == (80, 120)
    for port in range(2000, 2010):
        tell(net, 2, src_port=port)
    assert (len(connections), connections.refused) == (90, 120)
    for port in range(1000, 1200):
        tell(net, 4, src_port=port, kind=FlowKind.CLOSED, reason=CloseReason.RST, last_ns=2 * SECOND)
    assert (len(connections), dict(connections._places._held)) == (10, {2: 10})


def test_a_switch_that_reports_many_ends_does_not_displace_the_ends_that_others_reported(
    net: FakeNetwork,
) -> None:
    connections = net.core.connections
    connections._ended_ns.most = 100
    tell(net, 2, kind=FlowKind.CLOSED, reason=CloseReason.FIN, last_ns=2 * SECOND)
    for port in range(2000, 2200):
        tell(net, 4, src_port=port, kind=FlowKind.CLOSED, reason=CloseReason.FIN, last_ns=2 * SECOND)
    assert (connections.ended_ns(KEY), len(connections._ended_ns)) == (2 * SECOND, 100)
    assert tell(net, 2, kind=FlowKind.OPENED, first_ns=2 * SECOND) == [], "its report is late"


def successor() -> FakeNetwork:
    """One switch, whose hosts are still unknown."""
    net = FakeNetwork(set(), [7], {1: PortKey(7, 1), 3: PortKey(7, 3)}, Options(max_connections=4))
    net.connect()
    net.run(1)
    return net


LIVING = OPENED._replace(
    kind=FlowKind.ACTIVE, out_port=3, first_ns=500, last_ns=SECOND + 500, sent_bytes=3000
)
BACK = LIVING._replace(src=LIVING.dst, dst=LIVING.src, src_port=80, dst_port=1000, out_port=1)


def test_a_reported_flow_opens_with_its_age_and_each_direction_gives_the_other_s_input_port() -> None:
    net = successor()
    (opened,) = tell(net, 7, LIVING)
    (there,) = opened.flows
    assert (there.key, there.path) == (KEY, (Hop(7, UNKNOWN_PORT, 3),))
    assert (there.opened_ns, there.mss_bytes, there.receiver_wscale) == (500, 1400, 9)
    assert (there.sent_bytes, there.rate_bps, there.state) == (3000, 24_000, FlowState.ACTIVE)
    opened, changed = tell(net, 7, BACK, kind=FlowKind.IDLE)
    assert [(flow.path, flow.state) for flow in opened.flows] == [((Hop(7, 3, 1),), FlowState.IDLE)]
    assert changed == Changed(replace(there, path=(Hop(7, 1, 3),)))
    assert tell(net, 7, LIVING) == tell(net, 7, BACK, kind=FlowKind.IDLE) == []
    assert net.core.reports.doubts == 0


def connections(*paths: tuple[int, ...]) -> tuple[Reports, Connections, list[Flow]]:
    """Reports on adopted flows that cross these switches."""
    known = Connections(itertools.count(1).__next__, lambda *_: ())
    flows = [
        Flow(at, replace(KEY, src_port=at), tuple(Hop(dpid, 1, 2) for dpid in path), SECOND, 1400, 9)
        for at, path in enumerate(paths, 100)
    ]
    known.adopt(flows)
    return Reports(known, lambda *_: (), lambda _: ()), known, flows


NOW = 10 * SECOND


def named(flow: Flow, kind: FlowKind = FlowKind.ACTIVE) -> FlowRecord:
    return OPENED._replace(kind=kind, src_port=flow.key.src_port, out_port=2, last_ns=NOW)


def test_a_flow_that_no_switch_names_at_the_roll_call_is_closed() -> None:
    reports, known, (lives, ended, elsewhere, idle) = connections((1,), (1,), (2,), (1,))
    reports.call_roll(1, NOW)
    for flow, kind in ((lives, FlowKind.ACTIVE), (idle, FlowKind.IDLE)):
        reports.on_record(1, named(flow, kind), NOW)
    opened = reports.on_record(1, named(ended)._replace(src_port=9, kind=FlowKind.OPENED, first_ns=NOW), NOW)
    assert reports.roll_called(1) == [Closed(ended, "missing")]
    assert {flow.key.src_port for flow in known} == {
        9,
        *(one.key.src_port for one in (lives, elsewhere, idle)),
    }
    assert len(opened) == 1
    assert reports.roll_called(1) == []


def test_a_flow_stays_open_while_a_switch_names_it_or_may_still_do_so() -> None:
    reports, _, (lives, ended) = connections((1, 2, 3), (1, 2, 3))
    for dpid in (1, 2, 3):
        reports.call_roll(dpid, NOW)
    assert reports.roll_called(1) == []
    reports.on_record(2, named(lives), NOW)
    assert reports.roll_called(2) == [], "switch 3 has not said all"
    assert reports.roll_called(3) == [Closed(ended, "missing")]


def test_switches_without_a_roll_call_delay_and_close_nothing() -> None:
    reports, known, (ended, unknown) = connections((1, 2), (2,))
    for dpid in (1, 2):
        reports.call_roll(dpid, NOW)
    assert reports.roll_called(1) == []
    assert reports.roll_not_called(2) == [Closed(ended, "missing")]
    assert list(known) == [unknown]


def test_a_switch_that_reconnects_calls_the_roll_again() -> None:
    reports, _, (flow,) = connections((1, 2))
    for dpid in (1, 2):
        reports.call_roll(dpid, NOW)
        reports.on_record(dpid, named(flow), NOW)
        assert reports.roll_called(dpid) == []
    for dpid, events in ((1, []), (2, [Closed(known_as(reports, flow), "missing")])):
        reports.call_roll(dpid, 2 * NOW)
        assert reports.roll_called(dpid) == events


@pytest.mark.parametrize("reporters", [(1, 2, 4), (1,)], ids=["every switch", "the first switch"])
def test_an_idle_flow_stays_open_after_a_reroute_whose_new_switch_never_saw_it(
    reporters: tuple[int, ...],
) -> None:
    reports, known, (flow,) = connections((1, 2, 4))
    for dpid in reporters:
        reports.on_record(dpid, named(flow, FlowKind.IDLE), NOW)
    flow = known_as(reports, flow)
    path = (Hop(1, 1, 3), Hop(3, 1, 2), Hop(4, 1, 2))
    reports.led_elsewhere(flow, path, NOW)
    known.reroute(flow, path)
    reports.call_roll(3, 2 * NOW)
    assert reports.roll_called(3) == []
    reports.on_record(3, named(flow), 3 * NOW)
    last = known_as(reports, flow)
    for dpid in (1, 3, 4):
        reports.call_roll(dpid, 4 * NOW)
    events = [event for dpid in (1, 3, 4) for event in reports.roll_called(dpid)]
    assert events == [Closed(last, "missing")], "from here on every switch should know it"


def known_as(reports: Reports, flow: Flow) -> Flow:
    """The flow with the reported values."""
    known = reports._connections.get(flow.key)
    assert known is not None
    return known


def test_a_new_flow_is_not_in_the_roll_call_and_a_missed_flow_may_reopen() -> None:
    reports, known, (flow,) = connections((1,))
    reports.call_roll(1, SECOND + SECOND // 2)
    assert reports.roll_called(1) == []
    reports.call_roll(1, NOW)
    assert reports.roll_called(1) == [Closed(flow, "missing")]
    (opened,) = reports.on_record(2, named(flow), NOW)
    assert isinstance(opened, Opened)
    assert len(known) == 1


def test_reported_flows_are_bounded_and_not_in_the_future() -> None:
    net = successor()
    future = {"first_ns": 9 * SECOND, "last_ns": 10 * SECOND, "scale_dst": SCALE_UNKNOWN}
    reports = [LIVING._replace(src_port=port, **future) for port in range(9)]
    events = [event for record in reports for event in tell_at(net, net.now_ns, 7, record)]
    flows = [flow for event in events for flow in event.flows]
    assert len(flows) == len(net.core.connections) == 4
    assert net.core.connections.refused == 5
    assert {(flow.opened_ns, flow.last_active_ns) for flow in flows} == {(net.now_ns, None)}
    assert {(flow.receiver_wscale, flow.sender_wscale) for flow in flows} == {(0, 0)}
