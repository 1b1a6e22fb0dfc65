"""Flows from the switches' own reports (FLOW_REPORT). Pure.

Each switch on a flow's path reports both directions, each with its output port. The first report opens a
flow; the reports of the other switches confirm its path. Contradictions are resolved like this:

- *Path*: the topology holds until a switch contradicts it. Then the switch is believed for itself, because it
  saw the data leave. The path is put together from the reports alone, and the contradiction is logged
  (``Doubt``). If a report agrees with the topology and the known path does not, a host has moved: the path
  of the topology holds again. So does it if it is a part of the known path: the sender has moved to a switch
  that its flow crossed, and no switch will report another port. Reports from before a reroute or a move are
  old.
- *End*: a FIN or RST at one switch ends the flow. An older or late report of another switch changes nothing;
  a report of data more than ``GRACE_NS`` later opens the flow again. Silence ends the flow only when every
  switch that reported it has reported silence.
- *Bytes and activity* come from the first switch of the path that reports. The others see the same data
  later, or less of it after drops.
- *Times* in the future count as now: an end in the future would keep later flows of the 5-tuple unknown.
- *MSS and window scales* come from the first report; different ones of another switch are logged.

If no host of a flow is known, the flow has the path that the reports give.

A flow may be open without having a row: no controller saw it open, or its row was lost because the database
is written with a delay. Such a flow opens when a switch reports that it lives, with the age that the switch
reports. A controller that connects asks for reports of all flows (the roll call). A flow that a switch of
its path does not name ended while no controller ran, unless another switch names it. It closes when all its
switches have answered. A switch does not name flows whose handshake it did not see, nor flows that were led
to it and have sent nothing since then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fabric_app.connections import Connections, FlowEvent, least_mss_bytes, scales_of
from fabric_app.paths import UNKNOWN_PORT
from flowdb.flow import FiveTuple, Flow, FlowState, Hop
from openflow_ext.wire import SCALE_UNKNOWN, CloseReason, FlowKind, FlowRecord

GRACE_NS = 1_000_000_000
_LARGEST = 2**63 - 1
"""SQL's largest integer. No time in nanoseconds and no number of bytes comes near it."""

PathBySeen = Callable[[FiveTuple, Mapping[int, int]], tuple[Hop, ...]]
"""The path of a flow from the topology and the ports by which it leaves some switches (dpid to port)."""

PathOfHosts = Callable[[FiveTuple], tuple[Hop, ...]]
"""The path of a flow from the topology alone; empty if there is none or a host is unknown."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A contradiction in a report, and how it is resolved, for the log."""

    text: str


