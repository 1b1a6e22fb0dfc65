"""Rules and matches converted to the C structures of the maps, and back."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Sequence
from typing import Any

from openflow_ext.switch.dataplane.rules import CountOp, Network, Rule, RuleStats, TcpMatch, WindowOp
from openflow_ext.switch.dataplane.structs import constants, ffi

ANY_PORT = 0xFFFFFFFF
NS_PER_S = 1_000_000_000
_MAPPED = 0xFFFF << 32
_ALL = (1 << 128) - 1
_MAPPED_MASK = _ALL ^ 0xFFFFFFFF


def _words(value: int) -> list[int]:
    """A 128-bit address as four words in network order."""
    return [socket.htonl(value >> shift & 0xFFFFFFFF) for shift in (96, 64, 32, 0)]


def _number(words: Any) -> int:
    return sum(socket.ntohl(words[i]) << (96 - 32 * i) for i in range(4))


def _address(network: Network | None, ip_version: int) -> tuple[int, int]:
    """A network as a 128-bit value and mask. An IPv4 network is mapped into IPv6."""
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
    """The sum of the counters of several CPUs."""
    return RuleStats(
        sum(int(one.packets) for one in counts),
        sum(int(one.bytes) for one in counts),
        sum(int(one.clamped) for one in counts),
    )


def fill_action(action: Any, rule: Rule) -> None:
    """Write a rule without its match into a struct weir_action. Without an end its hard timeout starts."""
    action.cookie, action.priority, action.table_id = rule.cookie, rule.priority, rule.table_id
    action.window_op, action.window_bytes, action.alpha = rule.window_op, rule.window_bytes, rule.alpha
    action.count_op = rule.count_op
    action.count_ofport = ANY_PORT if rule.count_port is None else rule.count_port
    action.ip_version, action.observes = rule.match.ip_version, rule.observes
    action.idle_timeout_s, action.hard_timeout_s = rule.idle_timeout_s, rule.hard_timeout_s
    action.idle_ns = rule.idle_timeout_s * NS_PER_S
    hard_end_ns = rule.hard_end_ns or time.monotonic_ns() + rule.hard_timeout_s * NS_PER_S
    action.hard_end_ns = hard_end_ns if rule.hard_timeout_s else 0


def decode_action(action: Any, match: TcpMatch) -> Rule:
    """The rule of a struct weir_action and its match."""
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
        hard_end_ns=int(action.hard_end_ns),
        observes=bool(action.observes),
    )


def start_tally(tally: Any, rule: Rule) -> None:
    """Initialise the struct weir_tally of a new rule. Its idle timeout starts now."""
    tally.used_ns, tally.window_bytes = time.monotonic_ns(), rule.window_bytes


def passed_timeout(action: Any, tally: Any, now_ns: int) -> bool | None:
    """None if no timeout of the rule has passed, else whether the hard timeout has."""
    if action.hard_end_ns and now_ns >= action.hard_end_ns:
        return True
    if action.idle_ns and now_ns - tally.used_ns >= action.idle_ns:
        return False
    return None


def expiry_ns(action: Any, tally: Any) -> int | None:
    """When the rule expires if no segment matches until then; None: never."""
    ends = []
    if action.hard_end_ns:
        ends.append(int(action.hard_end_ns))
    if action.idle_ns:
        ends.append(int(tally.used_ns + action.idle_ns))
    return min(ends, default=None)


def exact_key(bridge: int, match: TcpMatch) -> Any:
    """The key of an exact rule: its bridge and its 5-tuple."""
    key = ffi.new("struct weir_exact_key *", {"bridge": bridge})
    key.src, key.dst = (_words(_address(n, match.ip_version)[0]) for n in (match.src, match.dst))
    key.src_port, key.dst_port = socket.htons(match.src_port or 0), socket.htons(match.dst_port or 0)
    return key


def decode_exact(key: Any, value: Any) -> Rule:
    """The rule of a key and a value of the map ``exact_rules``."""
    version = int(value.action.ip_version)
    match = TcpMatch(
        ip_version=version,
        src=_network(_number(key.src), _ALL, version),
        dst=_network(_number(key.dst), _ALL, version),
        src_port=socket.ntohs(key.src_port),
        dst_port=socket.ntohs(key.dst_port),
    )
    return decode_action(value.action, match)


def fill_listed(listed: Any, rule: Rule, tally: int) -> None:
    """Write a rule into a struct weir_listed. ``tally`` is the index of its counters."""
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
    listed.tally = tally


def decode_listed(listed: Any) -> Rule:
    """The rule of a struct weir_listed."""
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
    """The struct weir_flags_table of a list: the rule that acts, for each set of TCP flags.

    ``rules`` are in the order of falling priority, each with the index of its tally.
    """
    cells = []
    for version in (4, 6):
        these = [(rule, tally) for rule, tally in rules if rule.match.ip_version == version]
        cells += [_flags_cell(these, flags) for flags in range(constants.WEIR_PLAIN_FLAGS)]
    return cells


def _flags_cell(rules: Sequence[tuple[Rule, int]], flags: int) -> int:
    """WEIR_FIRST_RULE + the tally of the one rule that acts on all segments with these flags.

    WEIR_NO_RULE if no rule acts on any of them. WEIR_ASK_LIST if the flags alone do not decide.
    """
    acts: tuple[Rule, int] | None = None
    for rule, tally in rules:
        match = rule.match
        if flags & match.flags_mask != match.flags % constants.WEIR_PLAIN_FLAGS:
            continue
        if acts and acts[0].table_id == rule.table_id:
            continue
        if acts or not _matches_by_flags_alone(rule):
            return int(constants.WEIR_ASK_LIST)
        acts = rule, tally
    return int(constants.WEIR_FIRST_RULE) + acts[1] if acts else int(constants.WEIR_NO_RULE)


def _matches_by_flags_alone(rule: Rule) -> bool:
    """Whether a rule matches every segment whose flags it matches, at any time."""
    match = rule.match
    anywhere = match.src is None and match.dst is None and match.in_port is None
    any_port = match.src_port is None and match.dst_port is None
    forever = not rule.idle_timeout_s and not rule.hard_timeout_s
    return anywhere and any_port and forever and match.flags_mask < constants.WEIR_PLAIN_FLAGS
