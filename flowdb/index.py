"""Which flows leave switch S by port P, in order: in memory, without SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

from sortedcontainers import SortedList

from flowdb._native import native_threading
from flowdb.flow import Flow, FlowState, Hop, PortKey

AgeKey: TypeAlias = tuple[int, int]
Rank: TypeAlias = Callable[[Flow], tuple[Any, ...] | None]
"""A flow's place among the candidates, least first, by its own values alone; None: it is no candidate."""
Place: TypeAlias = tuple[tuple[Any, ...], int]


def by_age(flow: Flow) -> tuple[int, int]:
    """The longest-lived first (SDTCP section III.C)."""
    return flow.age_key


def by_age_active_first(flow: Flow) -> tuple[bool, int, int]:
    """The longest-lived of the active ones first, then the longest-lived of the idle ones."""
    return (flow.state is not FlowState.ACTIVE, *flow.age_key)


@dataclass(slots=True, eq=False)
class _Port:
    """The flows that leave by one port: the free ones by age and by rank, and how many are held.

    ``rank``: the port's own, None where the index's holds.
    """

    key: PortKey
    rank: Rank | None = None
    ages: SortedList[AgeKey] = field(default_factory=SortedList)
    ranks: SortedList[Place] = field(default_factory=SortedList)
    held: int = 0


@dataclass(slots=True, eq=False)
class _Entry:
    flow: Flow
    age: AgeKey
    places: tuple[Place | None, ...]
    ports: tuple[_Port, ...]
    held: bool = False


class FlowIndex:
    """The live flows of every port, ordered by age and by rank; safe to share between threads.

    A flow is in the index at each port by which it leaves a switch. It is free or held (a controller has
    it in hand, say under a clamp) at all of them together, for a clamp slows it wherever it goes. Every
    call on one flow or port is O(log n) in the flows of a port, and independent of all other ports.
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
        """Order the candidates anew, but at ports with a rank of their own; O(n log n) in all flows."""
        with self._lock:
            self._rank = rank
            self._rank_anew(self._entries.values())

    def rank_port_by(self, port: PortKey, rank: Rank | None) -> None:
        """Give a port a rank of its own, or (None) take it away; O(n) in all flows."""
        with self._lock:
            if rank is None:
                self._ranks.pop(port, None)
            else:
                self._ranks[port] = rank
            if there := self._ports.get(port):
                there.rank = rank
                self._rank_anew(entry for entry in self._entries.values() if there in entry.ports)

    def rank_flow(self, flow_id: int) -> None:
        """Rank a flow anew, where what its rank depends on has changed. A flow that is gone stays so."""
        with self._lock:
            if entry := self._entries.get(flow_id):
                self._rank_anew([entry])

    def add(self, flow: Flow) -> None:
        """Add a flow, free. One with the same id is replaced."""
        with self._lock:
            self._drop(flow.id)
            self._add(flow, held=False)

    def change(self, flow: Flow) -> bool:
        """Put a flow's new values in place of the old, path included, held or free as it was.

        Returns whether there is such a flow; where not, nothing is done.
        """
        with self._lock:
            entry = self._entries.get(flow.id)
            if entry is None:
                return False
            same_path = flow.path == entry.flow.path
            if same_path and flow.age_key == entry.age and self._places(flow, entry.ports) == entry.places:
                entry.flow = flow
            else:
                self._drop(flow.id)
                self._add(flow, entry.held)
            return True

    def remove(self, flow_id: int) -> Flow | None:
        """Forget a flow, free or held; returns it, or None where there is none."""
        with self._lock:
            return self._drop(flow_id)

    def get(self, flow_id: int) -> Flow | None:
        """A flow with its newest values."""
        entry = self._entries.get(flow_id)
        return entry.flow if entry else None

    def flows(self) -> list[Flow]:
        """All flows, in no order."""
        with self._lock:
            return [entry.flow for entry in self._entries.values()]

    def count(self, port: PortKey) -> int:
        """The flows that leave by a port, free and held."""
        with self._lock:
            there = self._ports.get(port)
            return len(there.ages) + there.held if there else 0

    def count_free(self, port: PortKey) -> int:
        """The free flows that leave by a port."""
        with self._lock:
            there = self._ports.get(port)
            return len(there.ages) if there else 0

    def count_candidates(self, port: PortKey) -> int:
        """The free flows of a port, without those ranked None."""
        with self._lock:
            there = self._ports.get(port)
            return len(self._order(there)) if there else 0

    def candidates(self, port: PortKey, limit: int) -> list[Flow]:
        """The first ``limit`` free flows of a port in the order of ``rank``, without those ranked None."""
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

    def any_free_between(self, port: PortKey, after: AgeKey, until: AgeKey) -> bool:
        """Whether a free flow of a port is younger than ``after`` and no younger than ``until``."""
        with self._lock:
            there = self._ports.get(port)
            return there is not None and any(True for _ in there.ages.irange(after, until, (False, True)))

    def hold(self, flow_id: int) -> None:
        """Take a flow out of the free ones. A flow that is gone or held already stays so."""
        self._set_held(flow_id, held=True)

    def release(self, flow_id: int) -> None:
        """Put a held flow back among the free ones, at its age. A flow that is gone stays so."""
        self._set_held(flow_id, held=False)

    def _at(self, port: PortKey, place: int) -> Flow | None:
        with self._lock:
            there = self._ports.get(port)
            return self._entries[there.ages[place][1]].flow if there and there.ages else None

    def _set_held(self, flow_id: int, held: bool) -> None:
        with self._lock:
            entry = self._entries.get(flow_id)
            if entry is not None and entry.held != held:
                self._leave(entry)
                entry.held = held
                self._enter(entry)

    def _order(self, port: _Port) -> SortedList[Any]:
        """The candidates of a port; those by age alone are in no list of their own."""
        return port.ages if (port.rank or self._rank) is by_age else port.ranks

    def _rank_anew(self, entries: Iterable[_Entry]) -> None:
        for entry in entries:
            self._leave(entry)
            entry.places = self._places(entry.flow, entry.ports)
            self._enter(entry)

    def _places(self, flow: Flow, ports: Iterable[_Port]) -> tuple[Place | None, ...]:
        """The flow's place at each of ``ports``."""
        usual = _place(self._rank, flow)
        return tuple(usual if port.rank is None else _place(port.rank, flow) for port in ports)

    def _add(self, flow: Flow, held: bool) -> None:
        ports = tuple(self._port(hop) for hop in flow.path)
        entry = _Entry(flow, flow.age_key, self._places(flow, ports), ports, held)
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
        for port, place in zip(entry.ports, entry.places, strict=True):
            if entry.held:
                port.held += 1
                continue
            port.ages.add(entry.age)
            if place is not None:
                port.ranks.add(place)

    def _leave(self, entry: _Entry) -> None:
        for port, place in zip(entry.ports, entry.places, strict=True):
            if entry.held:
                port.held -= 1
                continue
            port.ages.remove(entry.age)
            if place is not None:
                port.ranks.remove(place)


def _place(rank: Rank, flow: Flow) -> Place | None:
    key = None if rank is by_age else rank(flow)
    return None if key is None else (key, flow.id)
