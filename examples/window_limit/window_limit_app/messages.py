"""The app's flow entries as OpenFlow messages."""

from __future__ import annotations

from typing import Any

from app_base.headers import ETH_IPV4, ETH_IPV6, IP_TCP, SYN
from window_limit_app.config import Limit
from window_limit_app.stage import STAGE

PRIORITY = 100


def limit(datapath: Any, limit: Limit, next_table: int) -> Any:
    """Limits the window of the segments that the receivers of a subnet send.

    SYNs are left alone, because their windows are not scaled (RFC 7323).
    """
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    subnet = limit.subnet
    eth_type, field = (ETH_IPV4, "ipv4_src") if subnet.version == 4 else (ETH_IPV6, "ipv6_src")
    source = {field: (str(subnet.network_address), str(subnet.netmask))}
    return parser.OFPFlowMod(
        datapath,
        table_id=STAGE.table,
        cookie=STAGE.cookie,
        priority=PRIORITY + subnet.prefixlen,
        match=parser.OFPMatch(eth_type=eth_type, ip_proto=IP_TCP, tcp_flags=(0, SYN), **source),
        instructions=[
            parser.OFPInstructionActions(
                ofp.OFPIT_APPLY_ACTIONS, [parser.OFPActionSetWindow(limit.window_bytes)]
            ),
            parser.OFPInstructionGotoTable(next_table),
        ],
    )
