"""When a switch is asked for a new roll call, because it has lost flow reports. Pure; time in nanoseconds.

A lost report may have said that a flow opened or ended. Only a new roll call names the open flows. It makes
as many reports as the switch has flows, so the pauses between roll calls grow while reports are lost: from
``FIRST_WAIT_NS``, doubled each time, up to ``LONGEST_WAIT_NS``. They are short again after a time without
losses that is twice as long as the last pause.

A switch has one roll call at a time. The end of an earlier one would otherwise be taken for the new one's.
"""

from __future__ import annotations

from dataclasses import dataclass

from flowdb.flow import NS_PER_S

FIRST_WAIT_NS = NS_PER_S
LONGEST_WAIT_NS = 64 * NS_PER_S
NEVER_NS = 1 << 63


@dataclass(slots=True)
class _Switch:
    """``under_way``: the roll call has not ended."""

    under_way: bool = True
    wait_ns: int = FIRST_WAIT_NS
    lost_ns: int = 0
    due_ns: int = NEVER_NS


class RollCalls:
    """The switches that report flows."""

    def __init__(self) -> None:
        self._switches: dict[int, _Switch] = {}

    def begin(self, dpid: int) -> None:
        """A switch connected, and is asked for its first roll call."""
        self._switches[dpid] = _Switch()

    def stop(self, dpid: int) -> None:
        """A switch disconnected or does not report flows."""
        self._switches.pop(dpid, None)

    def ended(self, dpid: int) -> None:
        """A switch has ended a roll call."""
        if switch := self._switches.get(dpid):
            switch.under_way = False

    def lost(self, dpid: int, now_ns: int) -> None:
        """A switch has lost reports."""
        if switch := self._switches.get(dpid):
            if now_ns - switch.lost_ns > 2 * switch.wait_ns:
                switch.wait_ns = FIRST_WAIT_NS
            switch.lost_ns = now_ns
            switch.due_ns = min(switch.due_ns, now_ns + switch.wait_ns)

    @property
    def due_ns(self) -> int:
        """The time at which a roll call is due; NEVER_NS if none is."""
        waiting = (switch.due_ns for switch in self._switches.values() if not switch.under_way)
        return min(waiting, default=NEVER_NS)

    def take_due(self, now_ns: int) -> list[int]:
        """The switches to ask now."""
        due = [
            dpid
            for dpid, switch in self._switches.items()
            if switch.due_ns <= now_ns and not switch.under_way
        ]
        for dpid in due:
            switch = self._switches[dpid]
            switch.under_way, switch.due_ns = True, NEVER_NS
            switch.wait_ns = min(2 * switch.wait_ns, LONGEST_WAIT_NS)
        return due
