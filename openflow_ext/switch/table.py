"""The extension table of one bridge: which rules FLOW_MODs make, change and remove, and how to undo that.

The data plane holds the rules; this holds the index by which FLOW_MODs find them. Nothing here does I/O
but through the DataPlane that is handed in.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field

from openflow_ext.switch import openflow as of
from openflow_ext.switch import split
from openflow_ext.switch.dataplane import DataPlane, DataPlaneError, TableFull, UnsupportedMatch
from openflow_ext.switch.errors import Refused
from openflow_ext.switch.flowstats import Flow
from openflow_ext.switch.rules import Rule, TcpMatch

log = logging.getLogger(__name__)

Key = tuple[int, int, TcpMatch]

PENDING_MAX = 4096
PENDING_S = 30.0
SETTLED_S = 2.0
"""After this Open vSwitch has what was sent to it."""
CLOCK_SLACK_S = 0.1
"""How much older than here an entry may look to Open vSwitch, whose clock ticks with its main loop."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A rule, and all of the entry's instructions as the controller wrote them (None: taken over from an
    earlier agent, not known yet). ``since``: when the entry was added, by the table's clock."""

    rule: Rule
    instructions: bytes | None = None
    since: float = -math.inf
    fields: of.Fields = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", split.fields_of(self.rule.match))

    @property
    def key(self) -> Key:
        return key_of(self.rule)


@dataclass(frozen=True, slots=True)
class Change:
    """One entry before and after a FLOW_MOD; None: not there."""

    before: Entry | None
    after: Entry | None


def key_of(rule: Rule) -> Key:
    """What makes an entry that entry: table, priority and match."""
    return rule.table_id, rule.priority, rule.match


