"""Table I and the port policy as OpenFlow messages, built for a datapath and sent by the shell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

from app_base.headers import ETH_IPV4, ETH_IPV6, IP_TCP
from app_base.pipeline import COOKIE_MASK
from app_base.scope import Scope
from flowdb.flow import PortKey
from openflow_ext.wire import FAIR_SHARE, OFPP_ANY, PortConfigFlags
from sccp_app.core import Act, PortPolicy, Rank, Row, ScopeRow, scope_rows
from sccp_app.stage import STAGE

_ETH_TYPES = {4: ETH_IPV4, 6: ETH_IPV6}


def entries(datapath: Any, rows: Sequence[Row], next_table: int, scope: Scope) -> list[Any]:
    """Adds the rows of Table I, for IPv4 and IPv6, and the entries of the scope.

    If the switch has them, nothing changes. Outside the scope their SET_WINDOW is observed.
    """
    observed = not scope.acts or bool(scope.networks)
    table_i = [
        _table_i_entry(datapath, version, row, next_table, observed) for version in (4, 6) for row in rows
    ]
    return [*table_i, *(_scope_entry(datapath, row, next_table, scope) for row in scope_rows(scope))]


def configure_ports(datapath: Any, policy: PortPolicy, scope: Scope) -> Any:
    """Configures the fair share of every port of the switch, also of ports that are added later."""
    return _configure(datapath, policy, OFPP_ANY, policy.common_rtt_us, scope.acts_at_switch(datapath.id))


def configure_port(datapath: Any, policy: PortPolicy, scope: Scope, port: PortKey, common_rtt_us: int) -> Any:
    """Gives one port settings of its own; with a common RTT of 0 it counts flows but does not clamp."""
    return _configure(datapath, policy, port.port_no, common_rtt_us, scope.acts_at(port))


def outdated(statistics: Iterable[Any], scope: Scope) -> set[int]:
    """The cookies of SCCP's entries that belong to another scope, in a reply to ``ask_entries``."""
    cookies = {entry.cookie for entry in statistics if entry.cookie & COOKIE_MASK == STAGE.cookie}
    return cookies - {STAGE.cookie, _scope_cookie(scope)}


def _scope_cookie(scope: Scope) -> int:
    """The cookie of the entries beside Table I: another one for each scope, the same after a restart."""
    return STAGE.cookie | crc32(repr(scope_rows(scope)).encode()) | 1


def omissions(policy: PortPolicy) -> PortConfigFlags:
    """The flags of the additions that ports do without."""
    flags = PortConfigFlags(0)
    for addition in policy.omits:
        flags |= PortConfigFlags[f"OMIT_{addition.name}"]
    return flags


def _configure(datapath: Any, policy: PortPolicy, port_no: int, common_rtt_us: int, acts: bool) -> Any:
    flags = PortConfigFlags.WINDOW
    if policy.corrects_allowance:
        flags |= PortConfigFlags.ALLOWANCE
    if not acts:
        flags |= PortConfigFlags.OBSERVE
    if policy.by_host:
        flags |= PortConfigFlags.BY_HOST
    flags |= omissions(policy)
    return datapath.ofproto_parser.OFPPortConfig(
        datapath,
        port_no=port_no,
        flags=flags,
        capacity_bps=policy.capacity_bps,
        common_rtt_us=common_rtt_us,
        least_window_bytes=policy.least_window_bytes,
    )


def _table_i_entry(datapath: Any, version: int, row: Row, next_table: int, observed: bool) -> Any:
    parser = datapath.ofproto_parser
    fields = {"eth_type": _ETH_TYPES[version], "ip_proto": IP_TCP, "tcp_flags": (row.flags, row.mask)}
    observe = [parser.OFPActionObserve()] if observed and Act.SET_WINDOW in row.acts else []
    actions = [*observe, *(_action(parser, act) for act in row.acts)]
    return _entry(datapath, STAGE.cookie, Rank.TABLE_I, parser.OFPMatch(**fields), actions, next_table)


def _scope_entry(datapath: Any, row: ScopeRow, next_table: int, scope: Scope) -> Any:
    parser, rule = datapath.ofproto_parser, row.match
    fields: dict[str, Any] = {"eth_type": _ETH_TYPES[row.ip_version], "ip_proto": IP_TCP}
    for end, network in (("src", rule.src), ("dst", rule.dst)):
        if network is not None:
            fields[f"ipv{row.ip_version}_{end}"] = str(network.network_address), str(network.netmask)
    for end, port in (("src", rule.src_port), ("dst", rule.dst_port)):
        if port is not None:
            fields[f"tcp_{end}"] = port
    observe = [parser.OFPActionObserve()] if row.observed or not scope.acts else []
    actions = [*observe, _action(parser, Act.SET_WINDOW)]
    return _entry(datapath, _scope_cookie(scope), row.rank, parser.OFPMatch(**fields), actions, next_table)


def _entry(datapath: Any, cookie: int, priority: int, match: Any, actions: list[Any], next_table: int) -> Any:
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    return parser.OFPFlowMod(
        datapath,
        cookie=cookie,
        table_id=STAGE.table,
        priority=int(priority),
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
