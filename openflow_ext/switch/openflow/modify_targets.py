"""The entries of Open vSwitch that a MODIFY changes, also after the earlier messages of its bundle. No I/O.

The agent has to know these entries before a MODIFY with actions of the extension acts, because each of them
gets a rule. Not implemented: the entries that a GROUP_MOD in the bundle removes. The session compares its
entries with Open vSwitch's after such a commit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from openflow_ext.switch.errors import Refused
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.flow_mods import FlowMod, sends_to
from openflow_ext.switch.openflow.flow_stats import Flow
from openflow_ext.switch.openflow.matches import OxmKey, covers, read_match

_Key = tuple[int, int, frozenset[tuple[str | OxmKey, tuple[int, int]]]]
"""Table, priority and the fields of the match: the identity of an entry in OpenFlow."""


class ModifyTargets:
    """Entries of Open vSwitch that MODIFYs may change.

    ``failure`` is empty, or states why Open vSwitch did not report its entries.
    """

    def __init__(self) -> None:
        self._flows: dict[_Key, Flow] = {}
        self.failure = ""

    def learn(self, flows: Iterable[Flow]) -> None:
        """Add entries that Open vSwitch has now. Raises Refused if a match cannot be read."""
        self._flows.update((_key(flow), flow) for flow in flows)

    def changed_by(self, flow_mod: FlowMod) -> list[Flow]:
        """The entries that a MODIFY changes. Raises Refused."""
        if self.failure:
            raise Refused(of.OFPET_FLOW_MOD_FAILED, of.OFPFMFC_UNKNOWN, self.failure)
        return [self._flows[key] for key in self._selected(flow_mod)]

    def act(self, flow_mod: FlowMod) -> None:
        """Apply a command to the known entries, as Open vSwitch will.

        Raises Refused, and ValueError if the length fields of an entry's instructions are wrong.
        """
        if flow_mod.command == of.OFPFC_ADD:
            self.learn([_added(flow_mod)])
            return
        for key in self._selected(flow_mod):
            if flow_mod.modifies:
                modified = dataclasses.replace(self._flows[key], instructions=flow_mod.instructions)
                self._flows[key] = modified
            elif sends_to(self._flows[key].instructions, flow_mod.out_port, flow_mod.out_group):
                del self._flows[key]

    def _selected(self, flow_mod: FlowMod) -> list[_Key]:
        tables, fields = flow_mod.tables, flow_mod.fields
        if flow_mod.strict:
            exact = frozenset(fields.items())
            found = [key for table in tables if (key := (table, flow_mod.priority, exact)) in self._flows]
        else:
            found = [key for key in self._flows if key[0] in tables and covers(fields, dict(key[2]))]
        return [key for key in found if flow_mod.selects_cookie(self._flows[key].cookie)]


def _key(flow: Flow) -> _Key:
    return flow.table_id, flow.priority, frozenset(read_match(flow.match).items())


def _added(flow_mod: FlowMod) -> Flow:
    return Flow(
        table_id=flow_mod.table_id,
        priority=flow_mod.priority,
        match=flow_mod.match,
        cookie=flow_mod.cookie,
        idle_timeout_s=flow_mod.idle_timeout_s,
        hard_timeout_s=flow_mod.hard_timeout_s,
        instructions=flow_mod.instructions,
    )
