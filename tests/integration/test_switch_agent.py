"""The agent with a real ovs-vswitchd and the real data plane on real ports."""

from __future__ import annotations

import contextlib
import signal
from ipaddress import IPv4Address

import pytest

from openflow_ext import wire
from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from openflow_ext.switch.dataplane.rules import WindowOp
from openflow_ext.switch.openflow import messages as of
from tests.support.agent.clamped_stream import scaled_streaming
from tests.support.agent.switch_bench import Bench, Controller, run
from tests.support.controllers.processes import controller as ryu_process
from tests.support.controllers.processes import free_port
from tests.support.openflow.flow_mods import TCP4, ext, ext_raw, flow_mod, ofproto, output, parsed, parser
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside_others

SET = ext(wire.SetWindow(1536))
FLOOD = parser.OFPActionOutput(ofproto.OFPP_NORMAL, 0)


def test_ryu_s_learning_switch_works_through_the_agent(bench: Bench) -> None:
    port = free_port()
    with ryu_process("ryu", "ryu.app.simple_switch_13", port):
        agent = bench.ready_agent(f"tcp:127.0.0.1:{port}")
        wait_until(bench.ping, "ping through the learning switch")
        assert bench.ping(3)
        assert any("dl_dst" in flow for flow in bench.ovs.flows(bench.bridge))
        assert bench.attached() == {bench.port(1): 1, bench.port(2): 2}
        assert agent.end(signal.SIGINT) == 0
    assert bench.leftovers() == []
    assert bench.controllers() == []


def test_an_entry_s_parts_are_in_open_vswitch_and_in_the_data_plane(bench: Bench, joined: Controller) -> None:
    match = {**TCP4, "ipv4_src": ("10.77.0.0", "255.255.255.0"), "tcp_dst": 80}
    joined.send(flow_mod(match, [SET, output(2)], priority=7, cookie=5, xid=70))
    assert joined.barrier() == []
    assert bench.ovs.flows(bench.bridge) == [
        "cookie=0x5, priority=7,tcp,nw_src=10.77.0.0/24,tp_dst=80 actions=output:2"
    ]
    (rule,) = bench.rules()
    assert (rule.priority, rule.window_op, rule.window_bytes) == (7, WindowOp.SET_WINDOW, 1536)
    delete = flow_mod({}, command=ofproto.OFPFC_DELETE, table_id=ofproto.OFPTT_ALL, xid=71)
    joined.send(delete)
    assert joined.barrier() == []
    assert bench.ovs.flows(bench.bridge) == []
    assert bench.rules() == []


def test_an_entry_that_open_vswitch_refuses_leaves_no_rule(bench: Bench, joined: Controller) -> None:
    whole = flow_mod(TCP4, [SET, parser.OFPActionGroup(77)], xid=70)
    joined.send(whole)
    (refusal,) = joined.barrier()
    error = parsed(refusal)
    assert (error.type, error.code) == (ofproto.OFPET_BAD_ACTION, ofproto.OFPBAC_BAD_OUT_GROUP)
    assert (error.xid, bytes(error.data)) == (70, whole[:64])
    assert bench.rules() == []
    assert bench.ovs.flows(bench.bridge) == []


