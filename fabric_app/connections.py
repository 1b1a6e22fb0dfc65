"""TCP connections from the copies of their SYN, FIN and RST segments.

A connection is two directed flows. Both open at the SYN-ACK, when both window scales are known and the
connection is one (a flood of SYNs opens nothing), and date from the first SYN. A direction closes with its
sender's FIN, for no new data follows it, and both close with an RST. A retransmitted segment changes
nothing: it carries the sequence number of the first.

A flow whose handshake no controller saw, or whose row went down with the one that saw it (the database is
written behind), opens when its switch tells that it lives. It is as old as the switch says.

Not implemented: checking that an RST's or FIN's sequence number lies in the window.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from fabric_app.frames import Segment
from fabric_app.pipeline import ACK, FIN, RST, SYN
from flowdb.flow import FiveTuple, Flow, FlowState, Hop
from openflow_ext.wire import OFPP_UNKNOWN, SCALE_UNKNOWN, FlowKind, FlowRecord

DEFAULT_MSS_IPV4 = 536
DEFAULT_MSS_IPV6 = 1220
"""What a side that sends no MSS option can take (RFC 9293, section 3.7.1)."""

_LIVING = {FlowKind.ACTIVE: FlowState.ACTIVE, FlowKind.IDLE: FlowState.IDLE}


@dataclass(frozen=True, slots=True)
class Opened:
    """A connection opened: the flow of the client's data and that of the server's. Or one was found open."""

    flows: tuple[Flow, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """More is known of an open flow."""

    flow: Flow


@dataclass(frozen=True, slots=True)
class Closed:
    """A directed flow ended: ``reason`` is "fin", "rst" or "replaced" (its 5-tuple is used anew)."""

    flow: Flow
    reason: str


FlowEvent: TypeAlias = Opened | Changed | Closed


@dataclass(frozen=True, slots=True)
class _Syn:
    segment: Segment
    port_no: int
    seen_ns: int


@dataclass(slots=True)
class _Connection:
    """The directions that are open, and the sequence numbers that both sides began with."""

    open: dict[FiveTuple, Flow]
    starts: tuple[int, int] | None


class Connections:
    """The connections of one switch.

    ``next_id`` gives the ids of flows. At most ``max_syns`` unanswered SYNs and ``max_connections``
    connections are remembered; past that the oldest SYN is forgotten, a connection is not opened, and
    either is counted in ``refused``.
    """

    def __init__(
        self,
        dpid: int,
        next_id: Callable[[], int],
        max_syns: int = 65_536,
        max_connections: int = 500_000,
    ) -> None:
        self.refused = 0
        self._dpid = dpid
        self._next_id = next_id
        self._max_syns = max_syns
        self._max_connections = max_connections
        self._syns: OrderedDict[FiveTuple, _Syn] = OrderedDict()
        self._connections: dict[FiveTuple, _Connection] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def adopt(self, flows: Iterable[Flow]) -> None:
        """Take over flows whose handshakes an earlier controller saw."""
        for flow in flows:
            connection = self._find(flow.key) or _Connection({}, None)
            connection.open[flow.key] = flow
            self._connections[_name(flow.key)] = connection

    def on_segment(self, segment: Segment, in_port: int, now_ns: int) -> list[FlowEvent]:
        """What a copied segment, which came in by ``in_port``, opens and closes."""
        if segment.flags & RST:
            self._syns.pop(segment.key, None)
            self._syns.pop(segment.key.reverse, None)
            return self._end(segment.key, "rst")
        if segment.flags & SYN:
            if segment.flags & ACK:
                return self._on_syn_ack(segment, in_port)
            self._on_syn(segment, in_port, now_ns)
            return []
        if segment.flags & FIN:
            return self._finish(segment.key)
        return []

    def on_record(self, record: FlowRecord, now_ns: int) -> list[FlowEvent]:
        """What the switch tells of a flow that lives opens it, where it is not known."""
        key = FiveTuple(str(record.src), str(record.dst), record.src_port, record.dst_port)
        known = self._find(key)
        if record.kind not in _LIVING or (known and (known.starts or key in known.open)):
            return []
        if known is None and len(self._connections) >= self._max_connections:
            self.refused += 1
            return []
        connection = self._connections.setdefault(_name(key), _Connection({}, None))
        back = connection.open.get(key.reverse)
        in_port = back.path[0].out_port if back else OFPP_UNKNOWN
        connection.open[key] = flow = self._told(key, in_port, record, now_ns)
        if back is None or back.path[0].in_port != OFPP_UNKNOWN:
            return [Opened((flow,))]
        back = replace(back, path=(replace(back.path[0], in_port=record.out_port),))
        connection.open[back.key] = back
        return [Opened((flow,)), Changed(back)]

    def _told(self, key: FiveTuple, in_port: int, record: FlowRecord, now_ns: int) -> Flow:
        offered = (None if s == SCALE_UNKNOWN else s for s in (record.scale_src, record.scale_dst))
        sender_wscale, receiver_wscale = _scales(*offered)
        flow = Flow(
            id=self._next_id(),
            key=key,
            path=(Hop(self._dpid, in_port, record.out_port),),
            receiver_wscale=receiver_wscale,
            sender_wscale=sender_wscale,
            opened_ns=min(record.first_ns, now_ns),
            mss_bytes=_mss_bytes(key, record.mss_src, record.mss_dst),
        )
        return flow.heard_of(record.sent_bytes, min(record.last_ns, now_ns), _LIVING[record.kind])

    def _find(self, key: FiveTuple) -> _Connection | None:
        return self._connections.get(_name(key))

    def _on_syn(self, segment: Segment, in_port: int, now_ns: int) -> None:
        waiting = self._syns.get(segment.key)
        if waiting is not None and waiting.segment.seq == segment.seq:
            return
        known = self._find(segment.key)
        if known is not None and known.starts is not None and known.starts[0] == segment.seq:
            return
        if len(self._syns) >= self._max_syns:
            self._syns.popitem(last=False)
            self.refused += 1
        self._syns[segment.key] = _Syn(segment, in_port, now_ns)

    def _on_syn_ack(self, segment: Segment, in_port: int) -> list[FlowEvent]:
        syn = self._syns.get(segment.key.reverse)
        if syn is None or segment.ack != (syn.segment.seq + 1) & 0xFFFF_FFFF:
            return []
        del self._syns[segment.key.reverse]
        changes: list[FlowEvent] = list(self._end(segment.key, "replaced"))
        if len(self._connections) >= self._max_connections:
            self.refused += 1
            return changes
        flows = self._flows(syn, segment, in_port)
        starts = (syn.segment.seq, segment.seq)
        self._connections[_name(segment.key)] = _Connection({flow.key: flow for flow in flows}, starts)
        return [*changes, Opened(flows)]

    def _flows(self, syn: _Syn, syn_ack: Segment, server_port_no: int) -> tuple[Flow, Flow]:
        client = syn.segment
        mss = _mss_bytes(client.key, client.mss, syn_ack.mss)
        scales = _scales(client.wscale, syn_ack.wscale)
        return (
            Flow(
                id=self._next_id(),
                key=client.key,
                path=(Hop(self._dpid, syn.port_no, server_port_no),),
                receiver_wscale=scales[1],
                sender_wscale=scales[0],
                opened_ns=syn.seen_ns,
                mss_bytes=mss,
            ),
            Flow(
                id=self._next_id(),
                key=syn_ack.key,
                path=(Hop(self._dpid, server_port_no, syn.port_no),),
                receiver_wscale=scales[0],
                sender_wscale=scales[1],
                opened_ns=syn.seen_ns,
                mss_bytes=mss,
            ),
        )

    def _finish(self, key: FiveTuple) -> list[FlowEvent]:
        connection = self._find(key)
        flow = connection.open.pop(key, None) if connection else None
        if connection is not None and not connection.open:
            del self._connections[_name(key)]
        return [Closed(flow, "fin")] if flow else []

    def _end(self, key: FiveTuple, reason: str) -> list[FlowEvent]:
        connection = self._connections.pop(_name(key), None)
        return [Closed(flow, reason) for flow in connection.open.values()] if connection else []


def _scales(one: int | None, other: int | None) -> tuple[int, int]:
    """Both sides' window scales; windows are scaled only if both SYNs say so (RFC 7323, section 2.2)."""
    return (0, 0) if one is None or other is None else (one, other)


def _mss_bytes(key: FiveTuple, one: int | None, other: int | None) -> int:
    """The smaller of both sides' MSS options, and the default where a side sent none."""
    default = DEFAULT_MSS_IPV6 if key.is_ipv6 else DEFAULT_MSS_IPV4
    return max(1, min(one or default, other or default))


def _name(key: FiveTuple) -> FiveTuple:
    """One name for both directions of a connection."""
    ends = sorted([(key.src, key.src_port), (key.dst, key.dst_port)])
    return FiveTuple(ends[0][0], ends[1][0], ends[0][1], ends[1][1])
