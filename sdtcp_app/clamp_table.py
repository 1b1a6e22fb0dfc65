"""All clamps: a flow has at most one at a switch, as long as a port wants it. Pure.

Several congested ports may lie on a flow's path, and each may want a window for the flow. The core chooses
the switch of each want. Of the windows that ports want at one switch, the smallest is in force. A clamp ends
when no port wants it any longer. A window that is only observed gives way to every other one.

A switch that refuses a clamp's entry would refuse it again at each alarm. So its flow is held for a time, as
if it were clamped, and policies choose other flows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from flowdb.flow import FiveTuple, Flow, PortKey
from sdtcp_app.core_types import Lift, LiftReason, Punish, Resume, Wanter

Place: TypeAlias = tuple[int, int]
"""Where a clamp is: the id of its flow, and its switch."""


class Holder(Protocol):
    """The index of flows: a flow that is held is not a candidate."""

    def hold(self, flow_id: int) -> None: ...
    def release(self, flow_id: int) -> None: ...


@dataclass(slots=True)
class Clamp:
    """A flow's clamp at a switch. ``since_ns``: when its entry was last sent; ``wants``: windows by port."""

    flow: Flow
    switch: int
    in_force: Punish
    since_ns: int
    wants: dict[Wanter, Punish] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        return self.flow.id, self.switch


class Clamps:
    """All clamps: in the order of their entries, by flow, by the ports of the flow's path, and by entry.

    ``newest``: the number of clamps that were ever made. ``refused``: until when a flow is held whose clamp a
    switch refused, by its id.
    """

    def __init__(self, flows: Holder) -> None:
        self._flows = flows
        self._clamps: dict[Place, Clamp] = {}
        self._of_flow: dict[int, dict[int, Clamp]] = {}
        self._crossing: dict[PortKey, dict[Place, Clamp]] = {}
        self._entries: dict[tuple[int, FiveTuple], Clamp] = {}
        self.newest = 0
        self.refused: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._clamps)

    @property
    def flows(self) -> int:
        """The number of flows with a clamp."""
        return len(self._of_flow)

    def get(self, flow_id: int, switch: int) -> Clamp | None:
        """The clamp of a flow at a switch."""
        return self._clamps.get((flow_id, switch))

    def of_flow(self, flow_id: int) -> list[Clamp]:
        """The clamps of a flow, by the order in which they were made."""
        return list(self._of_flow.get(flow_id, {}).values())

    def of_entry(self, switch: int, key: FiveTuple) -> Clamp | None:
        """The clamp whose entry matches the ACKs of ``key`` at a switch."""
        return self._entries.get((switch, key))

    def at(self, switch: int) -> list[Clamp]:
        """The clamps whose entries are at a switch."""
        return [clamp for clamp in self._clamps.values() if clamp.switch == switch]

    def all(self) -> list[Clamp]:
        """Every clamp, by the order of their entries."""
        return list(self._clamps.values())

    def flows_through(self, port: PortKey, *, only_observed: bool = False) -> list[Flow]:
        """The clamped flows that leave through a port, whichever ports want their clamps.

        ``only_observed``: without the flows of which a clamp changes packets.
        """
        clamps = self._crossing.get(port, {}).values()
        found = {clamp.flow.id: clamp.flow for clamp in clamps}
        if only_observed:
            for clamp in clamps:
                if not clamp.in_force.observed:
                    found.pop(clamp.flow.id, None)
        return list(found.values())

    def expired(self, limit_ns: int, now_ns: int) -> Iterator[Clamp]:
        """The clamps whose entry is ``limit_ns`` old. The caller ends each before it takes the next."""
        while self._clamps:
            first = next(iter(self._clamps.values()))
            if now_ns - first.since_ns < limit_ns:
                return
            yield first

    def want(self, punish: Punish, now_ns: int) -> list[Punish | Resume]:
        """A port wants a new window for a flow. Returns the want and, if it changes, the window in force."""
        clamp = self.get(punish.flow.id, punish.switch) or self._new(punish, now_ns)
        clamp.wants[punish.wanted_by] = punish
        in_force = _smallest(clamp)
        if in_force is punish:
            self._put_into_force(clamp, punish, now_ns)
            return [punish]
        not_in_force = replace(punish, in_force=False)
        if in_force is clamp.in_force:
            return [not_in_force]
        self._put_into_force(clamp, in_force, now_ns)
        return [not_in_force, Resume(in_force)]

    def drop(self, clamp: Clamp, port: PortKey, reason: LiftReason, now_ns: int) -> list[Resume | Lift]:
        """A port no longer wants a clamp."""
        if clamp.wants.pop(port, None) is None:
            return []
        if not clamp.wants:
            return [self._lift(clamp, port, reason)]
        in_force = _smallest(clamp)
        if in_force is clamp.in_force:
            return []
        self._put_into_force(clamp, in_force, now_ns)
        return [Resume(in_force)]

    def end(self, clamp: Clamp, reason: LiftReason) -> Lift:
        """End a clamp, whichever ports want it."""
        port = clamp.in_force.port
        clamp.wants.clear()
        return self._lift(clamp, port, reason)

    def refuse(self, clamp: Clamp, until_ns: int) -> Lift:
        """End a clamp that its switch refused. Its flow stays held until ``until_ns``."""
        self.refused[clamp.flow.id] = until_ns
        return self.end(clamp, LiftReason.REFUSED)

    def free_refused(self, now_ns: int) -> None:
        """Free the refused flows whose time is over, unless they have a clamp."""
        for flow_id in [flow_id for flow_id, until_ns in self.refused.items() if until_ns <= now_ns]:
            del self.refused[flow_id]
            if flow_id not in self._of_flow:
                self._flows.release(flow_id)

    def _new(self, punish: Punish, now_ns: int) -> Clamp:
        flow = punish.flow
        clamp = Clamp(flow, punish.switch, punish, now_ns)
        self.newest += 1
        self._flows.hold(flow.id)
        self._of_flow.setdefault(flow.id, {})[clamp.switch] = clamp
        self._entries[clamp.switch, flow.key] = clamp
        for hop in flow.path:
            self._crossing.setdefault(hop.port, {})[clamp.place] = clamp
        return clamp

    def _put_into_force(self, clamp: Clamp, punish: Punish, now_ns: int) -> None:
        clamp.in_force, clamp.since_ns = punish, now_ns
        self._clamps.pop(clamp.place, None)
        self._clamps[clamp.place] = clamp

    def _lift(self, clamp: Clamp, port: PortKey, reason: LiftReason) -> Lift:
        flow, entry = clamp.flow, (clamp.switch, clamp.flow.key)
        del self._clamps[clamp.place]
        if self._entries.get(entry) is clamp:  # a new flow may have the same 5-tuple
            del self._entries[entry]
        for port_key in {hop.port for hop in flow.path}:
            there = self._crossing[port_key]
            del there[clamp.place]
            if not there:
                del self._crossing[port_key]
        del self._of_flow[flow.id][clamp.switch]
        if not self._of_flow[flow.id]:
            del self._of_flow[flow.id]
            if flow.id not in self.refused:
                self._flows.release(flow.id)
        return Lift(flow, port, clamp.switch, reason)


def _smallest(clamp: Clamp) -> Punish:
    return min(clamp.wants.values(), key=lambda want: want.settles_at)
