"""Changes of a flow: its own row and the rows of its path's hops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from flowdb.flow import FiveTuple, Flow, FlowState, Hop
from flowdb.models import FlowRow, HopRow
from flowdb.writing import changes
from flowdb.writing.changes import Change, Packed, make_change

_OPENED = "a flow and its hops"
"""Stands in place of a table's name in the plain values of FlowOpened."""


class FlowOpened(Change):
    """A flow to insert with its hops. Its rows are built when they are written, not when the flow opens."""

    __slots__ = ("_flow",)

    def __init__(self, flow: Flow, dpid: int | None = None) -> None:
        super().__init__(FlowRow, (flow.id,), "insert", {}, dpid)
        self._flow = flow

    def single_rows(self) -> Iterator[Change]:
        flow = self._flow
        values = {
            "id": flow.id,
            "src": flow.key.src,
            "dst": flow.key.dst,
            "src_port": flow.key.src_port,
            "dst_port": flow.key.dst_port,
            "opened_ns": flow.opened_ns,
            "mss_bytes": flow.mss_bytes,
            **_mutable_columns(flow),
            **self.values,
        }
        yield Change(FlowRow, self.key, "insert", values)
        yield from (Change(HopRow, (flow.id, hop["position"]), "insert", hop) for hop in _hops(flow))

    def packed(self) -> Packed:
        flow = self._flow
        key = (flow.key.src, flow.key.dst, flow.key.src_port, flow.key.dst_port)
        path = tuple((hop.dpid, hop.in_port, hop.out_port) for hop in flow.path)
        return (
            _OPENED,
            flow.id,
            key,
            path,
            flow.opened_ns,
            flow.mss_bytes,
            tuple(_mutable_columns(flow).values()),
            self.dpid,
        )


def unpacked(packed: Packed) -> Change:
    """The change of which ``packed`` are the plain values."""
    if packed[0] != _OPENED:
        return changes.unpacked(packed)
    _, flow_id, key, path, opened_ns, mss_bytes, mutable, dpid = packed
    hops = tuple(Hop(*hop) for hop in path)
    flow = Flow(flow_id, FiveTuple(*key), hops, opened_ns, mss_bytes, *mutable)
    return FlowOpened(replace(flow, state=FlowState(flow.state)), dpid)


def changes_of_flow(before: Flow, flow: Flow, dpid: int | None = None) -> list[Change]:
    """The changes of rows that a flow's new values need, and its new path if that differs.

    ``dpid``: the switch that reported them.
    """
    rows = [make_change(FlowRow, "update", {"id": flow.id, **_mutable_columns(flow)}, dpid)]
    if flow.path != before.path:
        beyond = range(len(flow.path), len(before.path))
        rows += (make_change(HopRow, "merge", values, dpid) for values in _hops(flow))
        rows += (make_change(HopRow, "delete", {"flow_id": flow.id, "position": at}, dpid) for at in beyond)
    return rows


def _mutable_columns(flow: Flow) -> dict[str, Any]:
    """The columns that may change while a flow lives, in the order of Flow's fields."""
    return {
        "receiver_wscale": flow.receiver_wscale,
        "sender_wscale": flow.sender_wscale,
        "handshake_rtt_us": flow.handshake_rtt_us,
        "sent_bytes": flow.sent_bytes,
        "rate_bps": flow.rate_bps,
        "last_active_ns": flow.last_active_ns,
        "state": flow.state.value,
    }


def _hops(flow: Flow) -> list[dict[str, Any]]:
    return [
        {
            "flow_id": flow.id,
            "position": position,
            "dpid": hop.dpid,
            "in_port": hop.in_port,
            "out_port": hop.out_port,
        }
        for position, hop in enumerate(flow.path)
    ]
