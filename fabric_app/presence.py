"""Which hosts are still there: silent hosts are probed, and forgotten if no probe is answered. Pure.

A new host is on probation: it is probed soon, because a forged frame may have made it up. Later a host is
probed only when it has been silent for a long time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from flowdb.flow import NS_PER_S

PROBATION_NS = 5 * NS_PER_S
"""The time after which a new host is probed."""
PROBES = 3
"""The number of unanswered probes after which a host is gone."""
PROBE_NS = NS_PER_S
"""The time that a host has for its answer to each."""
NEVER_NS = 1 << 63


@dataclass(slots=True)
class _Life:
    """``silent_ns``: how long the host may be silent before the next step at ``due_ns``.

    ``unanswered``: the number of its probes without an answer.
    """

    heard_ns: int
    silent_ns: int
    due_ns: int
    unanswered: int = 0


class Presence:
    """When each host was heard last. ``idle_ns``: the silence after which a host is probed."""

    def __init__(self, idle_ns: int) -> None:
        self._idle_ns = idle_ns
        self._lives: dict[str, _Life] = {}
        self._waiting: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._lives)

    def begin(self, mac: str, now_ns: int, silent_ns: int | None = None) -> None:
        """A host is new. ``silent_ns``: its first silence, if it is not on probation."""
        silent_ns = min(PROBATION_NS, self._idle_ns) if silent_ns is None else silent_ns
        self._lives[mac] = _Life(now_ns, silent_ns, now_ns + silent_ns)
        heapq.heappush(self._waiting, (now_ns + silent_ns, mac))

    def heard(self, mac: str, now_ns: int) -> None:
        """A host sent a frame through its own port."""
        if life := self._lives.get(mac):
            life.heard_ns = now_ns
            life.silent_ns = self._idle_ns if life.unanswered else min(life.silent_ns, self._idle_ns)
            life.unanswered = 0

    def expects(self, mac: str) -> bool:
        """Whether a probe of a host is unanswered."""
        life = self._lives.get(mac)
        return life is not None and life.unanswered > 0

    def end(self, mac: str) -> None:
        """A host was forgotten."""
        self._lives.pop(mac, None)

    @property
    def due_ns(self) -> int:
        """The time at which ``due`` next has something to do; without any host, NEVER_NS."""
        return self._waiting[0][0] if self._waiting else NEVER_NS

    def due(self, now_ns: int) -> Iterator[tuple[str, int]]:
        """The hosts that are to be probed now, with the number of unanswered probes.

        With ``PROBES`` of them a host is gone: the caller ends it.
        """
        while self._waiting and self._waiting[0][0] <= now_ns:
            due_ns, mac = heapq.heappop(self._waiting)
            life = self._lives.get(mac)
            if life is None or life.due_ns != due_ns:
                continue
            life.due_ns = life.heard_ns + life.silent_ns
            probe = life.unanswered > 0 or life.due_ns <= now_ns
            if probe:
                life.due_ns = now_ns + PROBE_NS
                life.unanswered += 1
            heapq.heappush(self._waiting, (life.due_ns, mac))
            if probe:
                yield mac, life.unanswered - 1
