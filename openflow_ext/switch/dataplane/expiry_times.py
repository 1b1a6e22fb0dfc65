"""The times at which entries have to be checked for a timeout: a heap."""

from __future__ import annotations

import heapq

SLACK = 1024
"""Outdated times that the heap may hold besides twice the keys before it is rebuilt."""


class ExpiryTimes:
    """The time in ns at which each key has to be checked. Adding and taking a time costs O(log n)."""

    def __init__(self) -> None:
        self._next: dict[bytes, int] = {}
        self._heap: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        """The number of keys with a time."""
        return len(self._next)

    def add(self, key: bytes, at_ns: int) -> None:
        """Check ``key`` at ``at_ns``, or earlier if an earlier time was added before."""
        if self._next.get(key, at_ns + 1) <= at_ns:
            return
        self._next[key] = at_ns
        heapq.heappush(self._heap, (at_ns, key))
        if len(self._heap) > 2 * len(self._next) + SLACK:
            self._heap = [(at, key) for key, at in self._next.items()]
            heapq.heapify(self._heap)

    def forget(self, key: bytes) -> None:
        """``key`` needs no check any more."""
        self._next.pop(key, None)

    def due(self, now_ns: int) -> list[bytes]:
        """The keys whose time has come, the earliest first. Their times are removed."""
        found = []
        while self._heap and self._heap[0][0] <= now_ns:
            at_ns, key = heapq.heappop(self._heap)
            if self._next.get(key) == at_ns:
                del self._next[key]
                found.append(key)
        return found
