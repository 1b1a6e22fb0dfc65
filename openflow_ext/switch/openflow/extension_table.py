"""The extension table of one bridge: the rules that FLOW_MODs make, change and remove, and the undo of that.

The data plane holds the rules. This module holds the index by which a FLOW_MOD finds them. It does no I/O
except through its DataPlane.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field

from openflow_ext.switch.dataplane.interface import DataPlane, DataPlaneError, TableFull, UnsupportedMatch
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch
from openflow_ext.switch.errors import Refused
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.extension_rules import (
    fields_of,
    find_tcp_match,
    operations_of,
    rule_of,
    tcp_match,
    with_operations,
)
from openflow_ext.switch.openflow.flow_mods import (
    FlowMod,
    Operations,
    actions_of,
    sends_to,
    with_actions_first,
)
from openflow_ext.switch.openflow.flow_stats import Flow
from openflow_ext.switch.openflow.matches import Fields, covers, read_match

log = logging.getLogger(__name__)

Key = tuple[int, int, TcpMatch]

PENDING_MAX = 4096
"""FLOW_MODs that can be undone at the same time."""
PENDING_S = 30.0
"""How long a FLOW_MOD can be undone. Open vSwitch refuses a FLOW_MOD much sooner."""
SETTLED_S = 2.0
"""The time after which Open vSwitch has every entry that it was sent."""
CLOCK_SLACK_S = 0.1
"""How much older Open vSwitch may report an entry than it is: its clock ticks with its main loop."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A rule, with all instructions of its flow entry as the controller wrote them.

    ``instructions`` is None for an entry adopted from an earlier agent, until Open vSwitch reports its part.
    ``since`` is the time at which the entry was added, by the table's clock.
    """

    rule: Rule
    instructions: bytes | None = None
    since: float = -math.inf
    fields: Fields = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", fields_of(self.rule.match))

    @property
    def key(self) -> Key:
        return key_of(self.rule)


@dataclass(frozen=True, slots=True)
class Change:
    """One entry before and after a FLOW_MOD. None: the entry does not exist."""

    before: Entry | None
    after: Entry | None


def key_of(rule: Rule) -> Key:
    """The identity of an entry: table, priority and match."""
    return rule.table_id, rule.priority, rule.match


class ExtensionTable:
    """The rules of one bridge. ``now`` gives a monotonic time in seconds."""

    def __init__(self, bridge: int, dataplane: DataPlane, now: Callable[[], float] = time.monotonic) -> None:
        self._bridge = bridge
        self._dataplane = dataplane
        self._now = now
        self._entries: dict[Key, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def adopt(self) -> None:
        """Adopt the rules that an earlier agent left in the data plane."""
        found = (Entry(rule) for rule, _ in self._dataplane.rules(self._bridge))
        self._entries = {entry.key: entry for entry in found}

    def purge(self) -> None:
        """Remove every rule, also the rules of an earlier agent."""
        self.adopt()
        for entry in list(self):
            self._remove(entry)

    def apply(self, flow_mod: FlowMod) -> tuple[Change, ...]:
        """Carry out a FLOW_MOD and return the changes. For a MODIFY with actions call ``modify`` instead.

        Raises Refused; nothing has changed then.
        """
        if flow_mod.command == of.OFPFC_ADD:
            return self._commit(self._add(flow_mod))
        if flow_mod.modifies:
            return self._commit(Change(entry, None) for entry in self._selected(flow_mod))
        if flow_mod.command in (of.OFPFC_DELETE, of.OFPFC_DELETE_STRICT):
            return self._commit(Change(entry, None) for entry in self._deleted(flow_mod))
        return ()

    def modify(self, flow_mod: FlowMod, flows: Iterable[Flow]) -> tuple[Change, ...]:
        """Carry out a MODIFY with actions on ``flows``, the entries of Open vSwitch that it changes.

        Raises Refused; nothing has changed then.
        """
        operations = flow_mod.operations
        return self._commit([self._modified(flow, flow_mod.instructions, operations) for flow in flows])

    def _modified(self, flow: Flow, instructions: bytes, operations: Operations) -> Change:
        before = self.find(flow)
        if before is not None:
            rule, since = before.rule, before.since
        else:
            left_s = max(1, math.ceil(flow.hard_timeout_s - flow.age_s)) if flow.hard_timeout_s else 0
            plain = Rule(
                table_id=flow.table_id,
                priority=flow.priority,
                cookie=flow.cookie,
                match=tcp_match(read_match(flow.match)),
                idle_timeout_s=flow.idle_timeout_s,
                hard_timeout_s=left_s,
            )
            rule = self._starting(plain)
            since = self._now() - flow.age_s
        return Change(before, Entry(with_operations(rule, operations), instructions, since))

    def _starting(self, rule: Rule) -> Rule:
        """``rule`` with the end of its hard timeout, which starts now. MODIFY and undo keep that end."""
        end_ns = int((self._now() + rule.hard_timeout_s) * 1e9) if rule.hard_timeout_s else 0
        return dataclasses.replace(rule, hard_end_ns=end_ns)

    def find(self, flow: Flow) -> Entry | None:
        """The extension's part of an entry of Open vSwitch."""
        match = find_tcp_match(flow.match)
        return self._entries.get((flow.table_id, flow.priority, match)) if match else None

    def whole_instructions(self, flow: Flow) -> bytes:
        """The instructions of an entry of Open vSwitch, with the extension's actions, as they were written.

        Raises ValueError if a length field of the instructions is wrong.
        """
        entry = self.find(flow)
        if entry is None:
            return flow.instructions
        if entry.instructions is None:
            return with_actions_first(flow.instructions, actions_of(operations_of(entry.rule)))
        return entry.instructions

    def learn(self, flow: Flow) -> Entry | None:
        """Complete an adopted entry with Open vSwitch's part of it; the entry."""
        entry = self.find(flow)
        if entry is not None and entry.instructions is None:
            entry = dataclasses.replace(entry, instructions=self.whole_instructions(flow))
            self._entries[entry.key] = entry
        return entry

    def forget(self, entries: Iterable[Entry]) -> int:
        """Remove entries that Open vSwitch lost and that have not changed since; the number removed."""
        gone = [entry for entry in entries if self._entries.get(entry.key) is entry]
        for entry in gone:
            self._remove(entry)
        return len(gone)

    def removed(self, flow: Flow) -> None:
        """Open vSwitch removed an entry itself: by a timeout, with a group, or by an eviction.

        An entry that was added again since then stays.
        """
        entry = self.find(flow)
        if entry is not None and self._now() - entry.since + CLOCK_SLACK_S >= flow.age_s:
            self._remove(entry)

    def _add(self, flow_mod: FlowMod) -> Iterable[Change]:
        if flow_mod.actions:
            after = Entry(self._starting(rule_of(flow_mod)), flow_mod.instructions, self._now())
            return [Change(self._entries.get(after.key), after)]
        return [Change(entry, None) for entry in self._same(flow_mod, [flow_mod.table_id])]

    def _selected(self, flow_mod: FlowMod) -> list[Entry]:
        """The entries that a MODIFY or DELETE selects, strict or not."""
        selected = self._same if flow_mod.strict else self._covered
        found = selected(flow_mod, flow_mod.tables)
        return [entry for entry in found if flow_mod.selects_cookie(entry.rule.cookie)]

    def _same(self, flow_mod: FlowMod, tables: Iterable[int]) -> list[Entry]:
        """The entries of ``tables`` with the priority and the match of ``flow_mod``."""
        match = find_tcp_match(flow_mod.match)
        if match is None:
            return []
        keys = ((table_id, flow_mod.priority, match) for table_id in tables)
        return [self._entries[key] for key in keys if key in self._entries]

    def _covered(self, flow_mod: FlowMod, tables: Container[int]) -> list[Entry]:
        """The entries of ``tables`` whose match the match of ``flow_mod`` covers."""
        try:
            fields = flow_mod.fields
        except Refused:
            return []
        return [entry for entry in self if entry.rule.table_id in tables and covers(fields, entry.fields)]

    def _deleted(self, flow_mod: FlowMod) -> list[Entry]:
        only = flow_mod.out_port, flow_mod.out_group
        return [entry for entry in self._selected(flow_mod) if sends_to(entry.instructions or b"", *only)]

    def _commit(self, changes: Iterable[Change]) -> tuple[Change, ...]:
        """Make all of ``changes`` or none. Raises Refused."""
        done: list[Change] = []
        try:
            for change in list(changes):
                self._make(change)
                done.append(change)
        except DataPlaneError as error:
            self.undo(done)
            raise _as_refusal(error) from error
        return tuple(done)

    def _make(self, change: Change) -> None:
        if change.after is not None:
            self._dataplane.put(self._bridge, change.after.rule)
            self._entries[change.after.key] = change.after
        elif change.before is not None:
            self._remove(change.before)

    def _remove(self, entry: Entry) -> None:
        self._dataplane.remove(self._bridge, entry.rule)
        self._entries.pop(entry.key, None)

    def undo(self, changes: Iterable[Change]) -> None:
        """Undo ``changes``, the last one first. An entry that has changed again since then stays."""
        for change in reversed(tuple(changes)):
            entry = change.after or change.before
            if entry is None or self._entries.get(entry.key) is not change.after:
                continue
            try:
                self._make(Change(change.after, change.before))
            except DataPlaneError as error:
                log.error("bridge %d: a refused FLOW_MOD is only partly undone: %s", self._bridge, error)

    def expire(self, rule: Rule) -> None:
        """Remove a rule whose timeout has passed in the data plane."""
        entry = self._entries.get(key_of(rule))
        if entry is not None:
            self._remove(entry)


