"""Places for entries of many switches, of which no switch can take all."""

from __future__ import annotations

from collections import Counter

_MOST_OF_FREE = 4
"""How many times the free places a switch may hold: alone 4/5 of all, so that 1/5 is left for the others.

The rule is that of buffers that many ports share (Choudhury and Hahne, "Dynamic queue length thresholds for
shared-memory packet switches", 1998).
"""


class SharedPlaces:
    """Counts who holds how many of a number of places.

    A switch may hold at most four times as many places as are free. Entries of the controller itself, whose
    ``dpid`` is None, need one free place.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self._taken = 0
        self._held: Counter[int] = Counter()  # by datapath id

    def has_place(self, dpid: int | None) -> bool:
        """Whether a further entry may have a place."""
        free = self.places - self._taken
        return free > 0 if dpid is None else self._held[dpid] < _MOST_OF_FREE * free

    def take(self, dpid: int | None) -> None:
        """An entry takes a place, whether or not there is one."""
        self._taken += 1
        if dpid is not None:
            self._held[dpid] += 1

    def give_back(self, dpid: int | None) -> None:
        """An entry gives its place back."""
        self._taken -= 1
        if dpid is not None:
            self._held[dpid] -= 1
            if not self._held[dpid]:
                del self._held[dpid]