class ExtensionTable:
    """The rules of one bridge."""

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
        """Take over the rules that an earlier agent left in the data plane."""
        found = (Entry(rule) for rule, _ in self._dataplane.rules(self._bridge))
        self._entries = {entry.key: entry for entry in found}

    def purge(self) -> None:
        """Remove every rule, also those of an earlier agent."""
        self.adopt()
        for entry in list(self):
            self._remove(entry)

    def apply(self, flow_mod: of.FlowMod, actions: tuple[bytes, ...]) -> tuple[Change, ...]:
        """Do what a FLOW_MOD with these ``actions`` of the extension asks, and say what has changed.

        Raises Refused, and nothing has changed then.
        """
        if flow_mod.command == of.OFPFC_ADD:
            return self._commit(self._add(flow_mod, actions))
        if flow_mod.command in of.MODIFIES:
            return self._commit(Change(entry, None) for entry in self._selected(flow_mod))
        if flow_mod.command in (of.OFPFC_DELETE, of.OFPFC_DELETE_STRICT):
            return self._commit(Change(entry, None) for entry in self._deleted(flow_mod))
        return ()

    def modify(
        self, flow_mod: of.FlowMod, actions: tuple[bytes, ...], flows: Iterable[Flow]
    ) -> tuple[Change, ...]:
        """Do what a MODIFY with ``actions`` of the extension asks with ``flows``, Open vSwitch's entries
        that it is about.

        Raises Refused, and nothing has changed then.
        """
        split.check_modify(flow_mod, actions)
        return self._commit([self._modified(flow, flow_mod.instructions, actions) for flow in flows])

    def _modified(self, flow: Flow, instructions: bytes, actions: tuple[bytes, ...]) -> Change:
        before = self.find(flow)
        if before is not None:
            rule, since = before.rule, before.since
        else:
            left_s = max(1, math.ceil(flow.hard_timeout_s - flow.age_s)) if flow.hard_timeout_s else 0
            rule = Rule(
                table_id=flow.table_id,
                priority=flow.priority,
                cookie=flow.cookie,
                match=split.tcp_match(of.read_match(flow.match)),
                idle_timeout_s=flow.idle_timeout_s,
                hard_timeout_s=left_s,
            )
            since = self._now() - flow.age_s
        return Change(before, Entry(split.with_actions(rule, actions), instructions, since))

    def find(self, flow: Flow) -> Entry | None:
        """The extension part of an entry of Open vSwitch."""
        match = split.tcp_match_in(flow.match)
        return self._entries.get((flow.table_id, flow.priority, match)) if match else None

    def whole(self, flow: Flow) -> bytes:
        """The instructions of an entry of Open vSwitch with the extension's actions, as they were written.

        Raises ValueError where the instructions make no sense.
        """
        entry = self.find(flow)
        if entry is None:
            return flow.instructions
        if entry.instructions is None:
            return split.reinserted(flow.instructions, split.actions_of(entry.rule))
        return entry.instructions

    def learn(self, flow: Flow) -> Entry | None:
        """Complete an entry that was taken over, by Open vSwitch's part of it."""
        entry = self.find(flow)
        if entry is not None and entry.instructions is None:
            entry = dataclasses.replace(entry, instructions=self.whole(flow))
            self._entries[entry.key] = entry
        return entry

    def forget(self, entries: Iterable[Entry]) -> int:
        """Remove entries that Open vSwitch no longer has; how many were still as they are given."""
        gone = [entry for entry in entries if self._entries.get(entry.key) is entry]
        for entry in gone:
            self._remove(entry)
        return len(gone)

    def removed(self, flow: Flow) -> None:
        """Open vSwitch has removed an entry by itself: by a timeout, a group's end, an eviction."""
        entry = self.find(flow)
        if entry is not None and self._now() - entry.since + CLOCK_SLACK_S >= flow.age_s:
            self._remove(entry)

    def _add(self, flow_mod: of.FlowMod, actions: tuple[bytes, ...]) -> Iterable[Change]:
        if actions:
            after = Entry(split.rule_for(flow_mod, actions), flow_mod.instructions, self._now())
            return [Change(self._entries.get(after.key), after)]
        return [Change(entry, None) for entry in self._same(flow_mod, [flow_mod.table_id])]

    def _selected(self, flow_mod: of.FlowMod) -> list[Entry]:
        """The entries that a MODIFY or DELETE, strict or not, is about."""
        selected = self._same if flow_mod.strict else self._covered
        found = selected(flow_mod, flow_mod.tables)
        return [e for e in found if flow_mod.is_about_cookie(e.rule.cookie)]

    def _same(self, flow_mod: of.FlowMod, tables: Iterable[int]) -> list[Entry]:
        """The entries of ``tables`` with the priority and the match of ``flow_mod``."""
        match = split.tcp_match_in(flow_mod.match)
        if match is None:
            return []
        keys = ((table_id, flow_mod.priority, match) for table_id in tables)
        return [self._entries[key] for key in keys if key in self._entries]

    def _covered(self, flow_mod: of.FlowMod, tables: Container[int]) -> list[Entry]:
        """The entries of ``tables`` whose match is as narrow as that of ``flow_mod``, or narrower."""
        try:
            fields = of.read_match(flow_mod.match)
        except Refused:
            return []
        return [e for e in self if e.rule.table_id in tables and split.covers(fields, e.fields)]

    def _deleted(self, flow_mod: of.FlowMod) -> list[Entry]:
        only = flow_mod.out_port, flow_mod.out_group
        return [e for e in self._selected(flow_mod) if split.sends_to(e.instructions or b"", *only)]

    def _commit(self, changes: Iterable[Change]) -> tuple[Change, ...]:
        """Carry out all of ``changes`` or none."""
        done: list[Change] = []
        try:
            for change in list(changes):
                self._do(change)
                done.append(change)
        except DataPlaneError as error:
            self.undo(done)
            raise _as_refusal(error) from error
        return tuple(done)

    def _do(self, change: Change) -> None:
        if change.after is not None:
            self._dataplane.put(self._bridge, change.after.rule)
            self._entries[change.after.key] = change.after
        elif change.before is not None:
            self._remove(change.before)

    def _remove(self, entry: Entry) -> None:
        self._dataplane.remove(self._bridge, entry.rule)
        self._entries.pop(entry.key, None)

    def undo(self, changes: Iterable[Change]) -> None:
        """Take back ``changes``, last one first, where nothing newer stands in their place."""
        for change in reversed(tuple(changes)):
            entry = change.after or change.before
            if entry is None or self._entries.get(entry.key) is not change.after:
                continue
            try:
                self._do(Change(change.after, change.before))
            except DataPlaneError as error:
                log.error("bridge %d: a refused FLOW_MOD is not fully undone: %s", self._bridge, error)

    def expire(self, rule: Rule) -> None:
        """Remove a rule that the data plane calls expired."""
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
    """What FLOW_MODs under way have changed, until Open vSwitch could have refused them.

    Known by the first bytes of what was sent on, xid among them: an OFPT_ERROR quotes them.
    ``now`` gives a monotonic time in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._pending: OrderedDict[bytes, _Pending] = OrderedDict()

    def remember(self, sent: bytes, original: bytes, changes: tuple[Change, ...]) -> None:
        """Keep ``changes`` for the FLOW_MOD ``original``, of which ``sent`` went on."""
        now, quoted = self._now(), sent[: of.ERROR_DATA_SIZE]
        self._pending[quoted] = _Pending(changes, original[: of.ERROR_DATA_SIZE], now)
        self._pending.move_to_end(quoted)
        while len(self._pending) > PENDING_MAX or self._oldest() < now - PENDING_S:
            self._pending.popitem(last=False)

    def _oldest(self) -> float:
        return next(iter(self._pending.values())).sent_at

    def take(self, quoted: bytes) -> tuple[tuple[Change, ...], bytes] | None:
        """The changes of the FLOW_MOD that an error quotes, and the first bytes of the original."""
        pending = self._pending.pop(quoted[: of.ERROR_DATA_SIZE], None)
        return (pending.changes, pending.original) if pending else None
