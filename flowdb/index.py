"""The flows that leave each switch port, in order, in memory: the hot path never reads SQL."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

from sortedcontainers import SortedList

from flowdb.flow import Flow, FlowState, Hop, PortKey
from flowdb.native_threads import native_threading

AgeKey: TypeAlias = tuple[int, int]
Rank: TypeAlias = Callable[[Flow], tuple[Any, ...] | None]
"""A flow's rank among the candidates, least first, from the flow's own values; None: not a candidate."""
RankKey: TypeAlias = tuple[tuple[Any, ...], int]
"""A flow's rank and its id, which makes the order unique."""


def by_age(flow: Flow) -> tuple[int, int]:
    """The longest-lived first (SDTCP section III.C)."""
    return flow.age_key


def by_age_active_first(flow: Flow) -> tuple[bool, int, int]:
    """Active flows first, then idle flows; within each group the longest-lived first."""
    return (flow.state is not FlowState.ACTIVE, *flow.age_key)


@dataclass(slots=True, eq=False)
class _Port:
    """The flows that leave by one port: the free flows by age and by rank, and the number of held flows.

    ``active``: the ages of the free flows that are active. ``rank``: the port's own ranking; None: the
    index's ranking applies.
    """

    key: PortKey
    rank: Rank | None = None
    ages: SortedList[AgeKey] = field(default_factory=SortedList)
    active: SortedList[AgeKey] = field(default_factory=SortedList)
    ranks: SortedList[RankKey] = field(default_factory=SortedList)
    held: int = 0


@dataclass(slots=True, eq=False)
class _Entry:
    flow: Flow
    age: AgeKey
    rank_keys: tuple[RankKey | None, ...]
    ports: tuple[_Port, ...]
    held: bool = False


