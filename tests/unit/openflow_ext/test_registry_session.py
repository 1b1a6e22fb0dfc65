"""A real controller process and a switch on a socket: events arrive, malformed messages do no harm."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openflow_ext import engine, wire
from tests.support.controllers.processes import connect, controller, free_port
from tests.support.openflow.installed_engine import FLOW_4, FLOW_6

pytestmark = pytest.mark.timeout(60)

HELLO, ECHO_REQUEST, ECHO_REPLY, FEATURES_REQUEST, FEATURES_REPLY = 0, 2, 3, 5, 6
FLOW_REMOVED, FLOW_MOD = 11, 14
PORT_DESC = 13
DPID = 0x2A
FAILS = 13
"""The app raises an exception at an alarm with this N_i."""
PORT = wire.OfpPort(3, "0a:00:00:00:00:03", b"s1-eth3")
CONFIG = wire.PortConfig(3, wire.PortConfigFlags.ALARM, k_pkts=30, rtt_us=250)

APP = """
import json
from openflow_ext import registry, wire
from openflow_ext.engine import App, MAIN_DISPATCHER, ofp_event, set_ev_cls

registry.install()

class Probe(App):
    OFP_VERSIONS = [VERSION]

    def report(self, ev, **values):
        dropped = registry.malformed[ev.msg.datapath.id]
        print("PROBE", json.dumps({"event": type(ev).__name__, "dropped": dropped, **values}), flush=True)

    @set_ev_cls(ofp_event.EventOFPBufAlarm, MAIN_DISPATCHER)
    def alarm(self, ev):
        if ev.msg.n_i == 13:
            raise LookupError("a defect of the app")
        self.report(ev, port=ev.msg.port.port_no, name=ev.msg.port.name.decode(), n_i=ev.msg.n_i)
        datapath = ev.msg.datapath
        parser, ofproto = datapath.ofproto_parser, datapath.ofproto
        datapath.send_msg(parser.OFPPortConfig(datapath, port_no=3, flags=1, k_pkts=30, rtt_us=250))
        datapath.send_msg(parser.OFPPortCountersRequest(datapath, 0, 3))
        actions = [parser.OFPActionModWindow(window=1536, alpha=5)]
        apply = parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)
        match = parser.OFPMatch(eth_type=0x800, ip_proto=6, tcp_window=(0, 0xff00))
        datapath.send_msg(parser.OFPFlowMod(datapath, match=match, instructions=[apply]))
        datapath.send_msg(parser.OFPFlowReportConfig(datapath, kinds=wire.FlowKinds.OPENED, interval_ms=10))

    @set_ev_cls(ofp_event.EventOFPFlowReport, MAIN_DISPATCHER)
    def flows(self, ev):
        self.report(ev, src=[str(record.src) for record in ev.msg.records], lost=ev.msg.lost)
        datapath = ev.msg.datapath
        parser = datapath.ofproto_parser
        entries = [parser.OFPArmEntry(record.dst, record.src, record.dst_port, record.src_port, 1536)
                   for record in ev.msg.records]
        datapath.send_msg(parser.OFPArm(datapath, 3, entries))

    @set_ev_cls(ofp_event.EventOFPReflex, MAIN_DISPATCHER)
    def reflex(self, ev):
        self.report(ev, rank=ev.msg.rank, on=ev.msg.on)

    @set_ev_cls(ofp_event.EventOFPBufNormal, MAIN_DISPATCHER)
    def normal(self, ev):
        self.report(ev, crossing_ns=ev.msg.crossing_ns)

    @set_ev_cls(ofp_event.EventOFPPortConfigReply, MAIN_DISPATCHER)
    def configured(self, ev):
        self.report(ev, xid=ev.msg.xid, capacity_bps=ev.msg.capacity_bps)

    @set_ev_cls(ofp_event.EventOFPPortCountersReply, MAIN_DISPATCHER)
    def counters(self, ev):
        self.report(ev, n_i=[record.n_i for record in ev.msg.body])

    @set_ev_cls(ofp_event.EventOFPErrorMsg, MAIN_DISPATCHER)
    def refused(self, ev):
        self.report(ev, code=wire.ErrorCode(ev.msg.exp_type).name)
