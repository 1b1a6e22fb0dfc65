"""Which entries of Open vSwitch a MODIFY is about; in a bundle, once its earlier messages will have acted.

Pure. A MODIFY with actions of the extension has to know that before it acts. Not foreseen: which entries a
GROUP_MOD takes along; the session looks for them after the commit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from openflow_ext.switch import openflow as of
from openflow_ext.switch import split
from openflow_ext.switch.errors import Refused
from openflow_ext.switch.flowstats import Flow

_Key = tuple[int, int, frozenset[tuple[str | of.OxmKey, tuple[int, int]]]]


class Foresight:
    """Entries of Open vSwitch that commands may be about. ``failure``: why they are not known."""

    def __init__(self) -> None:
        self._flows: dict[_Key, Flow] = {}
        self.failure = ""

    def learn(self, flows: Iterable[Flow]) -> None:
        """Open vSwitch has these entries now. Raises Refused for a match that cannot be read."""
        self._flows.update((_key(flow), flow) for flow in flows)

    def about(self, flow_mod: of.FlowMod) -> list[Flow]:
        """The entries that a MODIFY is about. Raises Refused."""
        if self.failure:
            raise Refused(of.OFPET_FLOW_MOD_FAILED, of.OFPFMFC_UNKNOWN, self.failure)
        return [self._flows[key] for key in self._selected(flow_mod)]

    def follow(self, flow_mod: of.FlowMod) -> None:
        """A command acts. Raises Refused, and ValueError where the lengths of instructions lie."""
        if flow_mod.command == of.OFPFC_ADD:
            self.learn([_added(flow_mod)])
            return
        for key in self._selected(flow_mod):
            if flow_mod.command in of.MODIFIES:
                modified = dataclasses.replace(self._flows[key], instructions=flow_mod.instructions)
                self._flows[key] = modified
            elif split.sends_to(self._flows[key].instructions, flow_mod.out_port, flow_mod.out_group):
                del self._flows[key]

    def _selected(self, flow_mod: of.FlowMod) -> list[_Key]:
        tables, fields = flow_mod.tables, of.read_match(flow_mod.match)
        if flow_mod.strict:
            exact = frozenset(fields.items())
            found = [key for table in tables if (key := (table, flow_mod.priority, exact)) in self._flows]
        else:
            found = [key for key in self._flows if key[0] in tables and split.covers(fields, dict(key[2]))]
        return [key for key in found if flow_mod.is_about_cookie(self._flows[key].cookie)]


def _key(flow: Flow) -> _Key:
    return flow.table_id, flow.priority, frozenset(of.read_match(flow.match).items())


def _added(flow_mod: of.FlowMod) -> Flow:
    return Flow(
        table_id=flow_mod.table_id,
        priority=flow_mod.priority,
        match=flow_mod.match,
        cookie=flow_mod.cookie,
        idle_timeout_s=flow_mod.idle_timeout_s,
        hard_timeout_s=flow_mod.hard_timeout_s,
        instructions=flow_mod.instructions,
    )
