"""Rules built from FLOW_MODs, and OpenFlow fields built from rules. No I/O.

A rule is the extension's part of a flow entry. It can match the 5-tuple of TCP over IPv4 or IPv6, the TCP
flags and the input port. An entry that matches anything else cannot have actions of the extension.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from functools import lru_cache

from openflow_ext.switch.dataplane.rules import Network, Rule, TcpMatch
from openflow_ext.switch.errors import Refused
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.flow_mods import FlowMod, Operations, bad_action
from openflow_ext.switch.openflow.matches import (
    ETH_TYPE,
    IN_PORT,
    IP_PROTO,
    TCP_DST,
    TCP_FLAGS,
    TCP_SRC,
    Fields,
    bad_match,
    full_mask,
    read_match,
)

_ETH_TYPES = {4: 0x0800, 6: 0x86DD}
_IPPROTO_TCP = 6
_MATCHES_REMEMBERED = 1 << 16


def rule_of(flow_mod: FlowMod) -> Rule:
    """The rule of the entry that an ADD makes. Raises Refused."""
    rule = Rule(
        table_id=flow_mod.table_id,
        priority=flow_mod.priority,
        cookie=flow_mod.cookie,
        match=tcp_match(flow_mod.fields),
        idle_timeout_s=flow_mod.idle_timeout_s,
        hard_timeout_s=flow_mod.hard_timeout_s,
    )
    if flow_mod.table_id == of.OFPTT_ALL:
        raise Refused(
            of.OFPET_FLOW_MOD_FAILED, of.OFPFMFC_BAD_TABLE_ID, "an ADD to all tables: give one table"
        )
    return with_operations(rule, flow_mod.operations)


def with_operations(rule: Rule, operations: Operations) -> Rule:
    """``rule`` with ``operations`` instead of its own. Raises Refused."""
    if operations.count_op and rule.match.in_port is not None:
        raise bad_action(
            of.OFPBAC_MATCH_INCONSISTENT,
            "a count action with in_port: a packet's input port is unknown where it leaves the switch",
        )
    return dataclasses.replace(
        rule,
        window_op=operations.window_op,
        window_bytes=operations.window_bytes,
        alpha=operations.alpha,
        count_op=operations.count_op,
        count_port=operations.count_port,
        observes=operations.observes,
    )


def operations_of(rule: Rule) -> Operations:
    """The operations of a rule: the inverse of with_operations."""
    return Operations(
        rule.window_op, rule.window_bytes, rule.alpha, rule.count_op, rule.count_port, rule.observes
    )


@lru_cache(_MATCHES_REMEMBERED)
def find_tcp_match(match: bytes) -> TcpMatch | None:
    """The TcpMatch of an ofp_match; None if no rule can have this match.

    Results are remembered, because each reading of the flow statistics repeats the same matches.
    """
    try:
        return tcp_match(read_match(match))
    except Refused:
        return None


def tcp_match(fields: Fields) -> TcpMatch:
    """The match of a rule, from the fields of its entry. Raises Refused (OFPET_BAD_MATCH)."""
    rest = dict(fields)
    eth_type = _take_exact(rest, ETH_TYPE)
    ip_proto = _take_exact(rest, IP_PROTO)
    if eth_type is None or ip_proto is None:
        raise bad_match(of.OFPBMC_BAD_WILDCARDS, "an extension entry needs eth_type and ip_proto")
    if eth_type not in _ETH_TYPES.values() or ip_proto != _IPPROTO_TCP:
        raise bad_match(of.OFPBMC_BAD_VALUE, "an extension entry matches only TCP over IPv4 or IPv6")
    version = 4 if eth_type == _ETH_TYPES[4] else 6
    flags, flags_mask = rest.pop(TCP_FLAGS, (0, 0))
    match = TcpMatch(
        ip_version=version,
        src=_take_network(rest, f"ipv{version}_src"),
        dst=_take_network(rest, f"ipv{version}_dst"),
        src_port=_take_exact(rest, TCP_SRC),
        dst_port=_take_exact(rest, TCP_DST),
        flags=flags,
        flags_mask=flags_mask,
        in_port=_take_exact(rest, IN_PORT),
    )
    if any(str(name).startswith("ipv") for name in rest):
        raise bad_match(of.OFPBMC_BAD_PREREQ, f"an address that is not IPv{version}, as eth_type says")
    if rest:
        raise bad_match(of.OFPBMC_BAD_FIELD, f"an extension entry cannot match {', '.join(map(str, rest))}")
    return match


def _take_exact(fields: Fields, name: str) -> int | None:
    if name not in fields:
        return None
    value, mask = fields.pop(name)
    if mask != full_mask(name):
        raise bad_match(of.OFPBMC_BAD_MASK, f"an extension entry cannot mask {name}")
    return value


def _take_network(fields: Fields, name: str) -> Network | None:
    if name not in fields:
        return None
    value, mask = fields.pop(name)
    wild_bits = full_mask(name) & ~mask
    if wild_bits & (wild_bits + 1):
        raise bad_match(of.OFPBMC_BAD_NW_ADDR_MASK, f"the mask of {name} is not a prefix")
    prefix_length = mask.bit_count()
    if name.startswith("ipv4"):
        return ipaddress.IPv4Network((value, prefix_length))
    return ipaddress.IPv6Network((value, prefix_length))


def fields_of(match: TcpMatch) -> Fields:
    """The fields of an entry whose rule has ``match``: the inverse of tcp_match."""
    exact = {
        ETH_TYPE: _ETH_TYPES[match.ip_version],
        IP_PROTO: _IPPROTO_TCP,
        TCP_SRC: match.src_port,
        TCP_DST: match.dst_port,
        IN_PORT: match.in_port,
    }
    fields: Fields = {name: (value, full_mask(name)) for name, value in exact.items() if value is not None}
    for name, network in (("src", match.src), ("dst", match.dst)):
        if network is not None and network.prefixlen:
            fields[f"ipv{match.ip_version}_{name}"] = (int(network.network_address), int(network.netmask))
    if match.flags_mask:
        fields[TCP_FLAGS] = (match.flags, match.flags_mask)
    return fields
