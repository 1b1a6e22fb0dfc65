"""Flows from the switches' own reports (FLOW_REPORT), which come from every port that a flow leaves by. Pure.

Each switch on a flow's path reports both directions, each with its output port. The first report opens a
flow; those of the other switches confirm its path. Where they do not agree:

- *where it goes*: what the topology says holds while nobody contradicts it. A switch that says otherwise is
  believed for itself (it saw the data leave), the path is then put together from the reports alone, and
  the case is told (``Doubt``). Once a flow was led elsewhere, what a switch saw before is old;
- *whether it lives*: a FIN or RST at one switch ends it. A report of another switch that is older, or only
  late, changes nothing; one of data more than ``GRACE_NS`` later opens the flow again. Silence ends it only
  when every switch that reported it has fallen silent;
- *how much*: bytes and activity are taken from the first switch of the path that reports, for the others
  see the same data later or, where some was dropped, less of it;
- *MSS and scales*: those of the first report; another switch's that differ are told.

A flow seen only in its middle (no host of it is known) has the path that the reports give. A flow whose
opening no controller heard of, or whose row went down with the one that did (the database is written behind),
opens when a switch tells that it lives, as old as the switch says: who asks for reports is told of all (the
roll call). One that a switch of its path does not name there ended while nobody listened, unless another
switch names it; it closes once all of them have said their part. A flow whose handshake a switch did not see
is not among those that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fabric_app.connections import Connections, FlowEvent, least_mss_bytes, scales_of
from fabric_app.paths import UNKNOWN_PORT
from flowdb.flow import FiveTuple, Flow, FlowState, Hop
from openflow_ext.wire import SCALE_UNKNOWN, CloseReason, FlowKind, FlowRecord

GRACE_NS = 1_000_000_000

PathBySeen = Callable[[FiveTuple, Mapping[int, int]], tuple[Hop, ...]]
"""The path of a flow that leaves some switches (dpid) by these ports, in the light of the topology."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something in a report that a person should know of, and what is made of it."""

    text: str


