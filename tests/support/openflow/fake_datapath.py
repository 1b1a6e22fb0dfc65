"""A datapath that builds and serializes real messages, and records them instead of sending them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from openflow_ext import registry
from openflow_ext.engine import ofproto_v1_3, ofproto_v1_3_parser, ofproto_v1_5, ofproto_v1_5_parser
from tests.support.openflow.scripted_switch import FLOW_MOD, PACKET_OUT, FlowMod, parse_flow_mod

registry.install()
_VERSIONS = {4: (ofproto_v1_3, ofproto_v1_3_parser), 6: (ofproto_v1_5, ofproto_v1_5_parser)}


class FakeDatapath:
    """``sent`` holds the messages. Each is serialized, so a value that cannot be sent is an error here."""

    address = ("127.0.0.1", 1)

    def __init__(self, dpid: int = 1, version: int = 4) -> None:
        self.id = dpid
        self.sent: list[Any] = []
        self.xid = 0
        self.ofproto, self.ofproto_parser = _VERSIONS[version]

    def set_xid(self, msg: Any) -> None:
        self.xid += 1
        msg.set_xid(self.xid)

    def send_msg(self, msg: Any) -> bool:
        msg.datapath = self
        if msg.xid is None:
            self.set_xid(msg)
        msg.serialize()
        self.sent.append(msg)
        return True

    def send(self, buf: bytes) -> bool:
        """PACKET_OUTs of OpenFlow 1.3 or 1.5, serialized before."""
        while buf:
            size = int.from_bytes(buf[2:4], "big")
            assert (buf[1], 8 <= size <= len(buf)) == (PACKET_OUT, True)
            data = _frame_of(buf[:size])
            self.sent.append(SimpleNamespace(msg_type=PACKET_OUT, buf=buf[:size], data=data))
            buf = buf[size:]
        return True

    def flow_mods(self) -> list[FlowMod]:
        """The FLOW_MODs in ``sent``, parsed from their bytes."""
        return [parse_flow_mod(bytes(m.buf)) for m in self.sent if m.msg_type == FLOW_MOD]


def _frame_of(packet_out: bytes) -> bytes:
    """The frame of a PACKET_OUT; it is behind the match (1.5) and the actions."""
    if packet_out[0] == ofproto_v1_3.OFP_VERSION:
        return packet_out[24 + int.from_bytes(packet_out[16:18], "big") :]
    match_bytes = (int.from_bytes(packet_out[18:20], "big") + 7) // 8 * 8
    return packet_out[16 + match_bytes + int.from_bytes(packet_out[12:14], "big") :]


def event(datapath: FakeDatapath, **fields: Any) -> SimpleNamespace:
    """An event with a message, as a framework gives it to a handler."""
    fields = {"datapath_id": datapath.id, **fields}
    return SimpleNamespace(msg=SimpleNamespace(datapath=datapath, **fields))
