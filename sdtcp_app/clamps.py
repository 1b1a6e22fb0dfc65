"""Every flow that is slowed down: once, at one switch, for as long as a port wants it. Pure.

Several congested ports may lie on a flow's path. Each that wants the flow slowed leaves its want here, the
smallest window is the one in force, and the clamp ends with the last want.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from flowdb.flow import FiveTuple, Flow, PortKey
from sdtcp_app.decisions import Lift, LiftReason, Punish, Resume, Wanter


class Holder(Protocol):
    """Where a flow that is clamped is no candidate."""

    def hold(self, flow_id: int) -> None: ...
    def release(self, flow_id: int) -> None: ...


@dataclass(slots=True)
class Clamp:
    """A flow's clamp. ``since_ns``: when its entry was pushed last; ``wants``: by who wants it."""

    flow: Flow
    switch: int
    in_force: Punish
    since_ns: int
    wants: dict[Wanter, Punish] = field(default_factory=dict)


class Clamps:
    """All clamps: by flow in the order of their entries, by the ports that the flow leaves by, by entry.

    ``newest``: how many clamps there have been.
    """

    def __init__(self, flows: Holder) -> None:
        self._flows = flows
        self._clamps: dict[int, Clamp] = {}
        self._crossing: dict[PortKey, dict[int, Clamp]] = {}
        self._entries: dict[tuple[int, FiveTuple], Clamp] = {}
        self.newest = 0

    def __len__(self) -> int:
        return len(self._clamps)

    def get(self, flow_id: int) -> Clamp | None:
        return self._clamps.get(flow_id)

    def of_entry(self, switch: int, key: FiveTuple) -> Clamp | None:
        """The clamp whose entry a switch has on the ACKs of ``key``."""
        return self._entries.get((switch, key))

    def at(self, switch: int) -> list[Clamp]:
        """The clamps whose entries a switch has."""
        return [clamp for clamp in self._clamps.values() if clamp.switch == switch]

    def crossing(self, port: PortKey) -> Iterable[Clamp]:
        """The clamps of the flows that leave by a port, whoever wants them."""
        return self._crossing.get(port, {}).values()

    def expired(self, limit_ns: int, now_ns: int) -> Iterator[Clamp]:
        """The clamps whose entry is at least ``limit_ns`` old; each must end before the next is asked for."""
        while self._clamps:
            first = next(iter(self._clamps.values()))
            if now_ns - first.since_ns < limit_ns:
                return
            yield first

    def want(self, punish: Punish, now_ns: int) -> list[Punish | Resume]:
        """A port wants a flow slowed, in place of what it wanted before: the want, and what comes of it."""
        clamp = self._clamps.get(punish.flow.id)
        if clamp is None:
            clamp = self._new(punish, now_ns)
        elif clamp.switch != punish.switch:  # one came, or the flow was rerouted: the entry stays where it is
            punish = replace(punish, switch=clamp.switch)
        clamp.wants[punish.wanted_by] = punish
        in_force = _smallest(clamp)
        if in_force is punish:
            self._put_into_force(clamp, punish, now_ns)
            return [punish]
        noted = replace(punish, in_force=False)
        if in_force is clamp.in_force:
            return [noted]
        self._put_into_force(clamp, in_force, now_ns)
        return [noted, Resume(in_force)]

    def drop(self, clamp: Clamp, port: PortKey, reason: LiftReason, now_ns: int) -> list[Resume | Lift]:
        """A port no longer wants a flow slowed."""
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
        """Nobody wants it any more."""
        port = clamp.in_force.port
        clamp.wants.clear()
        return self._lift(clamp, port, reason)

    def _new(self, punish: Punish, now_ns: int) -> Clamp:
        flow = punish.flow
        clamp = Clamp(flow, punish.switch, punish, now_ns)
        self.newest += 1
        self._flows.hold(flow.id)
        self._entries[clamp.switch, flow.key] = clamp
        for hop in flow.path:
            self._crossing.setdefault(hop.port, {})[flow.id] = clamp
        return clamp

    def _put_into_force(self, clamp: Clamp, punish: Punish, now_ns: int) -> None:
        clamp.in_force, clamp.since_ns = punish, now_ns
        self._clamps.pop(clamp.flow.id, None)
        self._clamps[clamp.flow.id] = clamp

    def _lift(self, clamp: Clamp, port: PortKey, reason: LiftReason) -> Lift:
        flow, entry = clamp.flow, (clamp.switch, clamp.flow.key)
        del self._clamps[flow.id]
        if self._entries.get(entry) is clamp:  # a new flow may have its 5-tuple
            del self._entries[entry]
        for port_key in {hop.port for hop in flow.path}:
            there = self._crossing[port_key]
            del there[flow.id]
            if not there:
                del self._crossing[port_key]
        self._flows.release(flow.id)
        return Lift(flow, port, clamp.switch, reason)


def _smallest(clamp: Clamp) -> Punish:
    return min(clamp.wants.values(), key=lambda want: want.settles_at)