def _as_refusal(error: DataPlaneError) -> Refused:
    if isinstance(error, TableFull):
        return Refused(of.OFPET_FLOW_MOD_FAILED, of.OFPFMFC_TABLE_FULL, str(error))
    if isinstance(error, UnsupportedMatch):
        return Refused(of.OFPET_BAD_MATCH, of.OFPBMC_BAD_FIELD, str(error))
    return Refused(of.OFPET_FLOW_MOD_FAILED, of.OFPFMFC_UNKNOWN, str(error))


@dataclass(frozen=True, slots=True)
class _Pending:
    changes: tuple[Change, ...]
    original: bytes
    sent_at: float


class PendingChanges:
    """The changes of recent FLOW_MODs, for as long as Open vSwitch may refuse them.

    The key is the first bytes of the message that went to Open vSwitch, its xid among them, because an
    OFPT_ERROR quotes these bytes. ``now`` gives a monotonic time in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._pending: OrderedDict[bytes, _Pending] = OrderedDict()

    def remember(self, sent: bytes, original: bytes, changes: tuple[Change, ...]) -> None:
        """Remember ``changes`` of the message ``original``, of which ``sent`` went to Open vSwitch."""
        now, quoted = self._now(), sent[: of.ERROR_DATA_SIZE]
        self._pending[quoted] = _Pending(changes, original[: of.ERROR_DATA_SIZE], now)
        self._pending.move_to_end(quoted)
        while len(self._pending) > PENDING_MAX or self._oldest() < now - PENDING_S:
            self._pending.popitem(last=False)

    def _oldest(self) -> float:
        return next(iter(self._pending.values())).sent_at

    def take(self, quoted: bytes) -> tuple[tuple[Change, ...], bytes] | None:
        """The changes of the message that an error quotes, and the first bytes of the original message."""
        pending = self._pending.pop(quoted[: of.ERROR_DATA_SIZE], None)
        return (pending.changes, pending.original) if pending else None
