"""FLOW_MODs and their answers, serialized and parsed by Ryu."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ryu.ofproto import ofproto_parser, ofproto_v1_3_parser
from ryu.ofproto import ofproto_v1_3 as ofproto

from openflow_ext import wire

parser: Any = ofproto_v1_3_parser
datapath: Any = SimpleNamespace(ofproto=ofproto, ofproto_parser=parser, id=1, address=("127.0.0.1", 1))

TCP4 = {"eth_type": 0x0800, "ip_proto": 6}
APPLY, WRITE = ofproto.OFPIT_APPLY_ACTIONS, ofproto.OFPIT_WRITE_ACTIONS


def ext(action: wire.Action) -> Any:
    """An extension action in a form that Ryu puts into an instruction."""
    return ext_raw(wire.encode_action(action))


def ext_raw(raw: bytes) -> Any:
    """An experimenter action from its bytes."""
    return parser.OFPActionExperimenterUnknown(int.from_bytes(raw[4:8], "big"), raw[8:])


def output(port: int) -> Any:
    return parser.OFPActionOutput(port, 0)


def instruction(kind: int, *actions: Any) -> Any:
    return parser.OFPInstructionActions(kind, list(actions))


def serialized(message: Any, xid: int = 1) -> bytes:
    message.set_xid(xid)
    message.serialize()
    return bytes(message.buf)


def flow_mod(
    match: dict[str, Any] | None = None,
    actions: list[Any] | None = None,
    instructions: list[Any] | None = None,
    xid: int = 1,
    **fields: Any,
) -> bytes:
    """A FLOW_MOD; ``actions`` go into one apply-actions instruction."""
    if instructions is None:
        instructions = [instruction(APPLY, *actions)] if actions else []
    match = TCP4 if match is None else match
    fields = {"out_port": ofproto.OFPP_ANY, "out_group": ofproto.OFPG_ANY, **fields}
    message = parser.OFPFlowMod(datapath, match=parser.OFPMatch(**match), instructions=instructions, **fields)
    return serialized(message, xid)


def parsed(data: bytes) -> Any:
    """A message as Ryu parses it, also one that only a controller sends."""
    version, of_type, length, xid = ofproto_parser.header(data)
    assert length == len(data)
    return parser.msg_parser(datapath, version, of_type, length, xid, data)
