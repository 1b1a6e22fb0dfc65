"""A reference model of N_i in plain Python: the effect of segments, sweeps and restarts.

A flow is in N_i from the first SYN or SYN-ACK that leaves by the port until a FIN that leaves or a RST either
way; it is out while idle; a SYN with another initial sequence number begins a new connection.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.data_plane.packets import FIN, RST, SYN


@dataclass(slots=True)
class Flow:
    """One connection at the port. `isn` and `fin` hold the ways that were seen."""

    first_at: int
    last_at: int
    payload_at: int
    isn: dict[str, int] = field(default_factory=dict)
    fin: set[str] = field(default_factory=set)
    reset: bool = False
    was_counted: bool = False
    counted: bool = False
    idle: bool = False

    @property
    def ended(self) -> bool:
        return self.reset or self.fin == {"in", "out"}

    def begin_again(self, at: int) -> None:
        """A new connection on the same ports. A counted flow stays counted until the new connection ends."""
        self.payload_at = at
        self.isn, self.fin = {}, set()
        self.reset = self.was_counted = self.idle = False

    def end(self) -> None:
        self.counted = self.idle = False


class Reference:
    """The flows of one port, in a table of `room` entries. Times are counts of segments."""

    def __init__(self, room: int) -> None:
        self.flows: dict[int, Flow] = {}
        self.refused = 0
        self._room = room

    @property
    def n_i(self) -> int:
        return sum(flow.counted for flow in self.flows.values())

    def segment(self, key: int, way: str, flags: int, isn: int, payload: bool, at: int) -> None:
        """A segment of flow `key`: `way` "in" comes from the host behind the port, "out" goes to it."""
        flow = self.flows.get(key)
        if flow is None:
            if not flags & SYN:
                return
            if len(self.flows) >= self._room:
                self.refused += 1
                return
            flow = self.flows[key] = Flow(at, at, at)
        if flags & SYN:
            if flow.isn.get(way, isn) != isn:
                flow.begin_again(at)
            flow.isn[way] = isn
        flow.last_at = at
        if way == "out" and payload:
            flow.payload_at = at
            flow.counted, flow.idle = flow.counted or flow.idle, False
        if flags & FIN and not flags & RST:
            flow.fin.add(way)
        flow.reset = flow.reset or bool(flags & RST)
        self._count(flow, way, flags)

    @staticmethod
    def _count(flow: Flow, way: str, flags: int) -> None:
        """SCCP's Table I: a segment that leaves matches the first of the entries for SYN, FIN and RST."""
        if way == "out" and flags & SYN:
            flow.counted = flow.counted or not flow.was_counted
            flow.was_counted = True
        elif flags & RST or (way == "out" and flags & FIN):
            flow.end()

    def sweep(self, closed_at: int, silent_at: int, idle_at: int) -> int:
        """Remove the flows that have been silent since these times, and return their number."""
        since = {True: closed_at, False: silent_at}
        gone = [key for key, flow in self.flows.items() if flow.last_at <= since[flow.ended]]
        for key in gone:
            del self.flows[key]
        for flow in self.flows.values():
            if flow.counted and flow.payload_at <= idle_at:
                flow.counted, flow.idle = False, True
        return len(gone)

    def forget(self) -> None:
        """The port is detached: its flows are gone."""
        self.flows.clear()
        self.refused = 0