class FlowIndex:
    """The live flows of every port, ordered by age and by rank; safe to share between threads.

    A flow is in the index at each port by which it leaves a switch. It is either free or held at all of them.
    A controller holds a flow while it acts on it, for example while a clamp stands, because a clamp slows the
    flow on its whole path. A call on one flow or port takes O(log n) in the number of the port's flows,
    independent of all other ports.
    """

    def __init__(self, rank: Rank = by_age) -> None:
        self._lock = native_threading().Lock()
        self._rank = rank
        self._ranks: dict[PortKey, Rank] = {}
        self._entries: dict[int, _Entry] = {}
        self._ports: dict[PortKey, _Port] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def rank_by(self, rank: Rank) -> None:
        """Set the ranking of all ports that have none of their own; O(n log n) in all flows."""
        with self._lock:
            self._rank = rank
            self._rank_again(self._entries.values())

    def rank_port_by(self, port: PortKey, rank: Rank | None) -> None:
        """Set a port's own ranking; None removes it. O(n) in all flows."""
        with self._lock:
            if rank is None:
                self._ranks.pop(port, None)
            else:
                self._ranks[port] = rank
            if there := self._ports.get(port):
                there.rank = rank
                self._rank_again(entry for entry in self._entries.values() if there in entry.ports)

    def rank_flow(self, flow_id: int) -> None:
        """Rank a flow again after a change that its rank depends on. An unknown flow is ignored."""
        with self._lock:
            if entry := self._entries.get(flow_id):
                self._rank_again([entry])

    def add(self, flow: Flow) -> None:
        """Add a flow as free. It replaces a flow with the same id."""
        with self._lock:
            self._drop(flow.id)
            self._add(flow, held=False)

    def change(self, flow: Flow) -> bool:
        """Replace a flow's values and path; it stays free or held.

        Returns whether the index has the flow; if not, nothing happens.
        """
        with self._lock:
            entry = self._entries.get(flow.id)
            if entry is None:
                return False
            same_path = flow.path == entry.flow.path
            if (
                same_path
                and flow.age_key == entry.age
                and flow.state is entry.flow.state
                and self._rank_keys(flow, entry.ports) == entry.rank_keys
            ):
                entry.flow = flow
            else:
                self._drop(flow.id)
                self._add(flow, entry.held)
            return True

    def remove(self, flow_id: int) -> Flow | None:
        """Remove a flow; returns it, or None if the index does not have it."""
        with self._lock:
            return self._drop(flow_id)

    def get(self, flow_id: int) -> Flow | None:
        """A flow with its newest values; None if the index does not have it."""
        entry = self._entries.get(flow_id)
        return entry.flow if entry else None

    def flows(self) -> list[Flow]:
        """All flows, in no particular order."""
        with self._lock:
            return [entry.flow for entry in self._entries.values()]

    def count(self, port: PortKey) -> int:
        """The number of flows that leave by a port, free and held."""
        with self._lock:
            there = self._ports.get(port)
            return len(there.ages) + there.held if there else 0

    def count_candidates(self, port: PortKey) -> int:
        """The number of a port's candidates: free flows whose rank is not None."""
        with self._lock:
            there = self._ports.get(port)
            return len(self._order(there)) if there else 0

    def candidates(self, port: PortKey, limit: int) -> list[Flow]:
        """The first ``limit`` candidates of a port, in the order of its ranking."""
        with self._lock:
            there = self._ports.get(port)
            if there is None:
                return []
            return [self._entries[flow_id].flow for _, flow_id in islice(self._order(there), limit)]

    def oldest(self, port: PortKey) -> Flow | None:
        """The longest-lived free flow that leaves by a port."""
        return self._at(port, 0)

    def newest(self, port: PortKey) -> Flow | None:
        """The youngest free flow that leaves by a port."""
        return self._at(port, -1)

    def any_active_between(
        self, port: PortKey, after: AgeKey, until: AgeKey, besides: Container[int] = ()
    ) -> bool:
        """Whether a free and active flow of a port is younger than ``after`` and no younger than ``until``.

        ``besides``: the ids of flows that do not count.
        """
        with self._lock:
            there = self._ports.get(port)
            if there is None:
                return False
            between = there.active.irange(after, until, (False, True))
            return any(flow_id not in besides for _, flow_id in between)

    def hold(self, flow_id: int) -> None:
        """Make a free flow held. A flow that is unknown or already held is ignored."""
        self._set_held(flow_id, held=True)

    def release(self, flow_id: int) -> None:
        """Make a held flow free again. An unknown flow is ignored."""
        self._set_held(flow_id, held=False)

    def _at(self, port: PortKey, position: int) -> Flow | None:
        with self._lock:
            there = self._ports.get(port)
            return self._entries[there.ages[position][1]].flow if there and there.ages else None

    def _set_held(self, flow_id: int, held: bool) -> None:
        with self._lock:
            entry = self._entries.get(flow_id)
            if entry is not None and entry.held != held:
                self._leave(entry)
                entry.held = held
                self._enter(entry)

    def _order(self, port: _Port) -> SortedList[Any]:
        """The candidates of a port in order. The order by age alone needs no list of its own."""
        return port.ages if (port.rank or self._rank) is by_age else port.ranks

    def _rank_again(self, entries: Iterable[_Entry]) -> None:
        for entry in entries:
            self._leave(entry)
            entry.rank_keys = self._rank_keys(entry.flow, entry.ports)
            self._enter(entry)

    def _rank_keys(self, flow: Flow, ports: Iterable[_Port]) -> tuple[RankKey | None, ...]:
        """The flow's rank key at each of ``ports``."""
        common = _rank_key(self._rank, flow)
        return tuple(common if port.rank is None else _rank_key(port.rank, flow) for port in ports)

    def _add(self, flow: Flow, held: bool) -> None:
        ports = tuple(self._port(hop) for hop in flow.path)
        entry = _Entry(flow, flow.age_key, self._rank_keys(flow, ports), ports, held)
        self._entries[flow.id] = entry
        self._enter(entry)

    def _port(self, hop: Hop) -> _Port:
        key = hop.port
        return self._ports.get(key) or self._ports.setdefault(key, _Port(key, self._ranks.get(key)))

    def _drop(self, flow_id: int) -> Flow | None:
        entry = self._entries.pop(flow_id, None)
        if entry is None:
            return None
        self._leave(entry)
        for port in entry.ports:
            if not port.ages and not port.held:
                self._ports.pop(port.key, None)
        return entry.flow

    def _enter(self, entry: _Entry) -> None:
        for port, rank_key in zip(entry.ports, entry.rank_keys, strict=True):
            if entry.held:
                port.held += 1
                continue
            port.ages.add(entry.age)
            if entry.flow.state is FlowState.ACTIVE:
                port.active.add(entry.age)
            if rank_key is not None:
                port.ranks.add(rank_key)

    def _leave(self, entry: _Entry) -> None:
        for port, rank_key in zip(entry.ports, entry.rank_keys, strict=True):
            if entry.held:
                port.held -= 1
                continue
            port.ages.remove(entry.age)
            if entry.flow.state is FlowState.ACTIVE:
                port.active.remove(entry.age)
            if rank_key is not None:
                port.ranks.remove(rank_key)


def _rank_key(rank: Rank, flow: Flow) -> RankKey | None:
    key = None if rank is by_age else rank(flow)
    return None if key is None else (key, flow.id)
