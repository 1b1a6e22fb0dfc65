"""Table I and the port policy as OpenFlow messages, built for a datapath and sent by the shell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app_base.headers import ETH_IPV4, ETH_IPV6, IP_TCP
from openflow_ext.wire import FAIR_SHARE, OFPP_ANY, PortConfigFlags
from sccp_app.common_rtt import PortRtt
from sccp_app.core import Act, PortPolicy, Row
from sccp_app.stage import STAGE

PRIORITY = 100
"""As in Table I."""


def table_i(datapath: Any, rows: Sequence[Row], next_table: int) -> list[Any]:
    """Adds the entries of Table I, for IPv4 and IPv6. If the switch has them, nothing changes."""
    return [_entry(datapath, eth_type, row, next_table) for eth_type in (ETH_IPV4, ETH_IPV6) for row in rows]


def configure_ports(datapath: Any, policy: PortPolicy) -> Any:
    """Configures the fair share of every port of the switch, also of ports that are added later."""
    flags = PortConfigFlags.WINDOW
    if policy.corrects_allowance:
        flags |= PortConfigFlags.ALLOWANCE
    for addition in policy.omits:
        flags |= PortConfigFlags[f"OMIT_{addition.name}"]
    return datapath.ofproto_parser.OFPPortConfig(
        datapath,
        port_no=OFPP_ANY,
        flags=flags,
        capacity_bps=policy.capacity_bps,
        common_rtt_us=policy.common_rtt_us,
        least_window_bytes=policy.least_window_bytes,
    )


def configure_port(datapath: Any, policy: PortPolicy, rtt: PortRtt) -> Any:
    """Gives one port a common RTT of its own; with 0 it counts flows but does not clamp."""
    message = configure_ports(datapath, policy)
    message.port_no, message.common_rtt_us = rtt.port.port_no, rtt.common_rtt_us
    return message


def _entry(datapath: Any, eth_type: int, row: Row, next_table: int) -> Any:
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    match = parser.OFPMatch(eth_type=eth_type, ip_proto=IP_TCP, tcp_flags=(row.flags, row.mask))
    actions = [_action(parser, act) for act in row.acts]
    return parser.OFPFlowMod(
        datapath,
        cookie=STAGE.cookie,
        table_id=STAGE.table,
        priority=PRIORITY,
        match=match,
        instructions=[
            parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions),
            parser.OFPInstructionGotoTable(next_table),
        ],
    )


def _action(parser: Any, act: Act) -> Any:
    match act:
        case Act.INCREMENT_NI:
            return parser.OFPActionIncrementNi(OFPP_ANY)
        case Act.DECREMENT_NI:
            return parser.OFPActionDecrementNi(OFPP_ANY)
        case Act.SET_WINDOW:
            return parser.OFPActionSetWindow(FAIR_SHARE)
