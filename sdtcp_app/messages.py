"""SDTCP's decisions as OpenFlow messages, built for a datapath and sent by the shell.

A clamp is one entry in SDTCP's table. It matches the exact 5-tuple of the flow's ACKs, with the highest
priority. The window of equation (3) falls with each ACK (MOD_WINDOW, equation 4). The window of equation (5)
stays "set to an appropriate value which they can share" (section V.B), so its entry has SET_WINDOW.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

from app_base.headers import ETH_IPV4, ETH_IPV6, IP_TCP
from app_base.pipeline import COOKIE_MASK
from flowdb.flow import FiveTuple, Flow
from openflow_ext import registry
from openflow_ext.wire import OFPP_ANY, ArmEntry, PortConfigFlags
from sdtcp_app.config import SdtcpSettings
from sdtcp_app.core_types import Punish
from sdtcp_app.stage import STAGE

PRIORITY = 65535


def watch_ports(datapath: Any, settings: SdtcpSettings) -> Any:
    """Configures the alarm of every port of the switch, also of ports that are added later."""
    allowance = PortConfigFlags.ALLOWANCE if settings.corrects_allowance else PortConfigFlags.NONE
    if settings.corrects_allowance and not settings.fits_ports:
        allowance |= PortConfigFlags.OMIT_FITTING
    return datapath.ofproto_parser.OFPPortConfig(
        datapath,
        port_no=OFPP_ANY,
        flags=PortConfigFlags.ALARM | allowance,
        k_pkts=settings.alarm_k_pkts,
        rtt_us=settings.rtt_us,
        cookie=STAGE.cookie,
    )


def clamp(datapath: Any, decision: Punish, settings: SdtcpSettings, next_table: int) -> Any:
    """Adds a flow's clamp, or replaces it. The clamped segments go to ``next_table``."""
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    if decision.alpha:
        action = parser.OFPActionModWindow(decision.window_bytes, decision.alpha)
    else:
        action = parser.OFPActionSetWindow(decision.window_bytes)
    observe = [parser.OFPActionObserve()] if decision.observed else []
    return _flow_mod(
        datapath,
        command=ofp.OFPFC_ADD,
        priority=PRIORITY,
        match=_match(parser, decision.flow.key.reverse),
        flags=ofp.OFPFF_SEND_FLOW_REM,
        idle_timeout=settings.idle_timeout_s,
        hard_timeout=settings.hard_timeout_s,
        instructions=[
            parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, [*observe, action]),
            parser.OFPInstructionGotoTable(next_table),
        ],
    )


def described(decision: Punish, settings: SdtcpSettings) -> dict[str, Any]:
    """What ``clamp`` sends, for the record."""
    action = f"mod_window:{decision.window_bytes},alpha:{decision.alpha}"
    return {
        "switch": f"{decision.switch:016x}",
        "table": STAGE.table,
        "priority": PRIORITY,
        "cookie": STAGE.cookie,
        "match": str(decision.flow.key.reverse),
        "action": action if decision.alpha else f"set_window:{decision.window_bytes}",
        "idle_timeout_s": settings.idle_timeout_s,
        "hard_timeout_s": settings.hard_timeout_s,
        **({"observed": True} if decision.observed else {}),
    }


def ask_capacity(datapath: Any, port_no: int) -> Any:
    """Asks for a port's settings, which include its capacity."""
    return datapath.ofproto_parser.OFPPortConfig(datapath, port_no=port_no, flags=PortConfigFlags.READ)


def arm(datapath: Any, port_no: int, decisions: Sequence[Punish], settings: SdtcpSettings) -> Any:
    """Arms a port with clamps, by rank, instead of its earlier ones; no clamps: disarms it.

    Decisions outside the scope are left out.
    """
    acting = (decision for decision in decisions if not decision.observed)
    entries = tuple(_armed(decision, settings) for decision in acting)
    return datapath.ofproto_parser.OFPArm(datapath, port_no=port_no, entries=entries)


def armed_cookie(flow_id: int) -> int:
    """The cookie of a flow's armed entry. The switch reports it when it activates the entry."""
    return STAGE.cookie | (flow_id & 0xFFFF_FFFF)


def _armed(decision: Punish, settings: SdtcpSettings) -> ArmEntry:
    acks = decision.flow.key.reverse
    return ArmEntry(
        src=ipaddress.ip_address(acks.src),
        dst=ipaddress.ip_address(acks.dst),
        src_port=acks.src_port,
        dst_port=acks.dst_port,
        window_bytes=decision.window_bytes,
        alpha=decision.alpha,
        table_id=STAGE.table,
        cookie=armed_cookie(decision.flow.id),
        priority=PRIORITY,
        hard_timeout_s=settings.hard_timeout_s,
    )


def lift(datapath: Any, flow: Flow) -> Any:
    """Deletes a flow's clamp."""
    return _flow_mod(
        datapath,
        command=datapath.ofproto.OFPFC_DELETE_STRICT,
        cookie_mask=COOKIE_MASK,
        priority=PRIORITY,
        match=_match(datapath.ofproto_parser, flow.key.reverse),
    )


def clamped_flow(match: Any) -> FiveTuple | None:
    """The data direction of the flow whose clamp has ``match``; None for another match."""
    src, dst = (match.get(f"ipv4_{end}") or match.get(f"ipv6_{end}") for end in ("src", "dst"))
    ports = match.get("tcp_src"), match.get("tcp_dst")
    if not isinstance(src, str) or not isinstance(dst, str) or None in ports:
        return None
    return FiveTuple(str(ipaddress.ip_address(src)), str(ipaddress.ip_address(dst)), *ports).reverse


def _match(parser: Any, acks: FiveTuple) -> Any:
    ports: list[tuple[str, Any]] = [("tcp_src", acks.src_port), ("tcp_dst", acks.dst_port)]
    if acks.is_ipv6:
        fields = [*ports, ("ipv6_src", acks.src), ("ipv6_dst", acks.dst)]
    else:
        fields = [("ipv4_src", acks.src), ("ipv4_dst", acks.dst), *ports]
    eth_type = ETH_IPV6 if acks.is_ipv6 else ETH_IPV4
    return registry.ordered_match(parser, [("eth_type", eth_type), ("ip_proto", IP_TCP), *fields])


def _flow_mod(datapath: Any, **fields: Any) -> Any:
    ofp = datapath.ofproto
    return datapath.ofproto_parser.OFPFlowMod(
        datapath,
        cookie=STAGE.cookie,
        table_id=STAGE.table,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        **fields,
    )
