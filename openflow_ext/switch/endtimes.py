"""When to look at which of many entries that may have ended: a heap of times."""

from __future__ import annotations

import heapq

SLACK = 1024


class EndTimes:
    """The time at which each key has to be looked at, in ns of one clock. A look costs O(log n)."""

    def __init__(self) -> None:
        self._next: dict[bytes, int] = {}
        self._heap: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        """How many keys have to be looked at some time."""
        return len(self._next)

    def note(self, key: bytes, at_ns: int) -> None:
        """Look at ``key`` at ``at_ns``, or sooner if that was noted before."""
        if self._next.get(key, at_ns + 1) <= at_ns:
            return
        self._next[key] = at_ns
        heapq.heappush(self._heap, (at_ns, key))
        if len(self._heap) > 2 * len(self._next) + SLACK:
            self._heap = [(at, noted) for noted, at in self._next.items()]
            heapq.heapify(self._heap)

    def forget(self, key: bytes) -> None:
        """``key`` need not be looked at."""
        self._next.pop(key, None)

    def due(self, now_ns: int) -> list[bytes]:
        """The keys whose time has come, soonest first; each is forgotten until it is noted again."""
        found = []
        while self._heap and self._heap[0][0] <= now_ns:
            at_ns, key = heapq.heappop(self._heap)
            if self._next.get(key) == at_ns:
                del self._next[key]
                found.append(key)
        return found