"""


class Switch:
    """The switch's end of an OpenFlow session."""

    def __init__(self, connection: socket.socket, process: subprocess.Popen[str], version: int) -> None:
        self.version = version
        self._connection = connection
        self._stream = connection.makefile("rb")
        self._process = process

    def send(self, of_type: int, body: bytes = b"", xid: int = 0) -> None:
        self.send_raw(struct.pack("!BBHI", self.version, of_type, 8 + len(body), xid) + body)

    def send_raw(self, data: bytes) -> None:
        self._connection.sendall(data)

    def send_message(self, message: wire.Message, xid: int = 0) -> None:
        self.send_raw(wire.encode_message(message, self.version, xid))

    def wait_for(self, *of_types: int) -> bytes:
        """The next message of one of the types; others are skipped."""
        while True:
            head = self._stream.read(8)
            assert len(head) == 8, "the controller closed the session"
            data = head + self._stream.read(wire.decode_header(head).length - 8)
            if data[1] in of_types:
                return data

    def handshake(self) -> None:
        self.send(HELLO)
        xid = wire.decode_header(self.wait_for(FEATURES_REQUEST)).xid
        self.send(FEATURES_REPLY, struct.pack("!QIBBxxII", DPID, 0, 8, 0, 0, 0), xid)
        request = self.wait_for(wire.OFPT_MULTIPART_REQUEST)
        body = struct.pack("!HHI", PORT_DESC, 0, 0) + wire.encode_port(PORT, self.version)
        self.send(wire.OFPT_MULTIPART_REPLY, body, wire.decode_header(request).xid)

    def said(self, text: str) -> bool:
        """Whether the controller writes a line that contains ``text``. The lines before it are read."""
        assert self._process.stdout
        return any(text in line for line in self._process.stdout)

    def reported(self) -> dict[str, Any]:
        """The next event that the application reports."""
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("PROBE "):
                found: dict[str, Any] = json.loads(line.removeprefix("PROBE "))
                return found
        raise AssertionError("the controller ended")


@pytest.fixture(params=itertools.product(engine.ENGINES, (wire.OFP13, wire.OFP15)), ids=str)
def switch(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Switch]:
    app = tmp_path / "probe_app.py"
    name, version = request.param
    app.write_text(APP.replace("VERSION]", f"{version}]"))
    port = free_port()
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(controller(name, app, port))
        switch = Switch(stack.enter_context(connect(port, process)), process, version)
        switch.handshake()
        yield switch


def alarm(n_i: int) -> wire.BufAlarm:
    return wire.BufAlarm(PORT, 31, 46934, 10**8, n_i=n_i)


def alarm_report(n_i: int, dropped: int) -> dict[str, Any]:
    return {"event": "EventOFPBufAlarm", "dropped": dropped, "port": 3, "name": "s1-eth3", "n_i": n_i}


def test_a_session_survives_malformed_messages(switch: Switch) -> None:
    switch.send_message(alarm(1))
    assert switch.reported() == alarm_report(1, dropped=0)
    cut = wire.encode_message(alarm(2), switch.version)[:100]
    switch.send_raw(cut[:2] + len(cut).to_bytes(2, "big") + cut[4:])
    switch.send(wire.OFPT_EXPERIMENTER, wire.WEIR_EXPERIMENTER_ID.to_bytes(4, "big"))
    switch.send(wire.OFPT_EXPERIMENTER, struct.pack("!II", wire.WEIR_EXPERIMENTER_ID, 99))
    switch.send(wire.OFPT_EXPERIMENTER, struct.pack("!II", 0x2320, 99))
    switch.send(wire.OFPT_EXPERIMENTER, b"\0")
    switch.send_message(alarm(3))
    assert switch.reported() == alarm_report(3, dropped=4)
    switch.send(ECHO_REQUEST, b"still there?", xid=77)
    assert switch.wait_for(ECHO_REPLY)[8:] == b"still there?"


