"""Rates that ports may use. Pure; time in nanoseconds."""

from __future__ import annotations

from collections.abc import Hashable

from flowdb.flow import NS_PER_S

BURST_S = 2
"""After a pause, a key may use the allowance of this many seconds at once."""


class Rates:
    """Allows each key ``per_s`` events a second, and ``BURST_S`` times as many at once after a pause.

    A key's state is one number: the time at which all events that it was allowed would be over if they
    came evenly.
    """

    def __init__(self, per_s: int) -> None:
        self._interval_ns = NS_PER_S // per_s
        self._burst_ns = BURST_S * NS_PER_S
        self._over_ns: dict[Hashable, int] = {}

    def take(self, key: Hashable, now_ns: int) -> bool:
        """Whether one more event of this key is allowed now; if so, it counts."""
        over_ns = max(self._over_ns.get(key, 0), now_ns) + self._interval_ns
        if over_ns - now_ns > self._burst_ns:
            return False
        self._over_ns[key] = over_ns
        return True

    def is_high(self, key: Hashable, now_ns: int) -> bool:
        """Whether a key has used more than half of what it may use at once."""
        return self._over_ns.get(key, 0) - now_ns > self._burst_ns // 2

    def forget(self, key: Hashable) -> None:
        """A key no longer exists."""
        self._over_ns.pop(key, None)
