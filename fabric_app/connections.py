"""The TCP connections of the network, and what copies of their SYN, FIN and RST segments say of them.

A connection is two directed flows. Both open at the SYN-ACK, when both window scales are known and the
connection is one (a flood of SYNs opens nothing), and date from the first SYN. A direction closes with its
sender's FIN, for no new data follows it, and both close with an RST. A retransmitted segment changes
nothing: it carries the sequence number of the first. So does a copy of the same segment from a second switch.
The two sides of a connection may be copied by two switches, whose messages overtake each other: a SYN-ACK
waits for its SYN, and an end that comes before both is remembered.

Not implemented: checking that an RST's or FIN's sequence number lies in the window.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from fabric_app.frames import Segment
from fabric_app.pipeline import ACK, FIN, RST, SYN
from flowdb.flow import FiveTuple, Flow, Hop, PortKey

DEFAULT_MSS_IPV4 = 536
DEFAULT_MSS_IPV6 = 1220
"""What a side that sends no MSS option can take (RFC 9293, section 3.7.1)."""
MOST_ENDED = 65_536
SAME_NS = 1_000_000_000

PathOf = Callable[[FiveTuple, PortKey, PortKey], tuple[Hop, ...]]
"""The path of a flow between the ports behind which its two hosts are; empty where none is known."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Directed flows that opened: those of the client's and the server's data, or one of them."""

    flows: tuple[Flow, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """A flow whose path, or what is told of it, is another than before."""

    flow: Flow


@dataclass(frozen=True, slots=True)
class Closed:
    """A directed flow ended.

    ``reason``: "fin", "rst", "silent" (gone without either), "replaced" (its 5-tuple is used anew) or
    "missing" (it ended while no controller listened).
    """

    flow: Flow
    reason: str


FlowEvent = Opened | Changed | Closed


@dataclass(frozen=True, slots=True)
class _Syn:
    """A SYN or SYN-ACK, and the port by which it came in."""

    segment: Segment
    at: PortKey
    seen_ns: int


@dataclass(slots=True)
class _Connection:
    """The directions that are open, and the sequence numbers that both sides began with."""

    open: dict[FiveTuple, Flow]
    starts: tuple[int, int] | None = None


class Connections:
    """The connections of the network.

    ``next_id`` gives the ids of flows. At most ``max_syns`` SYNs, as many SYN-ACKs without theirs, and
    ``max_connections`` connections are remembered; past that the oldest SYN is forgotten, a connection is
    not opened, and either is counted in ``refused``.
    """

    def __init__(
        self,
        next_id: Callable[[], int],
        path_of: PathOf,
        max_syns: int = 65_536,
        max_connections: int = 500_000,
    ) -> None:
        self.refused = 0
        self.next_id = next_id
        self._path_of = path_of
        self._max_syns = max_syns
        self._max_connections = max_connections
        self._syns: OrderedDict[FiveTuple, _Syn] = OrderedDict()
        self._answers: OrderedDict[FiveTuple, _Syn] = OrderedDict()
        self._connections: dict[FiveTuple, _Connection] = {}
        self._ended_ns: OrderedDict[FiveTuple, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[Flow]:
        """All flows that are open."""
        return (flow for connection in self._connections.values() for flow in connection.open.values())

    def get(self, key: FiveTuple) -> Flow | None:
        """The open flow of a 5-tuple."""
        connection = self._find(key)
        return connection.open.get(key) if connection else None

    def ended_ns(self, key: FiveTuple) -> int:
        """When the last flow of a 5-tuple ended, -1 if that is not remembered."""
        return self._ended_ns.get(key, -1)

    def adopt(self, flows: Iterable[Flow]) -> None:
        """Take over flows whose handshakes an earlier controller saw."""
        for flow in flows:
            self._put(flow)

    def open(self, flow: Flow) -> list[FlowEvent]:
        """A flow that a switch tells of."""
        if self._find(flow.key) is None and len(self._connections) >= self._max_connections:
            self.refused += 1
            return []
        self._put(flow)
        return [Opened((flow,))]

    def change(self, flow: Flow) -> list[FlowEvent]:
        """New values of an open flow."""
        self._put(flow)
        return [Changed(flow)]

    def reroute(self, flow: Flow, path: tuple[Hop, ...]) -> list[FlowEvent]:
        """An open flow goes by another path."""
        return self.change(replace(flow, path=path))

    def close(self, key: FiveTuple, reason: str, now_ns: int) -> list[FlowEvent]:
        """A direction ended."""
        connection = self._find(key)
        flow = connection.open.pop(key, None) if connection else None
        self.note_end(key, now_ns)
        if connection is not None and not connection.open:
            del self._connections[name_of(key)]
        return self._closed([flow] if flow else [], reason, now_ns)

    def end(self, key: FiveTuple, reason: str, now_ns: int) -> list[FlowEvent]:
        """Both directions ended."""
        self._syns.pop(key, None)
        self._syns.pop(key.reverse, None)
        self._answers.pop(key, None)
        self._answers.pop(key.reverse, None)
        connection = self._connections.pop(name_of(key), None)
        return self._closed(list(connection.open.values()) if connection else [], reason, now_ns)

    def on_segment(self, segment: Segment, at: PortKey, now_ns: int) -> list[FlowEvent]:
        """What a copied segment, which came in at a port, opens and closes."""
        if segment.flags & RST:
            return self.end(segment.key, "rst", now_ns)
        if segment.flags & SYN:
            half = _Syn(segment, at, now_ns)
            return self._on_syn_ack(half) if segment.flags & ACK else self._on_syn(half)
        if segment.flags & FIN:
            return self.close(segment.key, "fin", now_ns)
        return []

    def _find(self, key: FiveTuple) -> _Connection | None:
        return self._connections.get(name_of(key))

    def _put(self, flow: Flow) -> None:
        self._connections.setdefault(name_of(flow.key), _Connection({})).open[flow.key] = flow

    def _closed(self, flows: list[Flow], reason: str, now_ns: int) -> list[FlowEvent]:
        for flow in flows:
            self.note_end(flow.key, now_ns)
        return [Closed(flow, reason) for flow in flows]

    def note_end(self, key: FiveTuple, now_ns: int) -> None:
        """A flow ended, perhaps before it was known."""
        self._ended_ns[key] = now_ns
        self._ended_ns.move_to_end(key)
        if len(self._ended_ns) > MOST_ENDED:
            self._ended_ns.popitem(last=False)

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
            self._wait(self._syns, key, syn)
        return []

    def _on_syn_ack(self, answer: _Syn) -> list[FlowEvent]:
        key = answer.segment.key.reverse
        syn = self._syns.get(key)
        if syn is not None and answer.segment.ack == (syn.segment.seq + 1) & 0xFFFF_FFFF:
            return self._establish(syn, answer)
        known = self._find(key)
        if known is None or known.starts is None or known.starts[1] != answer.segment.seq:
            self._wait(self._answers, key, answer)
        return []

    def _wait(self, waiting: OrderedDict[FiveTuple, _Syn], key: FiveTuple, half: _Syn) -> None:
        if len(waiting) >= self._max_syns:
            waiting.popitem(last=False)
            self.refused += 1
        waiting[key] = half

    def _establish(self, syn: _Syn, answer: _Syn) -> list[FlowEvent]:
        """Both halves of a handshake are there, in whichever order two switches told of them."""
        key, now_ns = syn.segment.key, max(syn.seen_ns, answer.seen_ns)
        self._syns.pop(key, None)
        self._answers.pop(key, None)
        known = self._find(key)
        if known is not None and known.starts is None and _is_of(known, syn):
            return self._complete(known, syn, answer)
        ended = [end for end in (key, key.reverse) if self.ended_ns(end) >= syn.seen_ns]
        changes = self.end(key, "replaced", now_ns)
        if len(self._connections) >= self._max_connections:
            self.refused += 1
            return changes
        flows = self._flows(syn, answer)
        starts = (syn.segment.seq, answer.segment.seq)
        self._connections[name_of(key)] = _Connection({flow.key: flow for flow in flows}, starts)
        closed = [event for end in ended for event in self.close(end, "fin", now_ns)]
        return [*changes, Opened(flows), *closed]

    def _complete(self, known: _Connection, syn: _Syn, answer: _Syn) -> list[FlowEvent]:
        """A switch told of the connection before its SYN-ACK came: only what is missing opens."""
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
    """Whether a connection began with this SYN, as far as two clocks tell."""
    return all(flow.opened_ns > syn.seen_ns - SAME_NS for flow in known.open.values())


def scales_of(one: int | None, other: int | None) -> tuple[int, int]:
    """Both sides' window scales; windows are scaled only if both SYNs say so (RFC 7323, section 2.2)."""
    return (0, 0) if one is None or other is None else (one, other)


def least_mss_bytes(key: FiveTuple, one: int | None, other: int | None) -> int:
    """The smaller of both sides' MSS options, and the default where a side sent none."""
    default = DEFAULT_MSS_IPV6 if key.is_ipv6 else DEFAULT_MSS_IPV4
    return max(1, min(one or default, other or default))


def name_of(key: FiveTuple) -> FiveTuple:
    """One name for both directions of a connection."""
    ends = sorted([(key.src, key.src_port), (key.dst, key.dst_port)])
    return FiveTuple(ends[0][0], ends[1][0], ends[0][1], ends[1][1])
