"""The TCP connections of the network, from copies of their SYN, FIN and RST segments. Pure.

A connection is two directed flows. Both open at the SYN-ACK, when both window scales are known, so a flood of
SYNs opens nothing. Their age counts from the first SYN. A direction closes with its sender's FIN, because no
new data follows it; an RST closes both. A retransmitted segment has the sequence number of the first one and
changes nothing, and neither does a copy from a second switch.

Two switches may copy the two sides of a connection, and their messages may overtake each other. So a SYN-ACK
waits for its SYN, and an end that arrives before both is remembered.

Not implemented: checking that the sequence number of an RST or FIN lies in the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from app_base.headers import ACK, FIN, RST, SYN
from fabric_app.frames import Segment
from flowdb.flow import FiveTuple, Flow, Hop, PortKey
from weir_base.bounded_notes import BoundedNotes
from weir_base.shared_places import SharedPlaces

DEFAULT_MSS_IPV4 = 536
DEFAULT_MSS_IPV6 = 1220
"""The MSS of a side that sends no MSS option (RFC 9293, section 3.7.1)."""
MOST_ENDED = 65_536
SAME_NS = 1_000_000_000

PathOf = Callable[[FiveTuple, PortKey, PortKey], tuple[Hop, ...]]
"""The path of a flow between the ports of its two hosts; empty if none is known."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Directed flows opened: of the client's data, of the server's data, or of both."""

    flows: tuple[Flow, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """The path or the reported values of a flow changed."""

    flow: Flow


@dataclass(frozen=True, slots=True)
class Closed:
    """A directed flow ended.

    ``reason``: "fin", "rst", "silent" (it ended without either), "replaced" (a new flow has its 5-tuple) or
    "missing" (it ended while no controller ran).
    """

    flow: Flow
    reason: str


FlowEvent = Opened | Changed | Closed


@dataclass(frozen=True, slots=True)
class _Syn:
    """A SYN or SYN-ACK, and the port at which it arrived."""

    segment: Segment
    at: PortKey
    seen_ns: int


@dataclass(slots=True)
class _Connection:
    """The open directions, the switch that made it known, and the initial sequence numbers of both sides."""

    open: dict[FiveTuple, Flow]
    dpid: int
    starts: tuple[int, int] | None = None


class Connections:
    """The connections of the network.

    ``next_id`` gives the ids of flows. At most ``max_syns`` SYNs, as many SYN-ACKs without a SYN, and
    ``max_connections`` connections are remembered. Beyond that an old SYN is forgotten, or a connection is
    not opened; ``refused`` counts both. No switch can make so many connections known that no place is left
    for the others (``SharedPlaces``), nor displace the SYNs and ends that others made known
    (``BoundedNotes``).
    """

    def __init__(
        self,
        next_id: Callable[[], int],
        path_of: PathOf,
        max_syns: int = 65_536,
        max_connections: int = 500_000,
    ) -> None:
        self.next_id = next_id
        self._path_of = path_of
        self._syns: BoundedNotes[FiveTuple, _Syn] = BoundedNotes(max_syns)
        self._answers: BoundedNotes[FiveTuple, _Syn] = BoundedNotes(max_syns)
        self._connections: dict[FiveTuple, _Connection] = {}
        self._places = SharedPlaces(max_connections)
        self._not_opened = 0
        self._ended_ns: BoundedNotes[FiveTuple, int] = BoundedNotes(MOST_ENDED)

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def refused(self) -> int:
        """Connections that were not opened, and SYNs and SYN-ACKs that were forgotten."""
        return self._not_opened + self._syns.displaced + self._answers.displaced

    def __iter__(self) -> Iterator[Flow]:
        """All flows that are open."""
        return (flow for connection in self._connections.values() for flow in connection.open.values())

    def get(self, key: FiveTuple) -> Flow | None:
        """The open flow of a 5-tuple."""
        connection = self._find(key)
        return connection.open.get(key) if connection else None

    def ended_ns(self, key: FiveTuple) -> int:
        """When the last flow of a 5-tuple ended; -1 if that is unknown."""
        ended_ns = self._ended_ns.get(key)
        return -1 if ended_ns is None else ended_ns

    def adopt(self, flows: Iterable[Flow]) -> None:
        """Take over the open flows of an earlier controller."""
        for flow in flows:
            if not self._replace(flow):
                self._add(_Connection({flow.key: flow}, flow.path[-1].dpid if flow.path else 0))

    def open(self, flow: Flow, dpid: int) -> list[FlowEvent]:
        """Open a flow that the switch ``dpid`` reports."""
        if self._replace(flow) or self._add_if_room(_Connection({flow.key: flow}, dpid)):
            return [Opened((flow,))]
        return []

    def change(self, flow: Flow) -> list[FlowEvent]:
        """Replace the values of an open flow."""
        self._connections[name_of(flow.key)].open[flow.key] = flow
        return [Changed(flow)]

    def reroute(self, flow: Flow, path: tuple[Hop, ...]) -> list[FlowEvent]:
        """Replace the path of an open flow."""
        return self.change(replace(flow, path=path))

    def close(self, key: FiveTuple, reason: str, now_ns: int, dpid: int) -> list[FlowEvent]:
        """Close one direction, because of what the switch ``dpid`` said."""
        connection = self._find(key)
        flow = connection.open.pop(key, None) if connection else None
        self.note_end(key, now_ns, dpid)
        if connection is not None and not connection.open:
            self._remove(key)
        return [Closed(flow, reason)] if flow else []

    def end(self, key: FiveTuple, reason: str, now_ns: int, dpid: int) -> list[FlowEvent]:
        """Close both directions, because of what the switch ``dpid`` said."""
        for waiting in (self._syns, self._answers):
            waiting.pop(key)
            waiting.pop(key.reverse)
        connection = self._remove(key)
        flows = list(connection.open.values()) if connection else []
        for flow in flows:
            self.note_end(flow.key, now_ns, dpid)
        return [Closed(flow, reason) for flow in flows]

    def on_segment(self, segment: Segment, at: PortKey, now_ns: int) -> list[FlowEvent]:
        """The flows that a copied segment opens and closes; ``at`` is the port at which it arrived."""
        if segment.flags & RST:
            return self.end(segment.key, "rst", now_ns, at.dpid)
        if segment.flags & SYN:
            half = _Syn(segment, at, now_ns)
            return self._on_syn_ack(half) if segment.flags & ACK else self._on_syn(half)
        if segment.flags & FIN:
            return self.close(segment.key, "fin", now_ns, at.dpid)
        return []

    def _find(self, key: FiveTuple) -> _Connection | None:
        return self._connections.get(name_of(key))

    def _replace(self, flow: Flow) -> bool:
        """Put a flow into its connection. False: the connection is not known."""
        known = self._find(flow.key)
        if known is not None:
            known.open[flow.key] = flow
        return known is not None

    def _add(self, connection: _Connection) -> None:
        self._connections[name_of(next(iter(connection.open)))] = connection
        self._places.take(connection.dpid)

    def _add_if_room(self, connection: _Connection) -> bool:
        if not self._places.has_place(connection.dpid):
            self._not_opened += 1
            return False
        self._add(connection)
        return True

    def _remove(self, key: FiveTuple) -> _Connection | None:
        connection = self._connections.pop(name_of(key), None)
        if connection is not None:
            self._places.give_back(connection.dpid)
        return connection

    def note_end(self, key: FiveTuple, now_ns: int, dpid: int) -> None:
        """Remember that the switch ``dpid`` saw a flow end, even if it was never open here."""
        self._ended_ns.put(key, now_ns, dpid)

    def _on_syn(self, syn: _Syn) -> list[FlowEvent]:
        key, seq = syn.segment.key, syn.segment.seq
        answer = self._answers.get(key)
        if answer is not None and answer.segment.ack == (seq + 1) & 0xFFFF_FFFF:
            return self._establish(syn, answer)
        waiting = self._syns.get(key)
        if waiting is not None and waiting.segment.seq == seq:
            return []
        known = self._find(key)
        if known is None or known.starts is None or known.starts[0] != seq:
            self._syns.put(key, syn, syn.at.dpid)
        return []

    def _on_syn_ack(self, answer: _Syn) -> list[FlowEvent]:
        key = answer.segment.key.reverse
        syn = self._syns.get(key)
        if syn is not None and answer.segment.ack == (syn.segment.seq + 1) & 0xFFFF_FFFF:
            return self._establish(syn, answer)
        known = self._find(key)
        if known is None or known.starts is None or known.starts[1] != answer.segment.seq:
            self._answers.put(key, answer, answer.at.dpid)
        return []

    def _establish(self, syn: _Syn, answer: _Syn) -> list[FlowEvent]:
        """Open the flows of a handshake, of which both halves have arrived in any order."""
        key, now_ns = syn.segment.key, max(syn.seen_ns, answer.seen_ns)
        self._syns.pop(key)
        self._answers.pop(key)
        known = self._find(key)
        if known is not None and known.starts is None and _is_of(known, syn):
            return self._complete(known, syn, answer)
        ended = [end for end in (key, key.reverse) if self.ended_ns(end) >= syn.seen_ns]
        changes = self.end(key, "replaced", now_ns, answer.at.dpid)
        flows = self._flows(syn, answer)
        starts = (syn.segment.seq, answer.segment.seq)
        if not self._add_if_room(_Connection({flow.key: flow for flow in flows}, answer.at.dpid, starts)):
            return changes
        closed = [event for end in ended for event in self.close(end, "fin", now_ns, answer.at.dpid)]
        return [*changes, Opened(flows), *closed]

    def _complete(self, known: _Connection, syn: _Syn, answer: _Syn) -> list[FlowEvent]:
        """A switch reported the connection before its SYN-ACK arrived: only the missing direction opens."""
        known.starts = (syn.segment.seq, answer.segment.seq)
        missing = tuple(flow for flow in self._flows(syn, answer) if flow.key not in known.open)
        known.open.update({flow.key: flow for flow in missing})
        return [Opened(missing)] if missing else []

    def _flows(self, syn: _Syn, answer: _Syn) -> tuple[Flow, Flow]:
        client, syn_ack = syn.segment, answer.segment
        scales = scales_of(client.wscale, syn_ack.wscale)
        mss_bytes = least_mss_bytes(client.key, client.mss, syn_ack.mss)

        def flow(key: FiveTuple, src: PortKey, dst: PortKey, receiver: int, sender: int) -> Flow:
            path = self._path_of(key, src, dst)
            return Flow(self.next_id(), key, path, syn.seen_ns, mss_bytes, receiver, sender)

        return (
            flow(client.key, syn.at, answer.at, scales[1], scales[0]),
            flow(syn_ack.key, answer.at, syn.at, scales[0], scales[1]),
        )


def _is_of(known: _Connection, syn: _Syn) -> bool:
    """Whether a connection began with this SYN, within the precision of two clocks."""
    return all(flow.opened_ns > syn.seen_ns - SAME_NS for flow in known.open.values())


def scales_of(one: int | None, other: int | None) -> tuple[int, int]:
    """Both sides' window scales. Both SYNs must have the option (RFC 7323, section 2.2)."""
    return (0, 0) if one is None or other is None else (one, other)


def least_mss_bytes(key: FiveTuple, one: int | None, other: int | None) -> int:
    """The smaller of both sides' MSS options; a side without the option has the default."""
    default = DEFAULT_MSS_IPV6 if key.is_ipv6 else DEFAULT_MSS_IPV4
    return max(1, min(one or default, other or default))


def name_of(key: FiveTuple) -> FiveTuple:
    """One name for both directions of a connection."""
    ends = sorted([(key.src, key.src_port), (key.dst, key.dst_port)])
    return FiveTuple(ends[0][0], ends[1][0], ends[0][1], ends[1][1])
