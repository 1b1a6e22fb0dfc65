"""The extension table in its maps: rules written, read back, expired.

A rule that names one connection's direction and only touches its window is exact: one entry of a
hash. Every other rule is listed: by falling priority, in one list a bridge and direction, replaced
whole, so that a packet sees the list before or after a change and nothing between.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import time
from collections.abc import Iterator
from typing import Any

from openflow_ext.switch.dataplane import TableFull, UnsupportedMatch
from openflow_ext.switch.layout import constants, ffi
from openflow_ext.switch.libbpf import BpfError, Map
from openflow_ext.switch.rules import CountOp, Network, Rule, RuleStats, TcpMatch, WindowOp

MAX_LISTED = 64
ANY_PORT = 0xFFFFFFFF
INGRESS, EGRESS = int(constants.WEIR_INGRESS), int(constants.WEIR_EGRESS)
MAX_TABLE = 31
_NS = 1_000_000_000
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


def _stats(tally: Any) -> RuleStats:
    return RuleStats(int(tally.packets), int(tally.bytes), int(tally.clamped))


def same_entry(a: Rule, b: Rule) -> bool:
    """Whether two rules are one flow entry: OpenFlow's identity of table, match and priority."""
    return (a.table_id, a.priority, a.match) == (b.table_id, b.priority, b.match)


