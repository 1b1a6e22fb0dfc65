"""The figures of several roots at once: queues by layer, and the flows that lost a segment. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from mininet_topos.records.raw_records import Record, querying_ns


def layer_figures(record: Record, records: list[Record]) -> dict[str, dict[str, Any]]:
    """Return the queues towards the roots by layer, as shares of their limits; empty if none was measured.

    ``mean``: over the time in which a query was under way, and over the ``ports`` of the layer.
    ``busiest``: the mean of the port where it is greatest. ``max``: the greatest length of any port.
    """
    took_ns = querying_ns(records)
    found: dict[str, dict[str, Any]] = {}
    for layer, ports in record.get("layers", {}).items():
        means = [port["byte_ns"] / port["limit_bytes"] / took_ns for port in ports] if took_ns else []
        if means:
            found[layer] = {
                "ports": len(ports),
                "mean": round(fmean(means), 4),
                "busiest": round(max(means), 4),
                "max": round(max(port["bytes_max"] / port["limit_bytes"] for port in ports), 4),
            }
    return found


def response_flows(records: Sequence[Record]) -> dict[str, int]:
    """Return the number of the workers' connections, and how many of them sent a segment again.

    A sender may repeat a segment that was not lost, so `lossy_flows` may be more than the flows with a loss.
    """
    ended = [entry for entry in records if entry["event"] == "closed" and "flow" not in entry]
    lossy = sum(entry.get("total_retrans", 0) > 0 for entry in ended)
    return {"response_flows": len(ended), "lossy_flows": lossy}