class Reports:
    """The reports of the flows in ``connections``. ``doubts``: the number of contradictions.

    ``_joined``: the switches to which a flow was led and that have not reported it. ``_doubted``: of flows
    with a contradiction, the topology's path at that time.
    """

    def __init__(self, connections: Connections, path_of: PathBySeen, path_of_hosts: PathOfHosts) -> None:
        self.doubts = 0
        self._connections = connections
        self._path_of = path_of
        self._path_of_hosts = path_of_hosts
        self._doubted: dict[int, tuple[Hop, ...]] = {}
        self._seen: dict[int, dict[int, int]] = {}
        self._led_ns: dict[int, int] = {}
        self._joined: dict[int, set[int]] = {}
        self._unnamed: dict[int, dict[int, FiveTuple]] = {}
        self._missed: set[int] = set()

    def call_roll(self, dpid: int, now_ns: int) -> None:
        """A switch is asked for its flows: it should name the flows known to cross it. O(n) in all flows."""
        self._unnamed[dpid] = {
            flow.id: flow.key
            for flow in self._connections
            if flow.opened_ns < now_ns - GRACE_NS
            and flow.hop_at(dpid)
            and dpid not in self._joined.get(flow.id, ())
        }

    def roll_called(self, dpid: int) -> list[FlowEvent]:
        """A switch has named all its flows."""
        for flow_id in self._unnamed.get(dpid, ()):
            self._missed.add(flow_id)
            self._seen.get(flow_id, {}).pop(dpid, None)
        return self.roll_not_called(dpid)

    def roll_not_called(self, dpid: int) -> list[FlowEvent]:
        """A switch will not name its flows: flows that other switches missed no longer wait for it."""
        events = []
        for flow_id, key in self._unnamed.pop(dpid, {}).items():
            flow = self._connections.get(key)
            if flow and flow.id == flow_id and self._is_missing(flow):
                events += self._connections.close(key, "missing", flow.last_active_ns or flow.opened_ns, dpid)
        return events

    def no_reports(self, dpid: int) -> list[FlowEvent]:
        """A switch will send no reports: nothing waits for it. Its next roll call names its flows again."""
        for seen in self._seen.values():
            seen.pop(dpid, None)
        return self.roll_not_called(dpid)

    def _is_missing(self, flow: Flow) -> bool:
        """Whether a switch missed the flow, no switch has named it, and no answer is outstanding."""
        awaited = any(flow.id in self._unnamed.get(hop.dpid, ()) for hop in flow.path)
        return flow.id in self._missed and not self._seen.get(flow.id) and not awaited

    def on_record(self, dpid: int, record: FlowRecord, now_ns: int) -> list[FlowEvent | Doubt]:
        """One record of a report of the switch ``dpid``."""
        key = FiveTuple(str(record.src), str(record.dst), record.src_port, record.dst_port)
        if max(record.first_ns, record.last_ns, record.sent_bytes) > _LARGEST:
            return [*self._doubt(dpid, key, "with an impossible time or number of bytes: it is dropped")]
        if max(record.first_ns, record.last_ns) > now_ns:
            record = record._replace(
                first_ns=min(record.first_ns, now_ns), last_ns=min(record.last_ns, now_ns)
            )
        if record.kind is FlowKind.CLOSED:
            return [*self._on_closed(dpid, key, record)]
        flow = self._connections.get(key)
        if flow is None:
            return self._open(dpid, key, record)
        seen = self._seen.setdefault(flow.id, {})
        self._unnamed.get(dpid, {}).pop(flow.id, None)
        if record.kind is FlowKind.OPENED and dpid in seen and record.first_ns > flow.opened_ns + GRACE_NS:
            closed = self._connections.close(key, "replaced", record.first_ns - 1, dpid)
            return [*closed, *self._open(dpid, key, record)]
        return self._merge(dpid, flow, record, now_ns)

    def led_elsewhere(self, flow: Flow, path: tuple[Hop, ...], now_ns: int) -> None:
        """A flow is led along ``path`` from now on. What switches saw of it elsewhere is old."""
        before, seen = {hop.dpid for hop in flow.path}, self._seen.pop(flow.id, {})
        self._seen[flow.id] = {hop.dpid: hop.out_port for hop in path if seen.get(hop.dpid) == hop.out_port}
        self._joined[flow.id] = {hop.dpid for hop in path} - (before - self._joined.get(flow.id, set()))
        self._led_ns[flow.id] = now_ns
        self._doubted.pop(flow.id, None)

    def forget(self, flow: Flow) -> None:
        """A flow closed."""
        self._seen.pop(flow.id, None)
        self._led_ns.pop(flow.id, None)
        self._joined.pop(flow.id, None)
        self._doubted.pop(flow.id, None)
        self._missed.discard(flow.id)

    def _open(self, dpid: int, key: FiveTuple, record: FlowRecord) -> list[FlowEvent | Doubt]:
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
            record.first_ns,
            least_mss_bytes(key, record.mss_src, record.mss_dst),
            receiver,
            sender,
            record.handshake_rtt_us or None,
        )
        if record.kind is not FlowKind.OPENED:
            flow = flow.with_report(record.sent_bytes, record.last_ns, _state(record))
        events: list[FlowEvent | Doubt] = [*self._connections.open(flow, dpid)]
        if not events:
            return []
        if receiver is None:
            events += self._doubt(
                dpid, key, "without its handshake: its scale is unknown, so it is slowed last"
            )
        self._seen[flow.id] = seen
        back = self._connections.get(key.reverse)
        if back and (path := _entered(back.path, flow)) != back.path:
            events += self._connections.reroute(back, path)
        return events

    def _path(self, key: FiveTuple, seen: Mapping[int, int]) -> tuple[Hop, ...]:
        return _entered(self._path_of(key, seen), self._connections.get(key.reverse))

    def _has_moved(self, dpid: int, flow: Flow, record: FlowRecord) -> bool:
        """Whether a host of a flow has moved: a report agrees with the topology, but not with the known path.

        If it agrees with both, the topology's path must be a part of the known one. The path of a doubted
        flow is put together from contradicting reports. There the topology must have changed since the doubt.
        """
        if record.last_ns < self._led_ns.get(flow.id, 0) + GRACE_NS:
            return False
        path = self._path_of_hosts(flow.key)
        if path == self._doubted.get(flow.id, flow.path) or not _is_on_path(path, dpid, record):
            return False
        if flow.id in self._doubted or not _is_on_path(flow.path, dpid, record):
            return True
        return {hop.port for hop in path} < {hop.port for hop in flow.path}

    def _merge(self, dpid: int, flow: Flow, record: FlowRecord, now_ns: int) -> list[FlowEvent | Doubt]:
        after = flow
        doubts: list[Doubt] = []
        if self._has_moved(dpid, flow, record):
            after = replace(flow, path=self._path_of_hosts(flow.key))
            self.led_elsewhere(flow, after.path, now_ns)
        if joined := self._joined.get(flow.id):
            joined.discard(dpid)
        seen, contradicted = self._seen[flow.id], not _is_on_path(after.path, dpid, record)
        if contradicted and record.last_ns < self._led_ns.get(flow.id, 0) + GRACE_NS:
            return []
        if seen.get(dpid) != record.out_port:
            seen[dpid] = record.out_port
            if contradicted:
                self._doubted[flow.id] = self._path_of_hosts(flow.key)
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
                    dpid, flow.key, "with another MSS or scale than the first report, which holds"
                )
        elif dpid == _first_that_reports(after.path, seen):
            after = after.with_report(record.sent_bytes, record.last_ns, _state(record))
        return [*(self._connections.change(after) if after != flow else ()), *doubts]

    def _doubt(self, dpid: int, key: FiveTuple, what: str) -> list[Doubt]:
        self.doubts += 1
        return [Doubt(f"switch {dpid:016x} reports flow {key} {what}")]

    def _on_closed(self, dpid: int, key: FiveTuple, record: FlowRecord) -> list[FlowEvent]:
        flow = self._connections.get(key)
        if flow is None:
            self._connections.note_end(key, record.last_ns, dpid)
            return []
        if record.last_ns < flow.opened_ns:
            return []
        if record.reason is CloseReason.RST:
            last = self._last_bytes(dpid, flow, record)
            return [*last, *self._connections.end(key, "rst", record.last_ns, dpid)]
        if record.reason is CloseReason.FIN:
            last = self._last_bytes(dpid, flow, record)
            return [*last, *self._connections.close(key, "fin", record.last_ns, dpid)]
        if not _is_on_path(flow.path, dpid, record):
            return []
        seen = self._seen.get(flow.id, {})
        seen.pop(dpid, None)
        return [] if seen else self._connections.close(key, "silent", record.last_ns, dpid)

    def _last_bytes(self, dpid: int, flow: Flow, record: FlowRecord) -> list[FlowEvent]:
        """The bytes of a flow that ends: a flow of less than a second has no other report of them."""
        if dpid != _first_that_reports(flow.path, self._seen.get(flow.id, {})):
            return []
        last = flow.with_report(record.sent_bytes, record.last_ns, flow.state)
        return self._connections.change(last) if last != flow else []


def _is_on_path(path: tuple[Hop, ...], dpid: int, record: FlowRecord) -> bool:
    return any((hop.dpid, hop.out_port) == (dpid, record.out_port) for hop in path)


def _entered(path: tuple[Hop, ...], back: Flow | None) -> tuple[Hop, ...]:
    """Fills an unknown input port with the output port of the connection's other direction."""
    if not path or path[0].in_port != UNKNOWN_PORT or back is None or not back.path:
        return path
    last = back.path[-1]
    return (replace(path[0], in_port=last.out_port), *path[1:]) if last.dpid == path[0].dpid else path


def _first_that_reports(path: tuple[Hop, ...], seen: Mapping[int, int]) -> int | None:
    return next((hop.dpid for hop in path if hop.dpid in seen), None)


def _state(record: FlowRecord) -> FlowState:
    return FlowState.IDLE if record.kind is FlowKind.IDLE else FlowState.ACTIVE


def _scales(record: FlowRecord) -> tuple[int | None, int | None]:
    """The receiver's and the sender's scale; None if the handshake was not seen."""
    if not record.mss_src and not record.mss_dst:
        return None, None
    offered = (None if s == SCALE_UNKNOWN else s for s in (record.scale_dst, record.scale_src))
    return scales_of(*offered)