def test_bad_messages_get_errors_and_do_not_end_the_session(bench: Bench, joined: Controller) -> None:
    ours = wire.WEIR_EXPERIMENTER_ID.to_bytes(4, "big")
    config = wire.encode_message(wire.PortConfig(1, wire.PortConfigFlags.READ), xid=3)
    bad_type = ofproto.OFPBRC_BAD_EXP_TYPE
    bad = {
        "no exp_type": (of.resized(of.HEADER.pack(4, 4, 0, 3) + ours), 0xFFFF, 4),
        "truncated": (of.resized(config[:-20]), 0xFFFF, 4),
        "unknown port": (wire.encode_message(wire.PortConfig(9), xid=3), 0xFFFF, 1),
        "unknown type": (config[:12] + b"\0\0\0\x63" + config[16:], ofproto.OFPET_BAD_REQUEST, bad_type),
        "unknown experimenter": (
            of.resized(of.HEADER.pack(4, 4, 0, 3) + b"\x00\x12\x34\x56" + bytes(8)),
            ofproto.OFPET_BAD_REQUEST,
            ofproto.OFPBRC_BAD_EXPERIMENTER,
        ),
        "unknown action": (
            flow_mod(TCP4, [ext_raw(b"\xff\xff\0\x10" + ours + b"\0\x09" + bytes(6))], xid=3),
            ofproto.OFPET_BAD_ACTION,
            ofproto.OFPBAC_BAD_EXP_TYPE,
        ),
        "no TCP": (flow_mod({}, [SET], xid=3), ofproto.OFPET_BAD_MATCH, ofproto.OFPBMC_BAD_WILDCARDS),
        "packet-out": (packet_out(SET), ofproto.OFPET_BAD_ACTION, ofproto.OFPBAC_BAD_EXPERIMENTER),
    }
    for case, (message, error_type, code) in bad.items():
        answer = joined.ask(message)
        assert answer[1] == of.OFPT_ERROR, case
        assert (int.from_bytes(answer[8:10], "big"), int.from_bytes(answer[10:12], "big")) == (
            error_type,
            code,
        ), case
    assert bench.rules() == []
    assert bench.ovs.flows(bench.bridge) == []
    assert isinstance(wire.decode_message(joined.ask(config)), wire.PortConfigReply)


def packet_out(action: object) -> bytes:
    from tests.support.openflow.flow_mods import datapath, serialized

    message = parser.OFPPacketOut(
        datapath, ofproto.OFP_NO_BUFFER, ofproto.OFPP_CONTROLLER, [action, output(1)], bytes(60)
    )
    return serialized(message, xid=3)


def test_a_port_that_is_removed_and_added_again_is_attached_again(bench: Bench, joined: Controller) -> None:
    run("ip", "link", "del", bench.port(2))
    wait_until(lambda: bench.attached() == {bench.port(1): 1}, "the port is detached")
    bench.plug(2)
    wait_until(lambda: bench.attached() == {bench.port(1): 1, bench.port(2): 2}, "the port is attached anew")
    bench.ovs.vsctl("del-port", bench.port(1))
    wait_until(lambda: bench.attached() == {bench.port(2): 2}, "the port is detached")
    assert '"xdp"' not in run("ip", "-j", "link", "show", bench.port(1))


def test_a_port_s_capacity_follows_its_qdisc(bench: Bench, joined: Controller) -> None:
    def capacity_bps() -> int:
        reply = wire.decode_message(joined.ask(wire.encode_message(wire.PortConfig(1), xid=9)))
        assert isinstance(reply, wire.PortConfigReply)
        return reply.capacity_bps

    assert capacity_bps() == 10**10
    shape(bench.port(1), "100mbit")
    wait_until(lambda: capacity_bps() == 10**8, "the capacity is HTB's")
    run(
        "tc",
        "qdisc",
        "replace",
        "dev",
        bench.port(1),
        "root",
        "tbf",
        "rate",
        "20mbit",
        "burst",
        "10k",
        "latency",
        "1ms",
    )
    wait_until(lambda: capacity_bps() == 2 * 10**7, "the capacity is TBF's")


def shape(port: str, rate: str) -> None:
    run("tc", "qdisc", "add", "dev", port, "root", "handle", "5:", "htb", "default", "1")
    run("tc", "class", "add", "dev", port, "parent", "5:", "classid", "5:1", "htb", "rate", rate)


def arm(joined: Controller) -> None:
    """Ask for alarms of port 2 from 20 packets on, and arm two entries."""
    joined.send(flow_mod({}, [FLOOD], xid=4))
    assert joined.barrier() == []
    config = wire.PortConfig(2, wire.PortConfigFlags.ALARM, k_pkts=20, rtt_us=1000, cookie=0xC0, priority=3)
    reply = wire.decode_message(joined.ask(wire.encode_message(config, xid=5)))
    assert isinstance(reply, wire.PortConfigReply)
    tuples = (IPv4Address("10.77.0.2"), IPv4Address("10.77.0.1"), 80)
    armed = tuple(wire.ArmEntry(*tuples, 40000 + n, 1536, cookie=70 + n) for n in range(2))
    joined.send(wire.encode_message(wire.Arm(2, armed), xid=6))
    assert joined.barrier() == []


