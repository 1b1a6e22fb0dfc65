"""Table I and the port policy as OpenFlow messages, built for a datapath and sent by the shell."""

from __future__ import annotations

from typing import Any

from fabric_app.pipeline import COOKIE_SCCP, ETH_IPV4, ETH_IPV6, IP_TCP, TABLE_EVENTS, TABLE_SCCP
from openflow_ext.wire import FAIR_SHARE, OFPP_ANY, PortConfigFlags
from sccp_app.core import TABLE_I, Act, PortPolicy, Row
from sccp_app.shares import Share

PRIORITY = 100
"""As in Table I."""


def table_i(datapath: Any) -> list[Any]:
    """The entries of Table I, for IPv4 and IPv6. Adding them again changes nothing."""
    return [_entry(datapath, eth_type, row) for eth_type in (ETH_IPV4, ETH_IPV6) for row in TABLE_I]


def configure_ports(datapath: Any, policy: PortPolicy) -> Any:
    """Tells every port of the switch, later ones too, what its fair share is made of."""
    return datapath.ofproto_parser.OFPPortConfig(
        datapath,
        port_no=OFPP_ANY,
        flags=PortConfigFlags.WINDOW,
        capacity_bps=policy.capacity_bps,
        common_rtt_us=policy.common_rtt_us,
        least_window_bytes=policy.least_window_bytes,
    )


def configure_port(datapath: Any, policy: PortPolicy, share: Share) -> Any:
    """Tells one port a common RTT of its own; 0: it counts flows and clamps none."""
    message = configure_ports(datapath, policy)
    message.port_no, message.common_rtt_us = share.port.port_no, share.common_rtt_us
    return message


def _entry(datapath: Any, eth_type: int, row: Row) -> Any:
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    match = parser.OFPMatch(eth_type=eth_type, ip_proto=IP_TCP, tcp_flags=(row.flags, row.mask))
    actions = [_action(parser, act) for act in row.acts]
    return parser.OFPFlowMod(
        datapath,
        cookie=COOKIE_SCCP,
        table_id=TABLE_SCCP,
        priority=PRIORITY,
        match=match,
        instructions=[
            parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions),
            parser.OFPInstructionGotoTable(TABLE_EVENTS),
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
