"""The fabric's entries and requests as OpenFlow messages, built for a datapath of OpenFlow 1.3 or 1.5.

If a switch has an entry, adding it again changes nothing for traffic. So a controller that restarts sends
all its entries again. The lower half of the cookie is the controller's generation, which identifies older
entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from app_base.app import Refusal
from app_base.pipeline import COOKIE_MASK, FABRIC_COOKIE
from fabric_app.flow_entries import Entry
from fabric_app.meters import Found, Meter
from fabric_app.tables import LAYOUTS
from openflow_ext.wire import OFPP_ANY, FlowKinds, PortConfigFlags

_OFPET_METER_MOD_FAILED = 12
_OFPMMFC_METER_EXISTS, _OFPMMFC_UNKNOWN_METER = 1, 3
_WHOLE_COOKIE = 0xFFFF_FFFF_FFFF_FFFF
_EVENTS_TABLES = {tables.events for tables in LAYOUTS}
_FORWARDING_TABLES = {tables.forwarding for tables in LAYOUTS}
_ALL_REPORTS = FlowKinds.OPENED | FlowKinds.ACTIVE | FlowKinds.IDLE | FlowKinds.CLOSED


@dataclass(slots=True)
class Inherited:
    """The content of earlier controllers' entries: hosts (MAC, port number), link ports, generations.

    ``own``: whether there are entries of this controller, too.
    """

    hosts: list[tuple[str, int]] = field(default_factory=list)
    link_ports: list[int] = field(default_factory=list)
    generations: set[int] = field(default_factory=set)
    own: bool = False


def add(datapath: Any, entry: Entry, generation: int) -> Any:
    """Adds an entry, or replaces the entry in its place."""
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    actions = [parser.OFPActionOutput(port_no, 0) for port_no in entry.out]
    if entry.also is not None:
        actions.append(parser.NXActionResubmitTable(table_id=entry.also))
    if entry.meter:
        actions.append(parser.NXActionController2(max_len=entry.to_controller, meter_id=entry.meter))
    elif entry.to_controller:
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
        cookie=FABRIC_COOKIE | generation,
        table_id=entry.table,
        priority=entry.priority,
        idle_timeout=entry.idle_s,
        match=parser.OFPMatch(**dict(entry.match)),
        instructions=instructions,
    )


def delete(datapath: Any, entry: Entry) -> Any:
    """Deletes the entry in a place."""
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    return _delete(
        datapath,
        FABRIC_COOKIE,
        COOKIE_MASK,
        table_id=entry.table,
        command=ofp.OFPFC_DELETE_STRICT,
        priority=entry.priority,
        match=parser.OFPMatch(**dict(entry.match)),
    )


def sweep(datapath: Any, generation: int) -> Any:
    """Deletes the entries of an earlier controller."""
    return _delete(datapath, FABRIC_COOKIE | generation, _WHOLE_COOKIE, table_id=datapath.ofproto.OFPTT_ALL)


def inherited(statistics: Iterable[Any], generation: int) -> Inherited:
    """The content of the fabric's entries, as a switch states them, without this controller's own ones."""
    found = Inherited()
    for entry in statistics:
        if entry.cookie & COOKIE_MASK != FABRIC_COOKIE:
            continue
        if (of := entry.cookie & ~COOKIE_MASK) == generation:
            found.own = True
            continue
        found.generations.add(of)
        mac, in_port = entry.match.get("eth_dst"), entry.match.get("in_port")
        if entry.table_id in _EVENTS_TABLES and in_port is not None and entry.match.get("eth_src") is None:
            found.link_ports.append(in_port)
        if entry.table_id in _FORWARDING_TABLES and isinstance(mac, str):
            actions = [a for i in entry.instructions for a in getattr(i, "actions", [])]
            found.hosts += [(mac, action.port) for action in actions]
    return found


def ask_reports(datapath: Any, interval_ms: int, active_ms: int) -> Any:
    """Asks the switch to report flows. A switch without the extension answers with an error."""
    return datapath.ofproto_parser.OFPFlowReportConfig(
        datapath, kinds=_ALL_REPORTS, interval_ms=interval_ms, active_ms=active_ms
    )


def switch(datapath: Any, off: bool) -> Any:
    """Turns all ports of a switch off or on. A switch without the extension answers with an error."""
    return datapath.ofproto_parser.OFPPortConfig(
        datapath, port_no=OFPP_ANY, flags=PortConfigFlags.SWITCH, off=off
    )


def ask_meter_features(datapath: Any) -> Any:
    """Asks for what the meters of the switch can do. A switch may answer with an error."""
    return datapath.ofproto_parser.OFPMeterFeaturesStatsRequest(datapath, 0)


def ask_meters(datapath: Any) -> Any:
    """Asks for the configuration of all meters."""
    parser, every = datapath.ofproto_parser, datapath.ofproto.OFPM_ALL
    if datapath.ofproto.OFP_VERSION >= 0x06:
        return parser.OFPMeterDescStatsRequest(datapath, 0, every)
    return parser.OFPMeterConfigStatsRequest(datapath, 0, every)


def ask_meter_counts(datapath: Any, meter_id: int) -> Any:
    """Asks for the counters of a meter. A switch without it answers with an error."""
    return datapath.ofproto_parser.OFPMeterStatsRequest(datapath, 0, meter_id)


def is_last(reply: Any) -> bool:
    """Whether no further message of the same multipart reply follows."""
    return not reply.flags & reply.datapath.ofproto.OFPMPF_REPLY_MORE


def most_meters(datapath: Any, features: Iterable[Any]) -> int:
    """The greatest id of a meter that can drop packets above a rate and a burst; 0 if there is none."""
    ofp = datapath.ofproto
    for feature in features:
        can_drop = feature.band_types >> ofp.OFPMBT_DROP & 1 and feature.max_bands
        if can_drop and feature.capabilities & _meter_flags(ofp) == _meter_flags(ofp):
            return int(feature.max_meter)
    return 0


def found_meter(datapath: Any, config: Any) -> Found:
    """A meter as a switch describes it."""
    ofp = datapath.ofproto
    if config.flags == _meter_flags(ofp) and [band.type for band in config.bands] == [ofp.OFPMBT_DROP]:
        return Found(config.meter_id, config.bands[0].rate, config.bands[0].burst_size)
    return Found(config.meter_id)


def dropped_by(meter_id: int, statistics: Iterable[Any]) -> int | None:
    """The number of packets that a meter has dropped; None if the statistics do not show it."""
    for meter in statistics:
        if meter.meter_id == meter_id:
            return int(sum(band.packet_band_count for band in meter.band_stats))
    return None


def put_meter(datapath: Any, meter: Meter) -> Any:
    """Adds a meter that drops packets above its rate, or modifies it if it exists."""
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    band = parser.OFPMeterBandDrop(rate=meter.per_s, burst_size=meter.burst)
    command = ofp.OFPMC_MODIFY if meter.exists else ofp.OFPMC_ADD
    return parser.OFPMeterMod(datapath, command, _meter_flags(ofp), meter.id, [band])


def delete_meter(datapath: Any, meter_id: int) -> Any:
    """Deletes a meter. A switch refuses nothing if there is none."""
    ofp = datapath.ofproto
    return datapath.ofproto_parser.OFPMeterMod(datapath, ofp.OFPMC_DELETE, 0, meter_id, [])


def is_unknown_meter(refusal: Refusal) -> bool:
    """Whether a switch has no meter with this id (OFPMMFC_UNKNOWN_METER)."""
    return (refusal.type, refusal.code) == (_OFPET_METER_MOD_FAILED, _OFPMMFC_UNKNOWN_METER)


def is_meter_in_use(refusal: Refusal) -> bool:
    """Whether a meter was refused because its id is in use (OFPMMFC_METER_EXISTS)."""
    return (refusal.type, refusal.code) == (_OFPET_METER_MOD_FAILED, _OFPMMFC_METER_EXISTS)


def _meter_flags(ofp: Any) -> int:
    return int(ofp.OFPMF_PKTPS | ofp.OFPMF_BURST | ofp.OFPMF_STATS)


def packet_out(datapath: Any, ports: Iterable[int], frame: bytes) -> Any:
    """Sends ``frame`` out of ports."""
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    actions = [parser.OFPActionOutput(port_no, 0) for port_no in ports]
    common = {"buffer_id": ofp.OFP_NO_BUFFER, "actions": actions, "data": frame}
    if ofp.OFP_VERSION >= 0x06:
        match = parser.OFPMatch(in_port=ofp.OFPP_CONTROLLER)
        return parser.OFPPacketOut(datapath, match=match, **common)
    return parser.OFPPacketOut(datapath, in_port=ofp.OFPP_CONTROLLER, **common)


class PacketOuts:
    """Encodes the PACKET_OUTs of many ports. The part in front of a frame is made once for each port."""

    def __init__(self) -> None:
        self._heads: dict[tuple[int, int], bytes] = {}

    def encode(self, datapath: Any, frames: Iterable[tuple[int, bytes]]) -> bytes:
        """Messages that send each frame out of its port, for ``datapath.send``. Their xid is 0."""
        version = datapath.ofproto.OFP_VERSION
        parts: list[bytes] = []
        for port_no, frame in frames:
            head = self._heads.get((version, port_no))
            if head is None:
                head = self._heads[version, port_no] = self._head(datapath, port_no)
            parts += (head[:2], (len(head) + len(frame)).to_bytes(2, "big"), head[4:], frame)
        return b"".join(parts)

    def _head(self, datapath: Any, port_no: int) -> bytes:
        message = packet_out(datapath, (port_no,), b"")
        message.set_xid(0)
        message.serialize()
        return bytes(message.buf)


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
