"""The fabric's entries and questions as OpenFlow messages, built for a datapath of OpenFlow 1.3 or 1.5.

Adding an entry that is there already changes nothing for traffic, so a controller that comes back puts them
all again. The lower half of their cookie is the controller's generation: by it leftovers are told apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fabric_app.pipeline import COOKIE_FABRIC, COOKIE_MASK, TABLE_EVENTS, TABLE_FORWARDING
from fabric_app.routes import Entry
from openflow_ext.wire import FlowKinds

_WHOLE_COOKIE = 0xFFFF_FFFF_FFFF_FFFF
_ALL_REPORTS = FlowKinds.OPENED | FlowKinds.ACTIVE | FlowKinds.IDLE | FlowKinds.CLOSED


@dataclass(slots=True)
class Inherited:
    """What entries of earlier controllers tell: hosts (MAC, port number), link ports, generations."""

    hosts: list[tuple[str, int]] = field(default_factory=list)
    link_ports: list[int] = field(default_factory=list)
    generations: set[int] = field(default_factory=set)


def add(datapath: Any, entry: Entry, generation: int) -> Any:
    """Adds an entry, or replaces the one in its place."""
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    actions = [parser.OFPActionOutput(port_no, 0) for port_no in entry.out]
    if entry.to_controller:
        actions.append(parser.OFPActionOutput(ofp.OFPP_CONTROLLER, entry.to_controller))
    instructions = []
    if actions:
        instructions.append(parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions))
    if entry.metadata:
        instructions.append(parser.OFPInstructionWriteMetadata(*entry.metadata))
    if entry.goto is not None:
        instructions.append(parser.OFPInstructionGotoTable(entry.goto))
    return parser.OFPFlowMod(
        datapath,
        cookie=COOKIE_FABRIC | generation,
        table_id=entry.table,
        priority=entry.priority,
        idle_timeout=entry.idle_s,
        match=parser.OFPMatch(**dict(entry.match)),
        instructions=instructions,
    )


def delete(datapath: Any, entry: Entry) -> Any:
    """Deletes the entry in this one's place."""
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    return _delete(
        datapath,
        COOKIE_FABRIC,
        COOKIE_MASK,
        table_id=entry.table,
        command=ofp.OFPFC_DELETE_STRICT,
        priority=entry.priority,
        match=parser.OFPMatch(**dict(entry.match)),
    )


def delete_all(datapath: Any, table_id: int, cookie: int) -> Any:
    """Deletes the entries of one app, by the upper half of its cookie, in a table."""
    return _delete(datapath, cookie, COOKIE_MASK, table_id=table_id)


def sweep(datapath: Any, generation: int) -> Any:
    """Deletes the entries that an earlier controller left."""
    return _delete(datapath, COOKIE_FABRIC | generation, _WHOLE_COOKIE, table_id=datapath.ofproto.OFPTT_ALL)


def ask_entries(datapath: Any) -> Any:
    """Asks for the fabric's entries: an earlier controller's are taken over."""
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    request = getattr(parser, "OFPFlowDescStatsRequest", parser.OFPFlowStatsRequest)  # 1.5, 1.3
    return request(datapath, 0, ofp.OFPTT_ALL, ofp.OFPP_ANY, ofp.OFPG_ANY, COOKIE_FABRIC, COOKIE_MASK)


def inherited(statistics: Iterable[Any], generation: int) -> Inherited:
    """What the reply to ``ask_entries`` tells of others than this controller."""
    found = Inherited()
    for entry in statistics:
        own = entry.cookie & ~COOKIE_MASK
        if entry.cookie & COOKIE_MASK != COOKIE_FABRIC or own == generation:
            continue
        found.generations.add(own)
        mac, in_port = entry.match.get("eth_dst"), entry.match.get("in_port")
        if entry.table_id == TABLE_EVENTS and in_port is not None and entry.match.get("eth_src") is None:
            found.link_ports.append(in_port)
        if entry.table_id == TABLE_FORWARDING and isinstance(mac, str):
            actions = [a for i in entry.instructions for a in getattr(i, "actions", [])]
            found.hosts += [(mac, action.port) for action in actions]
    return found


def ask_reports(datapath: Any, interval_ms: int, active_ms: int) -> Any:
    """Has the switch report flows; one without the extension answers with an error."""
    return datapath.ofproto_parser.OFPFlowReportConfig(
        datapath, kinds=_ALL_REPORTS, interval_ms=interval_ms, active_ms=active_ms
    )


def barrier(datapath: Any) -> Any:
    """Asks the switch to tell when it has done all before."""
    return datapath.ofproto_parser.OFPBarrierRequest(datapath)


def packet_out(datapath: Any, ports: Iterable[int], frame: bytes) -> Any:
    """Sends ``frame`` out of ports."""
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    actions = [parser.OFPActionOutput(port_no, 0) for port_no in ports]
    common = {"buffer_id": ofp.OFP_NO_BUFFER, "actions": actions, "data": frame}
    if ofp.OFP_VERSION >= 0x06:
        match = parser.OFPMatch(in_port=ofp.OFPP_CONTROLLER)
        return parser.OFPPacketOut(datapath, match=match, **common)
    return parser.OFPPacketOut(datapath, in_port=ofp.OFPP_CONTROLLER, **common)


def is_up(datapath: Any, port: Any) -> bool:
    """Whether a port carries frames."""
    ofp = datapath.ofproto
    return not port.config & ofp.OFPPC_PORT_DOWN and not port.state & ofp.OFPPS_LINK_DOWN


def _delete(datapath: Any, cookie: int, cookie_mask: int, **fields: Any) -> Any:
    ofp = datapath.ofproto
    return datapath.ofproto_parser.OFPFlowMod(
        datapath,
        cookie=cookie,
        cookie_mask=cookie_mask,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        **({"command": ofp.OFPFC_DELETE} | fields),
    )
