"""A limit on how often something is logged about each of many peers."""

from __future__ import annotations

from collections.abc import Hashable


def more_held_back(count: int) -> str:
    """The end of a line before which ``count`` lines were held back."""
    return f" ({count} more were not logged)" if count else ""


class LogLimit:
    """Lets one line about a key pass in ``interval_s``. Beyond ``most_keys`` keys it forgets the oldest."""

    def __init__(self, interval_s: float, most_keys: int = 1024) -> None:
        self._interval_s = interval_s
        self._most_keys = most_keys
        self._last: dict[Hashable, tuple[float, int]] = {}

    def passes(self, key: Hashable, now: float) -> int | None:
        """Whether to log now: the number of lines held back since the last one, or None not to log."""
        last, held_back = self._last.get(key, (None, 0))
        if last is not None and now - last < self._interval_s:
            self._last[key] = last, held_back + 1
            return None
        self._last.pop(key, None)
        while len(self._last) >= self._most_keys:
            del self._last[next(iter(self._last))]
        self._last[key] = now, 0
        return held_back

    def clear(self) -> None:
        """Let the next line about each key pass."""
        self._last.clear()