class Reports:
    """What was reported of the flows in ``connections``. ``doubts``: how many there were."""

    def __init__(self, connections: Connections, path_of: PathBySeen) -> None:
        self.doubts = 0
        self._connections = connections
        self._path_of = path_of
        self._seen: dict[int, dict[int, int]] = {}
        self._led_ns: dict[int, int] = {}
        self._unnamed: dict[int, dict[int, FiveTuple]] = {}
        self._missed: set[int] = set()

    def call_roll(self, dpid: int, now_ns: int) -> None:
        """A switch is asked for its flows: those known to cross it are to be named. O(n) in all flows."""
        self._unnamed[dpid] = {
            flow.id: flow.key
            for flow in self._connections
            if flow.opened_ns < now_ns - GRACE_NS and flow.hop_at(dpid)
        }

    def roll_called(self, dpid: int) -> list[FlowEvent]:
        """A switch has named all its flows."""
        for flow_id in self._unnamed.get(dpid, ()):
            self._missed.add(flow_id)
            self._seen.get(flow_id, {}).pop(dpid, None)
        return self.roll_not_called(dpid)

    def roll_not_called(self, dpid: int) -> list[FlowEvent]:
        """A switch will not name its flows, or no more: what others missed waits for it no longer."""
        events = []
        for flow_id, key in self._unnamed.pop(dpid, {}).items():
            flow = self._connections.get(key)
            if flow and flow.id == flow_id and self._is_missing(flow):
                events += self._connections.close(key, "missing", flow.last_active_ns or flow.opened_ns)
        return events

    def _is_missing(self, flow: Flow) -> bool:
        """Whether a switch missed the flow, and none has named it or may yet."""
        awaited = any(flow.id in self._unnamed.get(hop.dpid, ()) for hop in flow.path)
        return flow.id in self._missed and not self._seen.get(flow.id) and not awaited

    def on_record(self, dpid: int, record: FlowRecord, now_ns: int) -> list[FlowEvent | Doubt]:
        """One record of a report of the switch ``dpid``."""
        key = FiveTuple(str(record.src), str(record.dst), record.src_port, record.dst_port)
        if record.kind is FlowKind.CLOSED:
            return [*self._on_closed(dpid, key, record)]
        flow = self._connections.get(key)
        if flow is None:
            return self._open(dpid, key, record, now_ns)
        seen = self._seen.setdefault(flow.id, {})
        self._unnamed.get(dpid, {}).pop(flow.id, None)
        if record.kind is FlowKind.OPENED and dpid in seen and record.first_ns > flow.opened_ns + GRACE_NS:
            closed = self._connections.close(key, "replaced", record.first_ns - 1)
            return [*closed, *self._open(dpid, key, record, now_ns)]
        return self._merge(dpid, flow, seen, record)

    def led_elsewhere(self, flow: Flow, now_ns: int) -> None:
        """A flow has a new path by a new topology."""
        self._seen.pop(flow.id, None)
        self._led_ns[flow.id] = now_ns

    def forget(self, flow: Flow) -> None:
        """A flow closed."""
        self._seen.pop(flow.id, None)
        self._led_ns.pop(flow.id, None)
        self._missed.discard(flow.id)

    def _open(self, dpid: int, key: FiveTuple, record: FlowRecord, now_ns: int) -> list[FlowEvent | Doubt]:
        ended_ns = self._connections.ended_ns(key)
        newest_ns = record.first_ns if record.kind is FlowKind.OPENED else record.last_ns - GRACE_NS
        if newest_ns <= ended_ns:
            return []
        seen = {dpid: record.out_port}
        receiver, sender = _scales(record)
        flow = Flow(
            self._connections.next_id(),
            key,
            self._path(key, seen),
            min(record.first_ns, now_ns),
            least_mss_bytes(key, record.mss_src, record.mss_dst),
            receiver,
            sender,
            record.handshake_rtt_us or None,
        )
        if record.kind is not FlowKind.OPENED:
            flow = flow.heard_of(record.sent_bytes, min(record.last_ns, now_ns), _state(record))
        events: list[FlowEvent | Doubt] = [*self._connections.open(flow)]
        if not events:
            return []
        if receiver is None:
            events += self._doubt(
                dpid, key, "without its handshake: it is slowed last, for its scale is unknown"
            )
        self._seen[flow.id] = seen
        back = self._connections.get(key.reverse)
        if back and (path := _entered(back.path, flow)) != back.path:
            events += self._connections.reroute(back, path)
        return events

    def _path(self, key: FiveTuple, seen: Mapping[int, int]) -> tuple[Hop, ...]:
        return _entered(self._path_of(key, seen), self._connections.get(key.reverse))

    def _merge(
        self, dpid: int, flow: Flow, seen: dict[int, int], record: FlowRecord
    ) -> list[FlowEvent | Doubt]:
        after, contradicted = flow, not _is_on_path(flow, dpid, record)
        doubts: list[Doubt] = []
        if contradicted and record.last_ns < self._led_ns.get(flow.id, 0) + GRACE_NS:
            return []
        if seen.get(dpid) != record.out_port:
            seen[dpid] = record.out_port
            if contradicted:
                if flow.path:
                    doubts += self._doubt(
                        dpid, flow.key, f"leaving by port {record.out_port}, not as known: it is believed"
                    )
                after = replace(after, path=self._path(flow.key, seen))
        if record.handshake_rtt_us and after.handshake_rtt_us is None:
            after = replace(after, handshake_rtt_us=record.handshake_rtt_us)
        if record.kind is FlowKind.OPENED:
            offered = _scales(record), least_mss_bytes(flow.key, record.mss_src, record.mss_dst)
            if offered != ((flow.receiver_wscale, flow.sender_wscale), flow.mss_bytes):
                doubts += self._doubt(
                    dpid, flow.key, "with another MSS or scale than the first report: that holds"
                )
        elif dpid == _first_that_reports(after.path, seen):
            after = after.heard_of(record.sent_bytes, record.last_ns, _state(record))
        return [*(self._connections.change(after) if after != flow else ()), *doubts]

    def _doubt(self, dpid: int, key: FiveTuple, what: str) -> list[Doubt]:
        self.doubts += 1
        return [Doubt(f"switch {dpid:016x} reports flow {key} {what}")]

    def _on_closed(self, dpid: int, key: FiveTuple, record: FlowRecord) -> list[FlowEvent]:
        flow = self._connections.get(key)
        if flow is None:
            self._connections.note_end(key, record.last_ns)
            return []
        if record.last_ns < flow.opened_ns:
            return []
        if record.reason is CloseReason.RST:
            return self._connections.end(key, "rst", record.last_ns)
        if record.reason is CloseReason.FIN:
            return self._connections.close(key, "fin", record.last_ns)
        if not _is_on_path(flow, dpid, record):
            return []
        seen = self._seen.get(flow.id, {})
        seen.pop(dpid, None)
        return [] if seen else self._connections.close(key, "silent", record.last_ns)


def _is_on_path(flow: Flow, dpid: int, record: FlowRecord) -> bool:
    hop = flow.hop_at(dpid)
    return hop is not None and hop.out_port == record.out_port


def _entered(path: tuple[Hop, ...], back: Flow | None) -> tuple[Hop, ...]:
    """A flow comes in where the connection's other direction goes out, if nothing else tells."""
    if not path or path[0].in_port != UNKNOWN_PORT or back is None or not back.path:
        return path
    last = back.path[-1]
    return (replace(path[0], in_port=last.out_port), *path[1:]) if last.dpid == path[0].dpid else path


def _first_that_reports(path: tuple[Hop, ...], seen: Mapping[int, int]) -> int | None:
    return next((hop.dpid for hop in path if hop.dpid in seen), None)


def _state(record: FlowRecord) -> FlowState:
    return FlowState.IDLE if record.kind is FlowKind.IDLE else FlowState.ACTIVE


def _scales(record: FlowRecord) -> tuple[int | None, int | None]:
    """The receiver's and the sender's scale; None where the handshake was not seen: then no MSS is told."""
    if not record.mss_src and not record.mss_dst:
        return None, None
    offered = (None if s == SCALE_UNKNOWN else s for s in (record.scale_dst, record.scale_src))
    return scales_of(*offered)
