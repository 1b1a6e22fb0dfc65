"""An engine with the extension installed, and an example of every message and action."""

from __future__ import annotations

from dataclasses import fields
from ipaddress import IPv4Address, IPv6Address
from types import SimpleNamespace
from typing import Any

from openflow_ext import engine, registry, wire

NO_STATS = b"\0\0\0\4\0\0\0\0"
EMPTY_MATCH = b"\0\1\0\4\0\0\0\0"
WIRE_PORT = wire.OfpPort(3, "0a:00:00:00:00:03", b"s1-eth3", state=4, curr=0x840, curr_speed=10**7)
FLOW_4 = wire.FlowRecord(
    wire.FlowKind.OPENED, IPv4Address("10.0.0.2"), IPv4Address("10.0.0.1"), 40000, 80, 1, 2, 7, 9, 1460
)
FLOW_6 = wire.FlowRecord(
    *(wire.FlowKind.CLOSED, IPv6Address("2001:db8::2"), IPv6Address("2001:db8::1"), 40001, 80, 1),
    reason=wire.CloseReason.SILENT,
)


class Engine:
    """An engine with the extension installed, and a datapath of one OpenFlow version."""

    def __init__(self, name: str, version: int = wire.OFP13) -> None:
        registry.install(name)
        registry.log_limit.clear()
        self.name = name
        self.version = version
        self.suffix = {wire.OFP13: "v1_3", wire.OFP15: "v1_5"}[version]
        self.parser: Any = engine.load(f"ofproto.ofproto_{self.suffix}_parser", name)
        self.ofproto: Any = engine.load(f"ofproto.ofproto_{self.suffix}", name)
        self.ofproto_parser: Any = engine.load("ofproto.ofproto_parser", name)
        self.ofp_event: Any = engine.load("controller.ofp_event", name)
        self.closed = 0
        self.datapath = SimpleNamespace(
            ofproto=self.ofproto,
            ofproto_parser=self.parser,
            id=0x2A,
            address=("127.0.0.1", 6653),
            close=self._close,
        )

    def _close(self) -> None:
        self.closed += 1

    def receive(self, data: bytes) -> Any:
        """Parse a message as an engine's receive loop does."""
        header = wire.decode_header(data)
        return self.ofproto_parser.msg(
            self.datapath, header.version, header.type, header.length, header.xid, bytearray(data)
        )

    def encode(self, message: wire.Message, xid: int = 0) -> bytes:
        return wire.encode_message(message, self.version, xid)

    def port(self) -> Any:
        """WIRE_PORT as the engine's own parser makes it."""
        return self.parser.OFPPort.parser(wire.encode_port(WIRE_PORT, self.version), 0)

    def messages(self) -> list[tuple[Any, wire.Message]]:
        """Each message as an app builds it, with the wire message that it must serialize to."""
        parser, datapath = self.parser, self.datapath
        config = {"port_no": 3, "flags": 13, "k_pkts": 30, "mark_mode": 2, "cookie": 7}
        counters = range(len(fields(wire.PortCountersRecord)))
        record = wire.PortCountersRecord(*counters)  # type: ignore[arg-type]
        return [
            (
                parser.OFPBufAlarm(datapath, self.port(), 31, 46934, 10**8, n_i=4),
                wire.BufAlarm(WIRE_PORT, 31, 46934, 10**8, n_i=4),
            ),
            (parser.OFPBufNormal(datapath, self.port(), 1, 2, 3), wire.BufNormal(WIRE_PORT, 1, 2, 3)),
            (parser.OFPPortConfig(datapath, **config), wire.PortConfig(**config)),  # type: ignore[arg-type]
            (parser.OFPPortConfigReply(datapath, **config), wire.PortConfigReply(**config)),  # type: ignore[arg-type]
            (parser.OFPFlowReport(datapath, [FLOW_4, FLOW_6], 2), wire.FlowReport((FLOW_4, FLOW_6), 2)),
            (parser.OFPFlowReport(datapath), wire.FlowReport()),
            (
                parser.OFPFlowReportConfig(datapath, kinds=18, interval_ms=10),
                wire.FlowReportConfig(wire.FlowKinds.OPENED | wire.FlowKinds.CLOSED, 10),
            ),
            (
                parser.OFPArm(datapath, 3, [parser.OFPArmEntry(*FLOW_4[1:5], 1536, alpha=3)]),
                wire.Arm(3, (wire.ArmEntry(*FLOW_4[1:5], 1536, alpha=3),)),
            ),
            (parser.OFPArm(datapath, port_no=3), wire.Arm(3)),
            (parser.OFPReflex(datapath, 3, 1, True, 40), wire.Reflex(3, 1, True, 40)),
            (parser.OFPPortCountersRequest(datapath, 0, 3), wire.PortCountersRequest(3)),
            (
                parser.OFPPortCountersReply(datapath, [parser.OFPPortCounters(*counters)], flags=1),
                wire.PortCountersReply((record,), more=True),
            ),
        ]

    def actions(self) -> list[tuple[Any, wire.Action]]:
        parser = self.parser
        return [
            (parser.OFPActionModWindow(window=1536, alpha=3), wire.ModWindow(1536, 3)),
            (parser.OFPActionModWindow(1536), wire.ModWindow(1536, 5)),
            (parser.OFPActionIncrementNi(), wire.IncrementNi(wire.OFPP_ANY)),
            (parser.OFPActionDecrementNi(port=3), wire.DecrementNi(3)),
            (parser.OFPActionSetWindow(), wire.SetWindow(wire.FAIR_SHARE)),
            (parser.OFPActionSetWindow(value=2048), wire.SetWindow(2048)),
            (parser.OFPActionObserve(), wire.Observe()),
        ]

    def flow_stats(self, action: bytes, match: bytes = EMPTY_MATCH) -> bytes:
        """A reply with one flow entry of one action: flow statistics, in 1.5 flow descriptions."""
        inner = (4).to_bytes(2, "big") + (8 + len(action)).to_bytes(2, "big") + bytes(4) + action
        tail = match + inner if self.version == wire.OFP13 else match + NO_STATS + inner
        head = bytes(46) if self.version == wire.OFP13 else bytes(22)
        entry = (2 + len(head) + len(tail)).to_bytes(2, "big") + head + tail
        body = b"\0\1\0\0\0\0\0\0" + entry
        return bytes([self.version, 0x13]) + (8 + len(body)).to_bytes(2, "big") + bytes(4) + body
