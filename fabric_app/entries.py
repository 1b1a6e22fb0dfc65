"""The fabric's flow entries, built for a datapath and sent by the shell.

Every entry is permanent: what is forwarded goes on being forwarded without a controller. Adding one that
is there already changes nothing for traffic, so a controller that comes back puts them all again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fabric_app.hosts import Host
from fabric_app.pipeline import (
    COOKIE_FABRIC,
    COOKIE_MASK,
    ETH_ARP,
    ETH_IPV4,
    ETH_IPV6,
    IP_ICMPV6,
    IP_TCP,
    OPENING_OR_CLOSING,
    TABLE_EVENTS,
    TABLE_FORWARDING,
    TABLE_SCCP,
    TABLE_SDTCP,
)
from openflow_ext.wire import FlowKinds

COPY_BYTES = 192
"""How much of a copied segment the controller gets: a SYN's headers are 154 bytes at most."""

_BROADCAST = "ff:ff:ff:ff:ff:ff"
_MULTICAST = ("01:00:00:00:00:00", "01:00:00:00:00:00")


def pipeline(datapath: Any) -> list[Any]:
    """The entries that every switch gets: the ways from table to table, the copies, the floods."""
    ofp = datapath.ofproto
    to_controller = _output(datapath, ofp.OFPP_CONTROLLER, ofp.OFPCML_NO_BUFFER)
    copy = _output(datapath, ofp.OFPP_CONTROLLER, COPY_BYTES)
    flood = _output(datapath, ofp.OFPP_FLOOD)
    messages = [
        _entry(datapath, table, 0, {}, goto=table + 1) for table in (TABLE_SDTCP, TABLE_SCCP, TABLE_EVENTS)
    ]
    messages.append(
        _entry(
            datapath, TABLE_EVENTS, 200, {"eth_type": ETH_ARP, "eth_dst": _BROADCAST}, actions=to_controller
        )
    )
    messages += [
        _entry(datapath, TABLE_EVENTS, 100, match, actions=copy, goto=TABLE_FORWARDING) for match in _copied()
    ]
    messages.append(_entry(datapath, TABLE_FORWARDING, 50, {"eth_dst": _MULTICAST}, actions=flood))
    messages.append(_entry(datapath, TABLE_FORWARDING, 0, {}, actions=flood))
    return messages


def _copied() -> Iterable[dict[str, Any]]:
    """What is copied to the controller on its way: who is where, and which flows open and close."""
    yield {"eth_type": ETH_ARP}
    for icmpv6_type in (135, 136):
        yield {"eth_type": ETH_IPV6, "ip_proto": IP_ICMPV6, "icmpv6_type": icmpv6_type}
    for eth_type in (ETH_IPV4, ETH_IPV6):
        for flags in OPENING_OR_CLOSING:
            yield {"eth_type": eth_type, "ip_proto": IP_TCP, "tcp_flags": flags}


def to_host(datapath: Any, host: Host) -> Any:
    """The entry that leads to a host."""
    out = _output(datapath, host.port_no)
    return _entry(datapath, TABLE_FORWARDING, 100, {"eth_dst": host.mac}, actions=out)


def forget_port(datapath: Any, port_no: int) -> Any:
    """Deletes the entries that lead to a port."""
    ofp = datapath.ofproto
    return datapath.ofproto_parser.OFPFlowMod(
        datapath,
        cookie=COOKIE_FABRIC,
        cookie_mask=COOKIE_MASK,
        table_id=TABLE_FORWARDING,
        command=ofp.OFPFC_DELETE,
        out_port=port_no,
        out_group=ofp.OFPG_ANY,
    )


def delete_all(datapath: Any, table_id: int, cookie: int) -> Any:
    """Deletes the entries of one app, by the upper half of its cookie, in a table."""
    ofp = datapath.ofproto
    return datapath.ofproto_parser.OFPFlowMod(
        datapath,
        cookie=cookie,
        cookie_mask=COOKIE_MASK,
        table_id=table_id,
        command=ofp.OFPFC_DELETE,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
    )


def ask_hosts(datapath: Any) -> Any:
    """Asks for the entries that lead to hosts: an earlier controller's are taken over."""
    ofp = datapath.ofproto
    return datapath.ofproto_parser.OFPFlowStatsRequest(
        datapath, 0, TABLE_FORWARDING, ofp.OFPP_ANY, ofp.OFPG_ANY, COOKIE_FABRIC, COOKIE_MASK
    )


def hosts_of(statistics: Iterable[Any]) -> Iterable[tuple[str, int]]:
    """(MAC, port number) of the entries of ``ask_hosts``' reply that lead to one host."""
    for entry in statistics:
        mac = entry.match.get("eth_dst")
        ours = entry.cookie & COOKIE_MASK == COOKIE_FABRIC and entry.table_id == TABLE_FORWARDING
        if not ours or not isinstance(mac, str):
            continue
        for instruction in entry.instructions:
            for action in getattr(instruction, "actions", []):
                yield mac, action.port


def ask_flows(datapath: Any) -> Any:
    """Asks which TCP flows live; a switch without the extension answers with an error."""
    return datapath.ofproto_parser.OFPFlowReportConfig(datapath, kinds=FlowKinds.ACTIVE | FlowKinds.IDLE)


def packet_out(datapath: Any, in_port: int, out_port: int, frame: bytes) -> Any:
    """Sends ``frame`` out of a port (or OFPP_FLOOD) as if it had come in by ``in_port``."""
    return datapath.ofproto_parser.OFPPacketOut(
        datapath,
        buffer_id=datapath.ofproto.OFP_NO_BUFFER,
        in_port=in_port,
        actions=_output(datapath, out_port),
        data=frame,
    )


def _output(datapath: Any, port_no: int, max_len: int = 0) -> list[Any]:
    return [datapath.ofproto_parser.OFPActionOutput(port_no, max_len)]


def _entry(
    datapath: Any,
    table_id: int,
    priority: int,
    match: dict[str, Any],
    actions: list[Any] | None = None,
    goto: int | None = None,
) -> Any:
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    instructions = []
    if actions:
        instructions.append(parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions))
    if goto is not None:
        instructions.append(parser.OFPInstructionGotoTable(goto))
    return parser.OFPFlowMod(
        datapath,
        cookie=COOKIE_FABRIC,
        table_id=table_id,
        priority=priority,
        match=parser.OFPMatch(**match),
        instructions=instructions,
    )
