"""A reference model of N_i in plain Python: the effect of segments, sweeps and restarts.

A flow is in N_i from the end of its handshake, if its SYN or SYN-ACK left by the port, until a FIN that
leaves or a RST either way; it is out while idle. Only segments that the hosts would believe have an effect.
A SYN with another sequence number waits until the other side acknowledges it, and then begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.data_plane.packets import ACK, FIN, RST, SYN

OTHER = {"in": "out", "out": "in"}
NUMBERS = 1 << 32
LEAST_WINDOW = 0xFFFF
WINDOW = 0xFFFF << 9
"""Each segment has the largest window field, and each SYN the scale 9."""


def ahead(a: int, b: int) -> int:
    """How far sequence number `a` is after `b`; negative if it is before."""
    return (a - b + (1 << 31)) % (1 << 32) - (1 << 31)


def acknowledges(ack: int, isn: int, end: int) -> bool:
    return (ack - isn - 1) % (1 << 32) <= (end - isn - 1) % (1 << 32)


@dataclass(slots=True)
class Aside:
    """A SYN with another sequence number than the flow's."""

    way: str
    isn: int
    end: int
    at: int
    to_count: bool = False


@dataclass(slots=True)
class Flow:
    """One connection at the port. The fields with a dict or set are by way."""

    first_at: int
    last_at: int
    payload_at: int
    isn: dict[str, int] = field(default_factory=dict)
    end: dict[str, int] = field(default_factory=dict)
    ack: dict[str, int] = field(default_factory=dict)
    window: dict[str, int] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    fin: set[str] = field(default_factory=set)
    aside: Aside | None = None
    established: bool = False
    kept: bool = False
    reset: bool = False
    to_count: bool = False
    was_counted: bool = False
    counted: bool = False
    idle: bool = False

    @property
    def ended(self) -> bool:
        return self.reset or self.fin == {"in", "out"}

    def begin_again(self, aside: Aside, at: int) -> None:
        """A new connection on the same ports."""
        self.first_at, self.last_at, self.payload_at = aside.at, at, at
        self.isn, self.end, self.ack = {aside.way: aside.isn}, {aside.way: aside.end}, {}
        self.window, self.answered, self.fin, self.aside = {}, set(), set(), None
        self.to_count = aside.to_count
        self.established = self.reset = self.was_counted = self.counted = self.idle = False

    def count(self) -> None:
        self.counted = self.counted or not self.was_counted
        self.was_counted = True

    def end_count(self) -> None:
        self.counted = self.idle = False

    def window_of(self, way: str) -> int:
        return self.window.get(way, LEAST_WINDOW)