def test_an_exception_in_a_handler_is_logged_and_does_not_end_its_app(switch: Switch) -> None:
    for _ in range(200):  # more than an app's queue holds
        switch.send_message(alarm(FAILS))
    switch.send_message(alarm(3))
    assert switch.said("LookupError: a defect of the app")
    assert switch.reported() == alarm_report(3, dropped=0)


def test_an_app_configures_a_port_reads_counters_and_clamps(switch: Switch) -> None:
    switch.send_message(alarm(1))
    switch.reported()
    data = switch.wait_for(wire.OFPT_EXPERIMENTER)
    assert wire.decode_message(data) == CONFIG
    xid = wire.decode_header(data).xid
    switch.send_message(wire.PortConfigReply(3, capacity_bps=10**8), xid=xid)
    report = {"event": "EventOFPPortConfigReply", "dropped": 0, "xid": xid, "capacity_bps": 10**8}
    assert switch.reported() == report

    data = switch.wait_for(wire.OFPT_MULTIPART_REQUEST)
    assert wire.decode_message(data) == wire.PortCountersRequest(3)
    reply = wire.PortCountersReply((wire.PortCountersRecord(3, n_i=40),))
    switch.send_message(reply, xid=wire.decode_header(data).xid)
    assert switch.reported() == {"event": "EventOFPPortCountersReply", "dropped": 0, "n_i": [40]}

    data = switch.wait_for(FLOW_MOD)
    assert wire.encode_action(wire.ModWindow(1536, 5)) in data
    assert wire.encode_field(wire.TcpWindow(0, 0xFF00)) in data

    data = switch.wait_for(wire.OFPT_EXPERIMENTER)
    assert wire.decode_message(data) == wire.FlowReportConfig(wire.FlowKinds.OPENED, interval_ms=10)


def test_an_app_receives_flow_reports_and_arms_entries(switch: Switch) -> None:
    switch.send_message(wire.FlowReport((FLOW_4, FLOW_6), lost=5))
    report = {"event": "EventOFPFlowReport", "dropped": 0, "lost": 5}
    assert switch.reported() == {**report, "src": ["10.0.0.2", "2001:db8::2"]}
    entries = [wire.ArmEntry(f.dst, f.src, f.dst_port, f.src_port, 1536) for f in (FLOW_4, FLOW_6)]
    assert wire.decode_message(switch.wait_for(wire.OFPT_EXPERIMENTER)) == wire.Arm(3, tuple(entries))
    switch.send_message(wire.Reflex(3, 1, on=True))
    assert switch.reported() == {"event": "EventOFPReflex", "dropped": 0, "rank": 1, "on": True}


def test_native_alarms_arrive_in_13_and_malformed_messages_of_their_types_are_dropped(switch: Switch) -> None:
    if switch.version == wire.OFP15:
        framed = wire.encode_message(alarm(1), wire.OFP15, framing="native")
        assert framed == wire.encode_message(alarm(1), wire.OFP15)
    else:
        framed = wire.encode_message(alarm(1), framing="native")
    switch.send(30, bytes(50))  # in 1.5 a role status with a property of length 0, which hangs plain Ryu
    switch.send(99)
    before_match = bytes(40 if switch.version == wire.OFP13 else 16)
    truncated_match = b"\0\1\0\x0c\x80\0\x16\4"  # it ends a 1.3 session of plain Ryu
    switch.send(FLOW_REMOVED, before_match + truncated_match)
    switch.send_raw(framed)
    assert switch.reported() == alarm_report(1, dropped=3)
    switch.send(ECHO_REQUEST, b"still there?", xid=77)
    assert switch.wait_for(ECHO_REPLY)[8:] == b"still there?"


def test_errors_and_normals_reach_the_app(switch: Switch) -> None:
    switch.send_message(wire.ExperimenterError(wire.ErrorCode.NO_DATAPLANE, bytes(64)))
    assert switch.reported() == {"event": "EventOFPErrorMsg", "dropped": 0, "code": "NO_DATAPLANE"}
    switch.send_message(wire.BufNormal(PORT, 4, 6056, 10**8, crossing_ns=5))
    assert switch.reported() == {"event": "EventOFPBufNormal", "dropped": 0, "crossing_ns": 5}
