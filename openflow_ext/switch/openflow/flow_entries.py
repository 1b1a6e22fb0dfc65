"""Flow entries in one session. The controller sees them whole; each has two parts inside the switch.

The extension table holds the extension's part, Open vSwitch the plain part. A FLOW_MOD acts on both parts or
on neither, and flow statistics show an entry as the controller wrote it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from openflow_ext.switch.dataplane.interface import DataPlaneError
from openflow_ext.switch.errors import Refused
from openflow_ext.switch.openflow import flow_stats
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.bundles import Bundle, Bundles
from openflow_ext.switch.openflow.extension_table import (
    SETTLED_S,
    Change,
    Entry,
    ExtensionTable,
    Key,
    PendingChanges,
)
from openflow_ext.switch.openflow.flow_mods import FlowMod, may_extend
from openflow_ext.switch.openflow.flow_stats import Flow
from openflow_ext.switch.openflow.modify_targets import ModifyTargets
from openflow_ext.switch.openflow.own_requests import OwnRequests, Verdict

log = logging.getLogger(__name__)


class FlowEntries:
    """The flow entries as one session changes and reads them.

    ``holding``: the controller's next messages have to wait for an answer of Open vSwitch.
    """

    def __init__(self, table: ExtensionTable, own: OwnRequests, name: str) -> None:
        self._table = table
        self._own = own
        self._name = name
        self._pending = PendingChanges(time.monotonic)
        self._bundles = Bundles()
        self._suspects: dict[Key, Entry] = {}
        self._check_suspects_at = 0.0
        self.holding = False

    # -- messages of the controller ----------------------------------------------------------------

    def flow_mod(self, message: bytes) -> Verdict:
        """Carry out the extension's part of a FLOW_MOD; Open vSwitch gets the plain part."""
        if not may_extend(message) and not len(self._table):
            return Verdict(forward=message)
        try:
            flow_mod = FlowMod.parse(message)
            flow_mod.refuse_window_match()
            if flow_mod.actions and flow_mod.modifies:
                return self._find_targets(message[0], [flow_mod], partial(self._modify, flow_mod))
            return self._carried_out(flow_mod, self._table.apply(flow_mod))
        except ValueError as error:
            log.warning("%s: malformed FLOW_MOD passed to Open vSwitch unchanged: %s", self._name, error)
            return Verdict(forward=message)
        except Refused as refusal:
            return self._refuse(message, refusal)

    def _carried_out(self, flow_mod: FlowMod, changes: tuple[Change, ...]) -> Verdict:
        if changes or flow_mod.actions:
            self._pending.remember(flow_mod.plain, flow_mod.message, changes)
        return Verdict(forward=flow_mod.plain)

    def _refuse(self, message: bytes, refusal: Refused) -> Verdict:
        log.warning("%s: FLOW_MOD refused: %s", self._name, refusal)
        return Verdict(answer=of.error(message, refusal.error_type, refusal.code))

    def _find_targets(
        self, version: int, modifies: list[FlowMod], act: Callable[[ModifyTargets], Verdict]
    ) -> Verdict:
        """Ask Open vSwitch which entries ``modifies`` change. Call ``act`` after its last answer."""
        targets = ModifyTargets()
        requests = [partial(flow_stats.request, version, selected_by=modify) for modify in modifies]
        replies = [partial(self._found_targets, None, targets)] * (len(modifies) - 1)
        replies.append(partial(self._found_targets, act, targets))
        self.holding = True
        return Verdict(forward=b"".join(map(self._own.ask, requests, replies)), hold=True)

    def _found_targets(
        self, act: Callable[[ModifyTargets], Verdict] | None, targets: ModifyTargets, reply: bytes, last: bool
    ) -> Verdict:
        try:
            targets.learn(flow_stats.flows(reply))
        except (Refused, ValueError) as error:
            targets.failure = str(error)
        return self._answered(partial(act, targets), reply, last) if act else Verdict()

    def _modify(self, flow_mod: FlowMod, targets: ModifyTargets) -> Verdict:
        try:
            return self._carried_out(flow_mod, self._table.modify(flow_mod, targets.changed_by(flow_mod)))
        except Refused as refusal:
            return self._refuse(flow_mod.message, refusal)

    def bundled(self, message: bytes) -> Verdict:
        """A bundle message. The FLOW_MODs of a bundle act when it is committed."""
        verdict = self._bundles.follow(message, self._committed)
        if verdict.answer:
            log.warning("%s: a message for a bundle is refused", self._name)
        elif verdict.forward != message:
            self._pending.remember(verdict.forward, message, ())
        return verdict

    def _committed(self, commit: bytes, bundle: Bundle) -> Verdict:
        """A commit. Before it acts, Open vSwitch has to answer a request of the agent's own.

        By then it has also refused every message that it did not take into the bundle.
        """
        modifies = [flow_mod for flow_mod in bundle.flow_mods if flow_mod.actions and flow_mod.modifies]
        if modifies:
            return self._find_targets(commit[0], modifies, partial(self._act, commit, bundle))
        if self._concerns(bundle):
            return self._await(commit[0], partial(self._act, commit, bundle, None))
        return self._act(commit, bundle, None)

    def _concerns(self, bundle: Bundle) -> bool:
        """Whether a bundle may change the extension's part of entries."""
        return len(self._table) > 0 or any(flow_mod.actions for flow_mod in bundle.flow_mods)

    def _await(self, version: int, act: Callable[[], Verdict]) -> Verdict:
        """Call ``act`` after Open vSwitch has answered every message that it was sent before."""
        self.holding = True
        request = self._own.ask(partial(of.desc_request, version), partial(self._answered, act))
        return Verdict(forward=request, hold=True)

    def _answered(self, act: Callable[[], Verdict], _: bytes, last: bool) -> Verdict:
        if not last:
            return Verdict()
        self.holding = False
        verdict = act()
        return Verdict(forward=verdict.answer, answer=verdict.forward)

    def _act(self, commit: bytes, bundle: Bundle, targets: ModifyTargets | None) -> Verdict:
        """Carry out every FLOW_MOD of a bundle, or none of them."""
        if bundle.unclear and self._concerns(bundle):
            log.warning(
                "%s: a bundle is discarded: it is not known which of its messages were refused", self._name
            )
            return self._bundles.discard(commit)
        changes: list[Change] = []
        for flow_mod in bundle.flow_mods:
            try:
                changes += self._changes(flow_mod, targets)
            except (Refused, ValueError) as error:
                self._table.undo(changes)
                failed = self._bundles.discard(commit)
                unknown = Refused(of.OFPET_FLOW_MOD_FAILED, of.OFPFMFC_UNKNOWN, str(error))
                refused = self._refuse(flow_mod.message, error if isinstance(error, Refused) else unknown)
                return Verdict(forward=failed.forward, answer=refused.answer + failed.answer)
            if flow_mod.actions:
                self._pending.remember(flow_mod.plain, flow_mod.message, ())
        if changes:
            self._pending.remember(commit, commit, tuple(changes))
        return Verdict(forward=commit + (self.check(commit[0]) if bundle.removes_entries else b""))

    def _changes(self, flow_mod: FlowMod, targets: ModifyTargets | None) -> tuple[Change, ...]:
        if targets is None:
            return self._table.apply(flow_mod)
        needs_targets = bool(flow_mod.actions) and flow_mod.modifies
        flows = targets.changed_by(flow_mod) if needs_targets else []
        targets.act(flow_mod)
        return self._table.modify(flow_mod, flows) if needs_targets else self._table.apply(flow_mod)

    def answers_discard(self, message: bytes) -> bool:
        """Whether Open vSwitch answers the agent's own discard of a bundle whose commit failed."""
        return self._bundles.answers_discard(message)

    # -- messages of Open vSwitch ------------------------------------------------------------------

    def refused(self, message: bytes) -> Verdict:
        """Open vSwitch refused a FLOW_MOD: undo the extension's part.

        The error then quotes the bytes that the controller sent.
        """
        self._bundles.refused(message)
        quoted_at = of.quoted_at(message)
        pending = self._pending.take(message[quoted_at:])
        if pending is None:
            return Verdict(forward=message)
        changes, original = pending
        self._table.undo(changes)
        return Verdict(forward=of.resized(message[:quoted_at] + original))

    def removed(self, message: bytes) -> None:
        """FLOW_REMOVED: remove the extension's part too, unless a FLOW_MOD has removed it already."""
        if not len(self._table):
            return
        try:
            flow, reason = flow_stats.removed(message)
            if reason == of.OFPRR_DELETE:
                self._suspect(flow)
            else:
                self._table.removed(flow)
        except (ValueError, DataPlaneError) as error:
            log.warning("%s: a FLOW_REMOVED is ignored: %s", self._name, error)

    def _suspect(self, flow: Flow) -> None:
        """A FLOW_MOD has deleted an entry. If the table has it, compare it with Open vSwitch's entries soon.

        It may have been added again since then, so early that both entries have the same age within the
        clocks' error. Or the FLOW_MOD did not come through the agent.
        """
        if entry := self._table.find(flow):
            self._suspects[entry.key] = entry
            self._check_suspects_at = time.monotonic() + SETTLED_S

    def whole(self, message: bytes) -> bytes:
        """A multipart reply; in flow statistics the extension's actions are added to the entries."""
        if not len(self._table) or not flow_stats.is_reply(message):
            return message
        try:
            return self._whole_statistics(message)
        except ValueError as error:
            log.warning("%s: flow statistics passed on unchanged: %s", self._name, error)
            return message

    def _whole_statistics(self, message: bytes) -> bytes:
        flows = list(flow_stats.flows(message))
        whole = [self._table.whole_instructions(flow) for flow in flows]
        if all(now == flow.instructions for now, flow in zip(whole, flows, strict=True)):
            return message
        entries = (flow.with_instructions(now) for now, flow in zip(whole, flows, strict=True))
        return flow_stats.replies(message, entries)

    # -- the entries that Open vSwitch still has ---------------------------------------------------

    def check(self, version: int) -> bytes:
        """A request for all entries, to find lost ones. Empty if the table is empty."""
        return self._compare(version, {entry.key: entry for entry in self._table})

    def due(self, version: int) -> bytes:
        """The second check of entries that were too young at the first one, when its time has come."""
        if not self._suspects or time.monotonic() < self._check_suspects_at:
            return b""
        return self._compare(version, self._suspects)

    def _compare(self, version: int, suspects: dict[Key, Entry]) -> bytes:
        self._suspects = {}
        if not suspects:
            return b""
        reply = partial(self._compared, time.monotonic() - SETTLED_S, suspects)
        return self._own.ask(lambda xid: flow_stats.request(version, xid), reply)

    def _compared(self, settled: float, suspects: dict[Key, Entry], reply: bytes, last: bool) -> Verdict:
        """Remove the ``suspects`` that Open vSwitch does not report, if they are older than ``settled``."""
        try:
            for flow in flow_stats.flows(reply):
                if entry := self._table.learn(flow):
                    suspects.pop(entry.key, None)
            if last:
                young = {key: one for key, one in suspects.items() if one.since > settled}
                self._suspects |= young
                self._check_suspects_at = time.monotonic() + SETTLED_S
                gone = self._table.forget(one for key, one in suspects.items() if key not in young)
                if gone:
                    log.info("%s: removed %d entries that Open vSwitch has lost", self._name, gone)
        except (ValueError, DataPlaneError) as error:
            log.warning("%s: the entries cannot be compared with Open vSwitch's: %s", self._name, error)
            suspects.clear()
        return Verdict()