class Reference:
    """The flows of one port. The table has `room` for complete handshakes. Times count segments."""

    def __init__(self, room: int) -> None:
        self.flows: dict[int, Flow] = {}
        self.refused = 0
        self._room = room

    @property
    def n_i(self) -> int:
        return sum(flow.counted for flow in self.flows.values())

    def segment(self, key: int, way: str, flags: int, seq: int, ack: int, payload: int, at: int) -> None:
        """A segment with a right checksum: `way` "in" comes from the host, "out" goes to it."""
        flow = self.flows.get(key)
        if flags & SYN:
            if not flags & (FIN | RST):
                self._syn(key, flow, way, flags, seq, ack, payload, at)
            return
        if flow is None:
            return
        if not flow.established and self._proves_handshake(flow, way, flags, ack):
            if not flow.kept and sum(flow.kept for flow in self.flows.values()) >= self._room:
                self.refused += 1
                del self.flows[key]
                return
            flow.kept = flow.established = True
            if flow.to_count:
                flow.count()
        if flags & (FIN | RST) and not self._ends(flow, way, flags, seq, payload, ack):
            return
        flow.last_at = at
        if not flags & RST and len(flow.isn) == 2:
            self._follow(flow, way, flags, (seq + payload + bool(flags & FIN)) % NUMBERS, ack)
        if way == "out" and payload and flow.established:
            flow.payload_at = at
            flow.counted, flow.idle = flow.counted or flow.idle, False
        if flags & RST or (flags & FIN and way == "out"):
            flow.end_count()

    def _syn(
        self, key: int, flow: Flow | None, way: str, flags: int, isn: int, ack: int, payload: int, at: int
    ) -> None:
        answer, other = bool(flags & ACK), OTHER[way]
        if flow is None:
            if answer:
                return
            flow = self.flows[key] = Flow(at, at, at)
        end = (isn + 1 + payload) % NUMBERS
        if answer:
            in_flow = other in flow.isn and acknowledges(ack, flow.isn[other], flow.end[other])
            in_flow = in_flow and (flow.isn.get(way) == isn or not flow.established) and not flow.ended
            aside = flow.aside
            if not in_flow and aside and aside.way == other and acknowledges(ack, aside.isn, aside.end):
                flow.begin_again(aside, at)
                in_flow = True
            if not in_flow:
                return
        elif flow.isn.get(way, isn) != isn or (way not in flow.isn and flow.ended):
            repeated = flow.aside is not None and (flow.aside.way, flow.aside.isn) == (way, isn)
            aside = flow.aside if repeated and flow.aside else Aside(way, isn, end, at)
            aside.to_count = aside.to_count or way == "out"
            flow.aside = aside
            return
        flow.last_at = at
        if not flow.established:
            if flow.isn.get(way) != isn:
                flow.isn[way], flow.end[way] = isn, end
                flow.first_at = flow.first_at if answer else at
            if answer:
                flow.answered.add(way)
                flow.ack[way], flow.ack[other] = ack, (isn + 1) % NUMBERS
        if way == "out":
            flow.to_count = True
            if flow.established:
                flow.count()

    @staticmethod
    def _proves_handshake(flow: Flow, way: str, flags: int, ack: int) -> bool:
        other = OTHER[way]
        return (
            flags & (ACK | RST) == ACK
            and other in flow.answered
            and acknowledges(ack, flow.isn[other], flow.end[other])
        )

    @staticmethod
    def _ends(flow: Flow, way: str, flags: int, seq: int, payload: int, ack: int) -> bool:
        """Note a FIN or RST. False if the receiver would not believe it."""
        other, at = OTHER[way], seq + payload
        if flags & RST:
            if way not in flow.isn:
                believed = bool(flags & ACK) and acknowledges(ack, flow.isn[other], flow.end[other])
            else:
                believed = seq == flow.end[way] or (len(flow.isn) == 2 and seq == flow.ack.get(other, 0))
            flow.reset = flow.reset or believed
            return believed
        believed = (
            bool(flags & ACK)
            and flow.established
            and 0 <= ahead(at, flow.ack[other]) <= flow.window_of(other)
            and ahead(ack, flow.end[other]) <= 0
            and ahead(ack, flow.ack[way] - flow.window_of(way)) >= 0
        )
        if believed:
            flow.fin.add(way)
        return believed

    @staticmethod
    def _follow(flow: Flow, way: str, flags: int, end: int, ack: int) -> None:
        other = OTHER[way]
        if not flags & ACK:
            return
        if ahead(end, flow.end[way]) > 0 and ahead(flow.ack.get(other, 0) + flow.window_of(other), end) >= 0:
            flow.end[way] = end
        if ahead(ack, flow.end[other]) <= 0:
            flow.window[way] = WINDOW
            if ahead(ack, flow.ack.get(way, 0)) > 0:
                flow.ack[way] = ack

    def sweep(self, closed_at: int, silent_at: int, idle_at: int, opening_at: int) -> int:
        """Remove the flows that have been silent, or opening, since these times, and return their number."""
        since = {True: closed_at, False: silent_at}
        gone = [
            key
            for key, flow in self.flows.items()
            if flow.last_at <= since[flow.ended] or (not flow.established and flow.first_at <= opening_at)
        ]
        for key in gone:
            del self.flows[key]
        for flow in self.flows.values():
            if flow.counted and flow.payload_at <= idle_at:
                flow.counted, flow.idle = False, True
            if flow.aside and flow.aside.at <= opening_at:
                flow.aside = None
        return len(gone)

    def forget(self) -> None:
        """The port is detached: its flows are gone."""
        self.flows.clear()
        self.refused = 0
