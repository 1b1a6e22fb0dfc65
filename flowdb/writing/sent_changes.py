"""The changes that a writer process has not written yet. Another writer gets them if that one ends."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

MOST_WRITERS = 3
"""So many writers get a change. If each of them ended before it wrote anything, a change may be the cause."""


@dataclass(slots=True)
class _Request:
    """The packed changes of one request. ``changes`` is None if there was no room to keep them."""

    number: int
    count: int
    changes: list[bytes] | None


class SentChanges:
    """Keeps at most ``most`` packed changes. If more are unwritten, the oldest are counted but not kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._requests: deque[_Request] = deque()
        self._kept = self._last_number = self._ended_writers = 0

    def add(self, changes: list[bytes]) -> int:
        """Note the changes of the next request; returns its number."""
        self._last_number += 1
        self._requests.append(_Request(self._last_number, len(changes), changes))
        self._kept += len(changes)
        for request in self._requests:
            if self._kept <= self._most:
                break
            if request.changes is not None:
                request.changes = None
                self._kept -= request.count
        return self._last_number

    def written(self, number: int) -> None:
        """The changes of all requests up to this one are written, or refused by the database."""
        while self._requests and self._requests[0].number <= number:
            request = self._requests.popleft()
            self._kept -= request.count if request.changes is not None else 0
            self._ended_writers = 0

    def take_back(self) -> tuple[list[bytes], int]:
        """The writer has ended. Returns the unwritten changes for the next one, and how many are lost.

        They may be written twice, with the same result (``changes.py``).
        """
        self._ended_writers += 1
        again: list[bytes] = []
        unwritten = sum(request.count for request in self._requests)
        if self._ended_writers < MOST_WRITERS:
            again = [change for request in self._requests for change in request.changes or ()]
        else:
            self._ended_writers = 0
        self._requests.clear()
        self._kept = 0
        return again, unwritten - len(again)