class RuleMaps:
    """Rules in the maps `exact_rules`, `lists` and `tallies`. Holds no state but which tallies are free."""

    def __init__(self, exact: Map, lists: Map, tallies: Map) -> None:
        self._exact, self._lists, self._tallies = exact, lists, tallies

    def put(self, bridge: int, rule: Rule) -> None:
        """Add or replace. Raises TableFull, UnsupportedMatch; then nothing has changed."""
        self._refuse_what_cannot_be(rule)
        if self._goes_exact(bridge, rule):
            self._put_exact(bridge, rule)
            return
        directions = [d for d in (INGRESS, EGRESS) if self._concerns(rule, d)]
        for direction in directions:
            kept = self._without(bridge, direction, rule)
            if len(kept) >= MAX_LISTED:
                raise TableFull(f"the list of wild entries holds {MAX_LISTED} already")
        for direction in directions:
            self._insert(bridge, direction, rule)

    def remove(self, bridge: int, rule: Rule) -> RuleStats:
        """Remove the entry of the same table, match and priority; its last counters."""
        if rule.match.exact:
            key = self._exact_key(bridge, rule.match)
            held = self._exact.get(key)
            if held is not None and same_entry(self._decode_exact(key, held), rule):
                self._exact.delete(key)
                return _stats(held.tally)
        found = RuleStats()
        for direction in (INGRESS, EGRESS):
            for listed in self._read(bridge, direction):
                if same_entry(self._decode(listed), rule):
                    found = _stats(self._tally(listed.tally))
                    self._write(bridge, direction, self._without(bridge, direction, rule))
        return found

    def rules(self, bridge: int) -> list[tuple[Rule, RuleStats]]:
        """All rules of a bridge by falling priority; a rule with both kinds of action once."""
        found = [(rule, stats) for owner, rule, stats, _ in self._all_exact() if owner == bridge]
        seen: list[Rule] = []
        for direction in (INGRESS, EGRESS):
            for listed in self._read(bridge, direction):
                rule = self._decode(listed)
                if not any(same_entry(rule, other) for other in seen):
                    seen.append(rule)
                    found.append((rule, _stats(self._tally(listed.tally))))
        return sorted(found, key=lambda pair: (pair[0].table_id, -pair[0].priority))

    def expired(self) -> list[tuple[int, Rule, RuleStats, bool]]:
        """(bridge, rule, counters, hard) of each rule past a timeout of its own."""
        now = time.monotonic_ns()
        late = []
        for bridge, rule, stats, over in self._all_exact():
            if over(now) is not None:
                late.append((bridge, rule, stats, bool(over(now))))
        for key, _ in self._lists.items():
            for listed in self._read(key.bridge, key.direction):
                tally = self._tally(listed.tally)
                hard = self._over(listed.action, tally, now)
                if hard is not None:
                    late.append((int(key.bridge), self._decode(listed), _stats(tally), hard))
        return late

    # -- exact rules ---------------------------------------------------------------------------

    def _goes_exact(self, bridge: int, rule: Rule) -> bool:
        """Exact, unless the one place of its 5-tuple is taken by an entry of other table or priority."""
        if not rule.match.exact or rule.count_op is not CountOp.NONE:
            return False
        key = self._exact_key(bridge, rule.match)
        held = self._exact.get(key)
        return held is None or same_entry(self._decode_exact(key, held), rule)

    def _put_exact(self, bridge: int, rule: Rule) -> None:
        value = self._exact.value()
        self._fill_action(value.action, rule)
        self._start_tally(value.tally, rule)
        try:
            self._exact.put(self._exact_key(bridge, rule.match), value)
        except BpfError as error:
            if error.errno in (errno.E2BIG, errno.ENOMEM):
                raise TableFull("the table of exact entries is full") from error
            raise

    def _exact_key(self, bridge: int, match: TcpMatch) -> Any:
        key = self._exact.key()
        key.bridge = bridge
        key.src, key.dst = (_words(_address(n, match.ip_version)[0]) for n in (match.src, match.dst))
        key.src_port, key.dst_port = socket.htons(match.src_port or 0), socket.htons(match.dst_port or 0)
        return key

    def _decode_exact(self, key: Any, value: Any) -> Rule:
        version = int(value.action.ip_version)
        match = TcpMatch(
            ip_version=version,
            src=_network(_number(key.src), _ALL, version),
            dst=_network(_number(key.dst), _ALL, version),
            src_port=socket.ntohs(key.src_port),
            dst_port=socket.ntohs(key.dst_port),
        )
        return self._decode_action(value.action, match)

    def _all_exact(self) -> Iterator[tuple[int, Rule, RuleStats, Any]]:
        for key, value in self._exact.items():

            def over(now: int, value: Any = value) -> bool | None:
                return self._over(value.action, value.tally, now)

            yield int(key.bridge), self._decode_exact(key, value), _stats(value.tally), over

    # -- listed rules --------------------------------------------------------------------------

    @staticmethod
    def _concerns(rule: Rule, direction: int) -> bool:
        if direction == INGRESS:
            return rule.window_op is not WindowOp.NONE
        return rule.count_op is not CountOp.NONE

    def _read(self, bridge: int, direction: int) -> list[Any]:
        held = self._lists.get(self._list_key(bridge, direction))
        return [] if held is None else [self._copy(held.rules[i]) for i in range(held.len)]

    def _without(self, bridge: int, direction: int, rule: Rule) -> list[Any]:
        return [r for r in self._read(bridge, direction) if not same_entry(self._decode(r), rule)]

    def _insert(self, bridge: int, direction: int, rule: Rule) -> None:
        kept = self._without(bridge, direction, rule)
        place = self._free_tally()
        listed = ffi.new("struct weir_listed *")
        self._fill_listed(listed, rule, place)
        tally = self._tallies.value()
        self._start_tally(tally, rule)
        self._tallies.put(self._tallies.key(place), tally)
        after = next((i for i, r in enumerate(kept) if r.action.priority < rule.priority), len(kept))
        self._write(bridge, direction, [*kept[:after], listed[0], *kept[after:]])

    def _write(self, bridge: int, direction: int, listed: list[Any]) -> None:
        key = self._list_key(bridge, direction)
        if not listed:
            self._lists.delete(key)
            return
        value = self._lists.value()
        value.len = len(listed)
        for i, rule in enumerate(listed):
            value.rules[i] = rule
            value.flags |= (rule.flags & rule.flags_mask) or 0xFFFFFFFF
            value.tables |= 1 << rule.action.table_id
        self._lists.put(key, value)

    def _list_key(self, bridge: int, direction: int) -> Any:
        return self._lists.key({"bridge": bridge, "direction": direction})

    def _copy(self, listed: Any) -> Any:
        return ffi.new("struct weir_listed *", listed)[0]

    def _free_tally(self) -> int:
        taken = {int(r.tally) for k, _ in self._lists.items() for r in self._read(k.bridge, k.direction)}
        return next(place for place in range(len(taken) + 1) if place not in taken)

    def _tally(self, place: int) -> Any:
        return self._tallies.get(self._tallies.key(place))

    def _fill_listed(self, listed: Any, rule: Rule, place: int) -> None:
        match = rule.match
        self._fill_action(listed.action, rule)
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

    def _decode(self, listed: Any) -> Rule:
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
        return self._decode_action(listed.action, match)

    # -- what both kinds share -----------------------------------------------------------------

    @staticmethod
    def _refuse_what_cannot_be(rule: Rule) -> None:
        if rule.table_id > MAX_TABLE:
            raise UnsupportedMatch(
                f"table {rule.table_id}: extension entries live in tables 0 to {MAX_TABLE}"
            )
        if rule.count_op is not CountOp.NONE and rule.match.in_port is not None:
            raise UnsupportedMatch("in_port with a count action: the input port is not known at egress")

    @staticmethod
    def _fill_action(action: Any, rule: Rule) -> None:
        action.cookie, action.priority, action.table_id = rule.cookie, rule.priority, rule.table_id
        action.window_op, action.window_bytes, action.alpha = rule.window_op, rule.window_bytes, rule.alpha
        action.count_op = rule.count_op
        action.count_ofport = ANY_PORT if rule.count_port is None else rule.count_port
        action.ip_version = rule.match.ip_version
        action.idle_timeout_s, action.hard_timeout_s = rule.idle_timeout_s, rule.hard_timeout_s
        action.idle_ns = rule.idle_timeout_s * _NS
        action.hard_end_ns = time.monotonic_ns() + rule.hard_timeout_s * _NS if rule.hard_timeout_s else 0

    @staticmethod
    def _decode_action(action: Any, match: TcpMatch) -> Rule:
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

    @staticmethod
    def _start_tally(tally: Any, rule: Rule) -> None:
        tally.used_ns, tally.window_bytes = time.monotonic_ns(), rule.window_bytes

    @staticmethod
    def _over(action: Any, tally: Any, now: int) -> bool | None:
        """None: the rule is alive; else whether it was the hard timeout that ended it."""
        if action.hard_end_ns and now >= action.hard_end_ns:
            return True
        if action.idle_ns and now - tally.used_ns >= action.idle_ns:
            return False
        return None
