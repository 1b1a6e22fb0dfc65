"""The changes that a writer process has not written yet. Another writer gets them if that one ends."""

from __future__ import annotations

from collections import deque

MOST_WRITERS = 3
"""So many writers get a change. If each of them ended before it wrote anything, a change may be the cause."""


class SentChanges:
    """Keeps at most ``most`` packed changes. If more are unwritten, the oldest are counted but not kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._requests: deque[tuple[int, list[bytes]]] = deque()
        self._kept = self._last_number = self._ended_writers = 0
        self._unkept = self._unkept_until = 0

    def add(self, changes: list[bytes]) -> int:
        """Note the changes of the next request; returns its number."""
        self._last_number += 1
        if changes:
            self._requests.append((self._last_number, changes))
            self._kept += len(changes)
        while self._kept > self._most:
            self._unkept_until, oldest = self._requests.popleft()
            self._kept -= len(oldest)
            self._unkept += len(oldest)
        return self._last_number

    def written(self, number: int) -> None:
        """The changes of all requests up to this one are written, or refused by the database."""
        if self._unkept and self._unkept_until <= number:
            self._unkept = self._ended_writers = 0
        while self._requests and self._requests[0][0] <= number:
            self._kept -= len(self._requests.popleft()[1])
            self._ended_writers = 0

    def take_back(self) -> tuple[list[bytes], int]:
        """The writer has ended. Returns the unwritten changes for the next one, and how many are lost.

        They may be written twice, with the same result (``changes.py``). A writer that had nothing to write
        does not count as one of MOST_WRITERS.
        """
        again, lost = [change for _, changes in self._requests for change in changes], self._unkept
        if not again and not lost:
            return [], 0
        self._requests.clear()
        self._kept = self._unkept = 0
        self._ended_writers += 1
        if self._ended_writers < MOST_WRITERS:
            return again, lost
        self._ended_writers = 0
        return [], lost + len(again)
