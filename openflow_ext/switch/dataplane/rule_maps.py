"""The rules in the BPF maps: written, read back, expired.

A rule for one direction of one connection that only changes its window is exact: it is an entry of a hash.
Every other rule is listed. Each bridge and direction has one list by falling priority. A change replaces the
whole list, so a packet sees the list either before or after the change.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

from libbpf_cffi.libbpf import BpfError, Map
from openflow_ext.switch.dataplane.expiry_times import ExpiryTimes
from openflow_ext.switch.dataplane.interface import TableFull, UnsupportedMatch
from openflow_ext.switch.dataplane.rule_structs import (
    decode_exact,
    decode_listed,
    exact_key,
    expiry_ns,
    fill_action,
    fill_listed,
    flags_table,
    passed_timeout,
    start_tally,
    stats_of,
)
from openflow_ext.switch.dataplane.rules import CountOp, Rule, RuleStats, WindowOp
from openflow_ext.switch.dataplane.structs import constants, ffi

MAX_LISTED = 64
"""The most rules of a list."""
ASK_LIST = [int(constants.WEIR_ASK_LIST)] * (2 * int(constants.WEIR_PLAIN_FLAGS))
INGRESS, EGRESS = int(constants.WEIR_INGRESS), int(constants.WEIR_EGRESS)
MAX_TABLE = 31
"""The last OpenFlow table of extension entries: struct weir_list has one bit for each table."""


def same_entry(a: Rule, b: Rule) -> bool:
    """Whether two rules belong to the same flow entry: same table, match and priority."""
    return (a.table_id, a.priority, a.match) == (b.table_id, b.priority, b.match)


def _is_entry(listed: Any, rule: Rule) -> bool:
    """Whether a listed rule belongs to the flow entry of ``rule``. Decoding every rule would take long."""
    action = listed.action
    same_place = (action.table_id, action.priority) == (rule.table_id, rule.priority)
    return same_place and same_entry(decode_listed(listed), rule)


class RuleMaps:
    """The rules in the maps exact_rules, lists, list_flags, tallies and list_counts.

    An exact rule with a timeout is checked only when the timeout may have passed. The first call of expired()
    reads the whole map once, to find the rules of an earlier agent.
    """

    def __init__(self, exact: Map, lists: Map, list_flags: Map, tallies: Map, counts: Map) -> None:
        self._exact, self._lists, self._list_flags = exact, lists, list_flags
        self._tallies, self._counts = tallies, counts
        self._expiry_times: ExpiryTimes | None = None

    def put(self, bridge: int, rule: Rule) -> None:
        """Add or replace a rule. Raises TableFull, UnsupportedMatch; nothing has changed then."""
        _refuse_unsupported(rule)
        directions: list[int] = []
        if self._goes_exact(bridge, rule):
            self._put_exact(bridge, rule)
        else:
            directions = [d for d in (INGRESS, EGRESS) if self._acts_in(rule, d)]
            for direction in directions:
                kept = self._without(bridge, direction, rule)
                if len(kept) >= MAX_LISTED:
                    raise TableFull(f"the list of entries that are not exact is full ({MAX_LISTED})")
            for direction in directions:
                self._insert(bridge, direction, rule)
            self._remove_exact(bridge, rule)
        for direction in {INGRESS, EGRESS}.difference(directions):
            self._remove_listed(bridge, direction, rule)

    def remove(self, bridge: int, rule: Rule) -> RuleStats:
        """Remove the rule with the same table, match and priority. Returns its last counters."""
        found = [self._remove_listed(bridge, direction, rule) for direction in (INGRESS, EGRESS)]
        found.append(self._remove_exact(bridge, rule))
        return next((stats for stats in reversed(found) if stats is not None), RuleStats())

    def rules(self, bridge: int) -> list[tuple[Rule, RuleStats]]:
        """All rules of a bridge by table and falling priority. A rule that is in both lists occurs once."""
        found = [
            (decode_exact(key, value), stats_of(value.tally.counts))
            for key, value in self._exact.items()
            if key.bridge == bridge
        ]
        seen: list[Rule] = []
        for direction in (INGRESS, EGRESS):
            for listed in self._read(bridge, direction):
                rule = decode_listed(listed)
                if not any(same_entry(rule, other) for other in seen):
                    seen.append(rule)
                    found.append((rule, self._counted(listed.tally)))
        return sorted(found, key=lambda pair: (pair[0].table_id, -pair[0].priority))

    def expired(self) -> list[tuple[int, Rule, RuleStats, bool]]:
        """The rules whose timeout has passed: (bridge, rule, counters, whether it was the hard timeout)."""
        now = time.monotonic_ns()
        late = self._expired_exact(now)
        for key, _ in self._lists.items():
            for listed in self._read(key.bridge, key.direction):
                tally = self._tally(listed.tally)
                hard = passed_timeout(listed.action, tally, now)
                if hard is not None:
                    late.append((int(key.bridge), decode_listed(listed), self._counted(listed.tally), hard))
        return late

    # -- exact rules ---------------------------------------------------------------------------

    def _goes_exact(self, bridge: int, rule: Rule) -> bool:
        """Whether a rule goes into the hash.

        The hash has one entry for each 5-tuple. If a rule of another table or priority has taken it, the new
        rule goes into a list.
        """
        if not rule.match.exact or rule.count_op is not CountOp.NONE:
            return False
        key = exact_key(bridge, rule.match)
        held = self._exact.get(key)
        return held is None or same_entry(decode_exact(key, held), rule)

    def _put_exact(self, bridge: int, rule: Rule) -> None:
        value = self._exact.value()
        fill_action(value.action, rule)
        start_tally(value.tally, rule)
        key = exact_key(bridge, rule.match)
        try:
            self._exact.put(key, value)
        except BpfError as error:
            if error.errno in (errno.E2BIG, errno.ENOMEM):
                raise TableFull("the table of exact entries is full") from error
            raise
        if self._expiry_times is not None:
            _add_expiry(self._expiry_times, key, value)

    def _remove_exact(self, bridge: int, rule: Rule) -> RuleStats | None:
        """Remove the rule from the hash. Returns its last counters; None: it is not there."""
        if not rule.match.exact:
            return None
        key = exact_key(bridge, rule.match)
        held = self._exact.get(key)
        if held is None or not same_entry(decode_exact(key, held), rule):
            return None
        self._exact.delete(key)
        if self._expiry_times is not None:
            self._expiry_times.forget(bytes(ffi.buffer(key)))
        return stats_of(held.tally.counts)

    def _expired_exact(self, now: int) -> list[tuple[int, Rule, RuleStats, bool]]:
        if self._expiry_times is None:
            self._expiry_times = ExpiryTimes()
            for key, value in self._exact.items():
                _add_expiry(self._expiry_times, key, value)
        late = []
        for raw in self._expiry_times.due(now):
            key = self._exact.key()
            ffi.buffer(key)[:] = raw
            value = self._exact.get(key)
            if value is None:
                continue
            # An expired rule is reported again until it is removed.
            _add_expiry(self._expiry_times, key, value)
            hard = passed_timeout(value.action, value.tally, now)
            if hard is not None:
                late.append((int(key.bridge), decode_exact(key, value), stats_of(value.tally.counts), hard))
        return late

    # -- listed rules --------------------------------------------------------------------------

    @staticmethod
    def _acts_in(rule: Rule, direction: int) -> bool:
        if direction == INGRESS:
            return rule.window_op is not WindowOp.NONE
        return rule.count_op is not CountOp.NONE

    def _read(self, bridge: int, direction: int) -> list[Any]:
        held = self._lists.get(self._list_key(bridge, direction))
        return [] if held is None else [self._copy(held.rules[i]) for i in range(held.len)]

    def _without(self, bridge: int, direction: int, rule: Rule) -> list[Any]:
        return [r for r in self._read(bridge, direction) if not _is_entry(r, rule)]

    def _remove_listed(self, bridge: int, direction: int, rule: Rule) -> RuleStats | None:
        """Remove the rule from a list. Returns its last counters; None: it is not there."""
        held = self._lists.get(self._list_key(bridge, direction))
        if held is None or not held.tables >> rule.table_id & 1:
            return None
        found = next((held.rules[i] for i in range(held.len) if _is_entry(held.rules[i], rule)), None)
        if found is None:
            return None
        stats = self._counted(found.tally)
        self._write(bridge, direction, self._without(bridge, direction, rule))
        return stats

    def _insert(self, bridge: int, direction: int, rule: Rule) -> None:
        kept = self._without(bridge, direction, rule)
        tally = self._free_tally()
        listed = ffi.new("struct weir_listed *")
        fill_listed(listed, rule, tally)
        counted = self._tallies.value()
        fill_action(counted.action, rule)
        start_tally(counted.tally, rule)
        self._tallies.put(self._tallies.key(tally), counted)
        self._counts.put(self._counts.key(tally), self._counts.value())
        after = next((i for i, r in enumerate(kept) if r.action.priority < rule.priority), len(kept))
        self._write(bridge, direction, [*kept[:after], listed[0], *kept[after:]])

    def _write(self, bridge: int, direction: int, listed: list[Any]) -> None:
        key, by_flags = self._list_key(bridge, direction), self._list_flags.key(2 * bridge + direction)
        self._list_flags.put(by_flags, self._list_flags.value({"rule": ASK_LIST}))
        value = self._lists.value()
        value.len = len(listed)
        for i, rule in enumerate(listed):
            value.rules[i] = rule
            value.tables |= 1 << rule.action.table_id
        if listed:
            self._lists.put(key, value)
        else:
            self._lists.delete(key)
        rules = [(decode_listed(rule), int(rule.tally)) for rule in listed]
        self._list_flags.put(by_flags, self._list_flags.value({"rule": flags_table(rules)}))

    def _list_key(self, bridge: int, direction: int) -> Any:
        return self._lists.key({"bridge": bridge, "direction": direction})

    def _copy(self, listed: Any) -> Any:
        return ffi.new("struct weir_listed *", listed)[0]

    def _free_tally(self) -> int:
        taken = {int(r.tally) for k, _ in self._lists.items() for r in self._read(k.bridge, k.direction)}
        return next(index for index in range(len(taken) + 1) if index not in taken)

    def _tally(self, index: int) -> Any:
        counted: Any = self._tallies.get(self._tallies.key(index))
        return counted.tally

    def _counted(self, index: int) -> RuleStats:
        return stats_of(*(self._counts.get(self._counts.key(index)) or ()))


def _refuse_unsupported(rule: Rule) -> None:
    """Raises UnsupportedMatch if the programs cannot carry out a rule, listed, exact or armed."""
    if rule.table_id > MAX_TABLE:
        raise UnsupportedMatch(
            f"table {rule.table_id}: an extension entry must be in one of the tables 0 to {MAX_TABLE}"
        )
    if rule.count_op is not CountOp.NONE and rule.match.in_port is not None:
        raise UnsupportedMatch("in_port with a count action: a packet's input port is unknown at egress")


def _add_expiry(expiry_times: ExpiryTimes, key: Any, value: Any) -> None:
    if (at_ns := expiry_ns(value.action, value.tally)) is not None:
        expiry_times.add(bytes(ffi.buffer(key)), at_ns)


class ArmedMaps:
    """The reflex entries: exact rules in a map of their own, each with a port and a rank.

    The first use reads the whole map once, to find the entries of an earlier agent.
    """

    def __init__(self, armed: Map) -> None:
        self._armed = armed

    @cached_property
    def _keys(self) -> dict[int, list[Any]]:
        """The keys of each port's entries, in the order of their rank."""
        ranked: dict[int, list[tuple[int, Any]]] = {}
        for key, value in self._armed.items():
            ranked.setdefault(int(value.action.armed_ifindex), []).append((int(value.action.rank), key))
        return {
            ifindex: [key for _, key in sorted(pairs, key=itemgetter(0))] for ifindex, pairs in ranked.items()
        }

    def replace(self, bridge: int, ifindex: int, rules: Sequence[Rule]) -> None:
        """Replace the reflex entries of a port. If it raises TableFull or UnsupportedMatch, none changed."""
        for rule in rules:
            _refuse_unsupported(rule)
            if not rule.match.exact or rule.window_op is not WindowOp.MOD_WINDOW:
                raise UnsupportedMatch("a reflex entry must be MOD_WINDOW on the 5-tuple of one connection")
            held = self._armed.get(exact_key(bridge, rule.match))
            if held is not None and held.action.armed_ifindex != ifindex:
                raise UnsupportedMatch(f"{rule.match} is already armed on another port")
        before = self._held(ifindex)
        for key, _ in before:
            self._armed.delete(key)
        keys = [exact_key(bridge, rule.match) for rule in rules]
        try:
            for rank, (key, rule) in enumerate(zip(keys, rules, strict=True)):
                value = self._armed.value()
                fill_action(value.action, rule)
                value.action.rank, value.action.armed_ifindex = rank, ifindex
                value.action.hard_end_ns = 0
                self._armed.put(key, value)
        except BpfError as error:
            for key in keys:
                self._armed.delete(key)
            for key, value in before:
                self._armed.put(key, value)
            raise TableFull(f"the table of reflex entries cannot be written: {error}") from error
        self._keys[ifindex] = keys

    def forget(self, ifindex: int) -> None:
        """Remove the reflex entries of a port, so that their connections can be armed on another one."""
        for key in self._keys.pop(ifindex, ()):
            self._armed.delete(key)

    def _held(self, ifindex: int) -> list[tuple[Any, Any]]:
        pairs = ((key, self._armed.get(key)) for key in self._keys.get(ifindex, ()))
        return [(key, value) for key, value in pairs if value is not None]

    def of(self, ifindex: int) -> list[tuple[Rule, RuleStats]]:
        """The reflex entries of a port with their counters, in the order of their rank."""
        held = self._held(ifindex)
        return [(decode_exact(key, value), stats_of(value.tally.counts)) for key, value in held]
