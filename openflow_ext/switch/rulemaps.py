"""The extension table in its maps: rules written, read back, expired.

A rule that names one connection's direction and only touches its window is exact: one entry of a
hash. Every other rule is listed: by falling priority, in one list a bridge and direction, replaced
whole, so that a packet sees the list before or after a change and nothing between.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator, Sequence
from typing import Any

from openflow_ext.switch.dataplane import TableFull, UnsupportedMatch
from openflow_ext.switch.layout import constants, ffi
from openflow_ext.switch.libbpf import BpfError, Map
from openflow_ext.switch.ruleforms import (
    decode_exact,
    decode_listed,
    exact_key,
    fill_action,
    fill_listed,
    over,
    start_tally,
    stats_of,
)
from openflow_ext.switch.rules import CountOp, Rule, RuleStats, WindowOp

MAX_LISTED = 64
INGRESS, EGRESS = int(constants.WEIR_INGRESS), int(constants.WEIR_EGRESS)
MAX_TABLE = 31


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
            key = exact_key(bridge, rule.match)
            held = self._exact.get(key)
            if held is not None and same_entry(decode_exact(key, held), rule):
                self._exact.delete(key)
                return stats_of(held.tally)
        found = RuleStats()
        for direction in (INGRESS, EGRESS):
            for listed in self._read(bridge, direction):
                if same_entry(decode_listed(listed), rule):
                    found = stats_of(self._tally(listed.tally))
                    self._write(bridge, direction, self._without(bridge, direction, rule))
        return found

    def rules(self, bridge: int) -> list[tuple[Rule, RuleStats]]:
        """All rules of a bridge by falling priority; a rule with both kinds of action once."""
        found = [(rule, stats) for owner, rule, stats, _ in self._all_exact() if owner == bridge]
        seen: list[Rule] = []
        for direction in (INGRESS, EGRESS):
            for listed in self._read(bridge, direction):
                rule = decode_listed(listed)
                if not any(same_entry(rule, other) for other in seen):
                    seen.append(rule)
                    found.append((rule, stats_of(self._tally(listed.tally))))
        return sorted(found, key=lambda pair: (pair[0].table_id, -pair[0].priority))

    def expired(self) -> list[tuple[int, Rule, RuleStats, bool]]:
        """(bridge, rule, counters, hard) of each rule past a timeout of its own."""
        now = time.monotonic_ns()
        late = []
        for bridge, rule, stats, is_over in self._all_exact():
            hard = is_over(now)
            if hard is not None:
                late.append((bridge, rule, stats, hard))
        for key, _ in self._lists.items():
            for listed in self._read(key.bridge, key.direction):
                tally = self._tally(listed.tally)
                hard = over(listed.action, tally, now)
                if hard is not None:
                    late.append((int(key.bridge), decode_listed(listed), stats_of(tally), hard))
        return late

    # -- exact rules ---------------------------------------------------------------------------

    def _goes_exact(self, bridge: int, rule: Rule) -> bool:
        """Exact, unless the one place of its 5-tuple is taken by an entry of other table or priority."""
        if not rule.match.exact or rule.count_op is not CountOp.NONE:
            return False
        key = exact_key(bridge, rule.match)
        held = self._exact.get(key)
        return held is None or same_entry(decode_exact(key, held), rule)

    def _put_exact(self, bridge: int, rule: Rule) -> None:
        value = self._exact.value()
        fill_action(value.action, rule)
        start_tally(value.tally, rule)
        try:
            self._exact.put(exact_key(bridge, rule.match), value)
        except BpfError as error:
            if error.errno in (errno.E2BIG, errno.ENOMEM):
                raise TableFull("the table of exact entries is full") from error
            raise

    def _all_exact(self) -> Iterator[tuple[int, Rule, RuleStats, Any]]:
        for key, value in self._exact.items():

            def is_over(now: int, value: Any = value) -> bool | None:
                return over(value.action, value.tally, now)

            yield int(key.bridge), decode_exact(key, value), stats_of(value.tally), is_over

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
        return [r for r in self._read(bridge, direction) if not same_entry(decode_listed(r), rule)]

    def _insert(self, bridge: int, direction: int, rule: Rule) -> None:
        kept = self._without(bridge, direction, rule)
        place = self._free_tally()
        listed = ffi.new("struct weir_listed *")
        fill_listed(listed, rule, place)
        tally = self._tallies.value()
        start_tally(tally, rule)
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

    # -- what both kinds share -----------------------------------------------------------------

    @staticmethod
    def _refuse_what_cannot_be(rule: Rule) -> None:
        if rule.table_id > MAX_TABLE:
            raise UnsupportedMatch(
                f"table {rule.table_id}: extension entries live in tables 0 to {MAX_TABLE}"
            )
        if rule.count_op is not CountOp.NONE and rule.match.in_port is not None:
            raise UnsupportedMatch("in_port with a count action: the input port is not known at egress")


class ArmedMaps:
    """The reflex entries: exact rules in a map of their own, by port and rank."""

    def __init__(self, armed: Map) -> None:
        self._armed = armed

    def replace(self, bridge: int, ifindex: int, rules: Sequence[Rule]) -> None:
        """Arm a port with `rules` in place of what it had."""
        for rule in rules:
            if not rule.match.exact or rule.window_op is not WindowOp.MOD_WINDOW:
                raise UnsupportedMatch("a reflex entry is MOD_WINDOW on one connection's 5-tuple")
            held = self._armed.get(exact_key(bridge, rule.match))
            if held is not None and held.action.armed_ifindex != ifindex:
                raise UnsupportedMatch(f"{rule.match} is armed on another port already")
        before = [pair for pair in self._armed.items() if pair[1].action.armed_ifindex == ifindex]
        for key, _ in before:
            self._armed.delete(key)
        try:
            for rank, rule in enumerate(rules):
                value = self._armed.value()
                fill_action(value.action, rule)
                value.action.rank, value.action.armed_ifindex = rank, ifindex
                value.action.hard_end_ns = 0
                self._armed.put(exact_key(bridge, rule.match), value)
        except BpfError as error:
            for rule in rules:
                self._armed.delete(exact_key(bridge, rule.match))
            for key, value in before:
                self._armed.put(key, value)
            raise TableFull(f"the table of reflex entries: {error}") from error

    def of(self, ifindex: int) -> list[tuple[Rule, RuleStats]]:
        """What a port is armed with, by rank."""
        held = [(k, v) for k, v in self._armed.items() if v.action.armed_ifindex == ifindex]
        held.sort(key=lambda pair: int(pair[1].action.rank))
        return [(decode_exact(key, value), stats_of(value.tally)) for key, value in held]
