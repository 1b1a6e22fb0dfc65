"""Rules and matches as the maps hold them, both ways."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Sequence
from typing import Any

from openflow_ext.switch.layout import constants, ffi
from openflow_ext.switch.rules import CountOp, Network, Rule, RuleStats, TcpMatch, WindowOp

ANY_PORT = 0xFFFFFFFF
NS = 1_000_000_000
_MAPPED = 0xFFFF << 32
_ALL = (1 << 128) - 1
_MAPPED_MASK = _ALL ^ 0xFFFFFFFF


def _words(value: int) -> list[int]:
    """A 128-bit address as the maps hold it: four words in network order."""
    return [socket.htonl(value >> shift & 0xFFFFFFFF) for shift in (96, 64, 32, 0)]


def _number(words: Any) -> int:
    return sum(socket.ntohl(words[i]) << (96 - 32 * i) for i in range(4))


def _address(network: Network | None, ip_version: int) -> tuple[int, int]:
    """A network as 128-bit value and mask; IPv4 is mapped into IPv6."""
    if network is None:
        return (_MAPPED, _MAPPED_MASK) if ip_version == 4 else (0, 0)
    if network.version == 4:
        return _MAPPED | int(network.network_address), _MAPPED_MASK | int(network.netmask)
    return int(network.network_address), int(network.netmask)


def _network(value: int, mask: int, ip_version: int) -> Network | None:
    prefix = mask.bit_count()
    if ip_version == 4:
        return None if prefix == 96 else ipaddress.IPv4Network((value & 0xFFFFFFFF, prefix - 96))
    return None if prefix == 0 else ipaddress.IPv6Network((value, prefix))


def stats_of(*counts: Any) -> RuleStats:
    """The sum of what several CPUs counted."""
    return RuleStats(
        sum(int(one.packets) for one in counts),
        sum(int(one.bytes) for one in counts),
        sum(int(one.clamped) for one in counts),
    )


def fill_action(action: Any, rule: Rule) -> None:
    action.cookie, action.priority, action.table_id = rule.cookie, rule.priority, rule.table_id
    action.window_op, action.window_bytes, action.alpha = rule.window_op, rule.window_bytes, rule.alpha
    action.count_op = rule.count_op
    action.count_ofport = ANY_PORT if rule.count_port is None else rule.count_port
    action.ip_version = rule.match.ip_version
    action.idle_timeout_s, action.hard_timeout_s = rule.idle_timeout_s, rule.hard_timeout_s
    action.idle_ns = rule.idle_timeout_s * NS
    action.hard_end_ns = time.monotonic_ns() + rule.hard_timeout_s * NS if rule.hard_timeout_s else 0


def decode_action(action: Any, match: TcpMatch) -> Rule:
    return Rule(
        table_id=int(action.table_id),
        priority=int(action.priority),
        cookie=int(action.cookie),
        match=match,
        window_op=WindowOp(action.window_op),
        window_bytes=int(action.window_bytes),
        alpha=int(action.alpha),
        count_op=CountOp(action.count_op),
        count_port=None if action.count_ofport == ANY_PORT else int(action.count_ofport),
        idle_timeout_s=int(action.idle_timeout_s),
        hard_timeout_s=int(action.hard_timeout_s),
    )


def start_tally(tally: Any, rule: Rule) -> None:
    tally.used_ns, tally.window_bytes = time.monotonic_ns(), rule.window_bytes


def over(action: Any, tally: Any, now: int) -> bool | None:
    """None: the rule is alive; else whether it was the hard timeout that ended it."""
    if action.hard_end_ns and now >= action.hard_end_ns:
        return True
    if action.idle_ns and now - tally.used_ns >= action.idle_ns:
        return False
    return None


def ends_ns(action: Any, tally: Any) -> int | None:
    """When the rule ends if nothing uses it until then; None: never."""
    ends = []
    if action.hard_end_ns:
        ends.append(int(action.hard_end_ns))
    if action.idle_ns:
        ends.append(int(tally.used_ns + action.idle_ns))
    return min(ends, default=None)


def exact_key(bridge: int, match: TcpMatch) -> Any:
    """The key of an exact rule: the bridge and the 5-tuple."""
    key = ffi.new("struct weir_exact_key *", {"bridge": bridge})
    key.src, key.dst = (_words(_address(n, match.ip_version)[0]) for n in (match.src, match.dst))
    key.src_port, key.dst_port = socket.htons(match.src_port or 0), socket.htons(match.dst_port or 0)
    return key


def decode_exact(key: Any, value: Any) -> Rule:
    version = int(value.action.ip_version)
    match = TcpMatch(
        ip_version=version,
        src=_network(_number(key.src), _ALL, version),
        dst=_network(_number(key.dst), _ALL, version),
        src_port=socket.ntohs(key.src_port),
        dst_port=socket.ntohs(key.dst_port),
    )
    return decode_action(value.action, match)


def fill_listed(listed: Any, rule: Rule, place: int) -> None:
    match = rule.match
    fill_action(listed.action, rule)
    for side, network in (("src", match.src), ("dst", match.dst)):
        value, mask = _address(network, match.ip_version)
        setattr(listed, side, _words(value & mask))
        setattr(listed, side + "_mask", _words(mask))
    for side, port in (("src_port", match.src_port), ("dst_port", match.dst_port)):
        setattr(listed, side, socket.htons(port or 0))
        setattr(listed, side + "_mask", 0 if port is None else 0xFFFF)
    listed.flags, listed.flags_mask = match.flags, match.flags_mask
    listed.in_ofport = match.in_port or 0
    listed.in_ofport_mask = 0 if match.in_port is None else 0xFFFFFFFF
    listed.tally = place


def decode_listed(listed: Any) -> Rule:
    version = int(listed.action.ip_version)
    match = TcpMatch(
        ip_version=version,
        src=_network(_number(listed.src), _number(listed.src_mask), version),
        dst=_network(_number(listed.dst), _number(listed.dst_mask), version),
        src_port=socket.ntohs(listed.src_port) if listed.src_port_mask else None,
        dst_port=socket.ntohs(listed.dst_port) if listed.dst_port_mask else None,
        flags=int(listed.flags),
        flags_mask=int(listed.flags_mask),
        in_port=int(listed.in_ofport) if listed.in_ofport_mask else None,
    )
    return decode_action(listed.action, match)


def flags_table(rules: Sequence[tuple[Rule, int]]) -> list[int]:
    """What a list, by falling priority and each with its tally's place, does: struct weir_flags_table."""
    cells = []
    for version in (4, 6):
        these = [(rule, place) for rule, place in rules if rule.match.ip_version == version]
        cells += [_flags_cell(these, flags) for flags in range(constants.WEIR_PLAIN_FLAGS)]
    return cells


def _flags_cell(rules: Sequence[tuple[Rule, int]], flags: int) -> int:
    """The one rule that acts on all segments with these flags, if one does and no other on any of them."""
    acts: tuple[Rule, int] | None = None
    for rule, place in rules:
        match = rule.match
        if flags & match.flags_mask != match.flags % constants.WEIR_PLAIN_FLAGS:
            continue
        if acts and acts[0].table_id == rule.table_id:
            continue
        if acts or not _takes_all(rule):
            return int(constants.WEIR_ASK_LIST)
        acts = rule, place
    return int(constants.WEIR_FIRST_RULE) + acts[1] if acts else int(constants.WEIR_NO_RULE)


def _takes_all(rule: Rule) -> bool:
    """Of the segments with flags that it matches, always."""
    match = rule.match
    anywhere = match.src is None and match.dst is None and match.in_port is None
    any_port = match.src_port is None and match.dst_port is None
    forever = not rule.idle_timeout_s and not rule.hard_timeout_s
    return anywhere and any_port and forever and match.flags_mask < constants.WEIR_PLAIN_FLAGS