def await_queue(bench: Bench) -> None:
    """Wait until the agent has read the rate and the buffer of port 2."""
    wait_until(lambda: bench.port_counters(2).buffer_bytes, "the agent knows the port's buffer")


def events_until_normal(joined: Controller) -> list[wire.Message]:
    told = [joined.event()]
    while not isinstance(told[-1], wire.BufNormal):
        told.append(joined.event())
    return told


def events_until_both_entries_are_active(joined: Controller) -> list[wire.Message]:
    """The events of the alarm during which the second entry became active.

    An alarm before it may have ended earlier: a queue that stands still, because the machine does, ends one.
    """
    told: list[wire.Message] = []
    while not any(isinstance(message, wire.Reflex) and message.rank == 1 for message in told):
        if told and isinstance(told[-1], wire.BufNormal):
            told = []
        told.append(joined.event())
    return told


def test_a_full_queue_raises_the_alarm_and_an_empty_one_ends_it(bench: Bench, joined: Controller) -> None:
    shape(bench.port(2), "10mbit")
    await_queue(bench)
    arm(joined)
    with scaled_streaming(bench) as end:
        told = events_until_both_entries_are_active(joined)
        end()
        told += events_until_normal(joined)
    reflex = [message for message in told if isinstance(message, wire.Reflex)]
    alarm, *others = (message for message in told if isinstance(message, wire.BufAlarm))
    last, normal = (others or [alarm])[-1], told[-1]
    assert isinstance(told[0], wire.Reflex)
    assert [(step.rank, step.on, step.cookie) for step in reflex] == [
        (0, True, 70), (1, True, 71), (0, False, 70), (1, False, 71),
    ]  # fmt: skip
    assert (alarm.port.port_no, alarm.port.name.decode()) == (2, bench.port(2))
    assert (alarm.cookie, alarm.priority) == (0xC0, 3)
    assert alarm.port_buf_pkts > 20
    assert alarm.non_tcp_percent == 0
    assert alarm.crossing_ns <= last.crossing_ns < normal.crossing_ns
    assert abs(reflex[0].when_ns - alarm.crossing_ns) < 1_000_000


def test_a_queue_of_pings_raises_the_alarm_and_activates_no_entry(bench: Bench, joined: Controller) -> None:
    shape(bench.port(2), "2mbit")
    await_queue(bench)
    arm(joined)
    assert bench.ping()
    flood = ("ping", "-q", "-f", "-l", "60", "-c", "60", "-s", "1400", "-W", "1", "10.77.0.2")
    run(*bench.inside(1, *flood))
    told = events_until_normal(joined)
    alarms = [message for message in told if isinstance(message, wire.BufAlarm)]
    assert len(alarms) == len(told) - 1, "no entry was activated"
    assert all(alarm.non_tcp_percent > 90 for alarm in alarms)


def test_flows_are_reported_from_opening_to_end(bench: Bench, joined: Controller) -> None:
    joined.send(flow_mod({}, [FLOOD], xid=4))
    kinds = wire.FlowKinds.OPENED | wire.FlowKinds.CLOSED
    joined.send(wire.encode_message(wire.FlowReportConfig(kinds, interval_ms=10), xid=5))
    assert joined.barrier() == []
    bench.connect_once(8080)
    records: list[wire.FlowRecord] = []
    while len(records) < 4:
        report = joined.event()
        assert isinstance(report, wire.FlowReport)
        assert report.lost == 0
        records += report.records
    client = {record.kind: record for record in records if record.dst_port == 8080}
    opened, closed = client[wire.FlowKind.OPENED], client[wire.FlowKind.CLOSED]
    assert (str(opened.src), str(opened.dst)) == ("10.77.0.1", "10.77.0.2")
    assert (opened.out_port, closed.reason) == (2, wire.CloseReason.FIN)
    assert closed.sent_bytes > opened.sent_bytes
    with contextlib.closing(PinnedMaps(bench.name)) as maps:
        (behind_2,) = (f for f in maps.flows() if f.local == "10.77.0.2" and f.local_port == 8080)
    assert (behind_2.counted, behind_2.remote) == (False, "10.77.0.1")
    assert behind_2.state in ("closing", "reset"), "an RST may follow the FINs"
    assert behind_2.sent_bytes >= closed.sent_bytes, "segments may follow the FINs"
