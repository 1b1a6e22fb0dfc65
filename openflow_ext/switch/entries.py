"""Flow entries in one session: kept whole between the controller, the extension table and Open vSwitch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from openflow_ext.switch import flowstats, split
from openflow_ext.switch import openflow as of
from openflow_ext.switch.bundles import Added, Bundle, Bundles
from openflow_ext.switch.dataplane import DataPlaneError
from openflow_ext.switch.errors import Refused
from openflow_ext.switch.exchange import OwnRequests, Verdict
from openflow_ext.switch.foresight import Foresight
from openflow_ext.switch.split import Split
from openflow_ext.switch.table import SETTLED_S, Change, Entry, ExtensionTable, Key, PendingChanges

log = logging.getLogger(__name__)


class FlowEntries:
    """What a session does to flow entries. ``holding``: the controller's next messages have to wait."""

    def __init__(self, table: ExtensionTable, own: OwnRequests, name: str) -> None:
        self._table = table
        self._own = own
        self._name = name
        self._pending = PendingChanges(time.monotonic)
        self._bundles = Bundles()
        self._suspects: dict[Key, Entry] = {}
        self._look_at = 0.0
        self.holding = False

    # -- from the controller ---------------------------------------------------------------------

    def flow_mod(self, message: bytes) -> Verdict:
        """Split a FLOW_MOD, and carry out the extension's part."""
        if not split.may_extend(message) and not len(self._table):
            return Verdict(forward=message)
        try:
            flow_mod = of.FlowMod.parse(message)
            parts = split.split(message)
            split.refuse_windows(flow_mod.match)
            if parts.actions and flow_mod.command in of.MODIFIES:
                return self._look_up(message[0], [flow_mod], partial(self._modify, message, flow_mod, parts))
            return self._carried_out(message, parts, self._table.apply(flow_mod, parts.actions))
        except ValueError as error:
            log.warning("%s: malformed FLOW_MOD left to Open vSwitch: %s", self._name, error)
            return Verdict(forward=message)
        except Refused as refusal:
            return self._refuse(message, refusal)

    def _carried_out(self, message: bytes, parts: Split, changes: tuple[Change, ...]) -> Verdict:
        if changes or parts.actions:
            self._pending.remember(parts.rest, message, changes)
        return Verdict(forward=parts.rest)

    def _refuse(self, message: bytes, refusal: Refused) -> Verdict:
        log.warning("%s: FLOW_MOD refused: %s", self._name, refusal)
        return Verdict(answer=of.error(message, refusal.error_type, refusal.code))

    def _look_up(self, version: int, mods: list[of.FlowMod], act: Callable[[Foresight], Verdict]) -> Verdict:
        """Open vSwitch knows which entries ``mods`` are about: ``act`` when it has told them all."""
        foresight = Foresight()
        asks = [partial(flowstats.request, version, about=mod) for mod in mods]
        replies = [partial(self._looked_up, None, foresight)] * (len(mods) - 1)
        replies.append(partial(self._looked_up, act, foresight))
        requests = b"".join(map(self._own.ask, asks, replies))
        self.holding = True
        return Verdict(forward=requests, hold=True)

    def _looked_up(
        self, act: Callable[[Foresight], Verdict] | None, foresight: Foresight, reply: bytes, last: bool
    ) -> Verdict:
        try:
            if not reply:
                raise ValueError("Open vSwitch tells no entries")
            foresight.learn(flowstats.flows(reply))
        except (Refused, ValueError) as error:
            foresight.failure = str(error)
        return self._answered(partial(act, foresight), reply, last) if act else Verdict()

    def _modify(self, message: bytes, flow_mod: of.FlowMod, parts: Split, foresight: Foresight) -> Verdict:
        try:
            changes = self._table.modify(flow_mod, parts.actions, foresight.about(flow_mod))
            return self._carried_out(message, parts, changes)
        except Refused as refusal:
            return self._refuse(message, refusal)

    def bundled(self, message: bytes) -> Verdict:
        """A message about a bundle: what it holds acts here when it is committed."""
        verdict = self._bundles.take(message, self._committed)
        if verdict.answer:
            log.warning("%s: a message for a bundle is refused", self._name)
        elif verdict.forward != message:
            self._pending.remember(verdict.forward, message, ())
        return verdict

    def _committed(self, commit: bytes, bundle: Bundle) -> Verdict:
        """What Open vSwitch did not take into the bundle it has refused by the time it answers here."""
        modifies = [added.flow_mod for added in bundle.added if added.modifies]
        if modifies:
            return self._look_up(commit[0], modifies, partial(self._act, commit, bundle))
        if len(self._table) or any(added.parts.actions for added in bundle.added):
            return self._await(commit[0], partial(self._act, commit, bundle, None))
        return self._act(commit, bundle, None)

    def _await(self, version: int, act: Callable[[], Verdict]) -> Verdict:
        """``act`` when Open vSwitch has answered all that it was sent before."""
        self.holding = True
        request = self._own.ask(partial(of.desc_request, version), partial(self._answered, act))
        return Verdict(forward=request, hold=True)

    def _answered(self, act: Callable[[], Verdict], _: bytes, last: bool) -> Verdict:
        if not last:
            return Verdict()
        self.holding = False
        verdict = act()
        return Verdict(forward=verdict.answer, answer=verdict.forward)

    def _act(self, commit: bytes, bundle: Bundle, foresight: Foresight | None) -> Verdict:
        """All that waited in a bundle acts, or nothing does."""
        changes: list[Change] = []
        for added in bundle.added:
            try:
                changes += self._changes(added, foresight)
            except (Refused, ValueError) as error:
                self._table.undo(changes)
                failed = self._bundles.discard(commit)
                unknown = Refused(of.OFPET_FLOW_MOD_FAILED, of.OFPFMFC_UNKNOWN, str(error))
                refused = self._refuse(added.message, error if isinstance(error, Refused) else unknown)
                return Verdict(forward=failed.forward, answer=refused.answer + failed.answer)
            if added.parts.actions:
                self._pending.remember(added.parts.rest, added.message, ())
        if changes:
            self._pending.remember(commit, commit, tuple(changes))
        return Verdict(forward=commit + (self.check(commit[0]) if bundle.takes_along else b""))

    def _changes(self, added: Added, foresight: Foresight | None) -> tuple[Change, ...]:
        if foresight is None:
            return self._table.apply(added.flow_mod, added.parts.actions)
        about = foresight.about(added.flow_mod) if added.modifies else []
        foresight.follow(added.flow_mod)
        if added.modifies:
            return self._table.modify(added.flow_mod, added.parts.actions, about)
        return self._table.apply(added.flow_mod, added.parts.actions)

    def answers_discard(self, message: bytes) -> bool:
        """Whether Open vSwitch answers what was asked for here, after a commit that failed."""
        return self._bundles.answers_discard(message)

    # -- from Open vSwitch -----------------------------------------------------------------------

    def refused(self, message: bytes) -> Verdict:
        """A FLOW_MOD that Open vSwitch refuses is undone here too; the controller sees its own bytes."""
        self._bundles.refused(message)
        quoted_at = of.quoted_at(message)
        pending = self._pending.take(message[quoted_at:])
        if pending is None:
            return Verdict(forward=message)
        changes, original = pending
        self._table.undo(changes)
        return Verdict(forward=of.resized(message[:quoted_at] + original))

    def removed(self, message: bytes) -> None:
        """FLOW_REMOVED: the extension's part goes too."""
        if not len(self._table):
            return
        try:
            self._table.removed(flowstats.removed(message))
        except (ValueError, DataPlaneError) as error:
            log.warning("%s: FLOW_REMOVED: %s", self._name, error)

    def told(self, message: bytes) -> bytes:
        """Flow statistics, with the extension's actions in them."""
        if not len(self._table) or not flowstats.is_reply(message):
            return message
        try:
            return self._whole(message)
        except ValueError as error:
            log.warning("%s: flow statistics: %s", self._name, error)
            return message

    def _whole(self, message: bytes) -> bytes:
        flows = list(flowstats.flows(message))
        whole = [self._table.whole(flow) for flow in flows]
        if all(now == flow.instructions for now, flow in zip(whole, flows, strict=True)):
            return message
        shown = (flow.showing(now) for now, flow in zip(whole, flows, strict=True))
        return flowstats.replies(message, shown)

    # -- which entries Open vSwitch still has ----------------------------------------------------

    def check(self, version: int) -> bytes:
        """A request by which entries are found that Open vSwitch has lost, if there can be any."""
        return self._compare(version, {entry.key: entry for entry in self._table})

    def due(self, version: int) -> bytes:
        """The second look at entries that were too young at the first, once its time has come."""
        if not self._suspects or time.monotonic() < self._look_at:
            return b""
        return self._compare(version, self._suspects)

    def _compare(self, version: int, suspects: dict[Key, Entry]) -> bytes:
        self._suspects = {}
        if not suspects:
            return b""
        reply = partial(self._compared, time.monotonic() - SETTLED_S, suspects)
        return self._own.ask(lambda xid: flowstats.request(version, xid), reply)

    def _compared(self, settled: float, suspects: dict[Key, Entry], reply: bytes, last: bool) -> Verdict:
        """Entries that Open vSwitch does not tell are gone, if it had to know them by then."""
        try:
            for flow in flowstats.flows(reply):
                if entry := self._table.learn(flow):
                    suspects.pop(entry.key, None)
            if reply and last:
                self._suspects = {key: one for key, one in suspects.items() if one.since > settled}
                self._look_at = time.monotonic() + SETTLED_S
                gone = self._table.forget(one for key, one in suspects.items() if key not in self._suspects)
                if gone:
                    log.info("%s: Open vSwitch had lost %d entries: gone here too", self._name, gone)
        except (ValueError, DataPlaneError) as error:
            log.warning("%s: entries cannot be compared: %s", self._name, error)
            suspects.clear()
        return Verdict()
