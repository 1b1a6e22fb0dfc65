"""What a run's flows and its queue did over time, from its raw records."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mininet_topos.fidelity import span_ns
from mininet_topos.results.records import Record

Numbers = NDArray[np.float64]
SETTLED = 0.25
"""The part of a run at its begin in which long flows are still finding their rate."""


@dataclass(frozen=True, slots=True)
class FlowSeries:
    """One flow: its samples, about ten a second, as its sender has them (TCP_INFO)."""

    host: str
    transport: str
    endless: bool
    time_ns: Numbers
    acked_bytes: Numbers
    cwnd_bytes: Numbers
    rtt_ms: Numbers
    marked_pkts: Numbers

    @property
    def goodput_mbps(self) -> Numbers:
        """The rate since the sample before; the first has none and says 0."""
        rates = 8e3 * np.diff(self.acked_bytes) / np.maximum(np.diff(self.time_ns), 1)
        return np.concatenate(([0.0], rates))

    def mean_mbps(self, since_ns: float, until_ns: float) -> float:
        """The mean goodput between two times; before and after its samples a flow gets nothing."""
        if until_ns <= since_ns:
            return 0.0
        before, after = np.interp((since_ns, until_ns), self.time_ns, self.acked_bytes)
        return float(8e3 * (after - before) / (until_ns - since_ns))

    def mean_cwnd_kb(self, since_ns: float, until_ns: float) -> float:
        """The mean of its congestion window between two times, in KB; 0 where it has no sample there."""
        inside = self.cwnd_bytes[(self.time_ns >= since_ns) & (self.time_ns <= until_ns)]
        return float(inside.mean()) / 1000 if len(inside) else 0.0


def flow_series(records: Sequence[Record], transports: Mapping[str, str]) -> list[FlowSeries]:
    """Every flow that was sampled, in the order of their begin. `transports`: of each host, by name."""
    told: dict[tuple[str, str, int], list[Record]] = {}
    for record in records:
        if record["event"] in ("connected", "sample") and "flow" in record:
            told.setdefault((record["host"], record["peer"], record["flow"]), []).append(record)
    return [_series(host, transports.get(host, ""), some) for (host, _, _), some in told.items()]


def _series(host: str, transport: str, some: list[Record]) -> FlowSeries:
    def column(name: str) -> Numbers:
        return np.array([record[name] for record in some], dtype=float)

    return FlowSeries(
        host,
        transport,
        some[0]["endless"],
        column("t_ns"),
        column("bytes_acked"),
        column("cwnd") * column("mss"),
        column("rtt_us") / 1000,
        column("delivered_ce"),
    )


def settled_span_ns(records: list[Record]) -> tuple[float, float]:
    """The part of a run in which its long flows have settled."""
    start_ns, end_ns = span_ns(records)
    return start_ns + SETTLED * (end_ns - start_ns), end_ns


def goodput_by_transport(flows: Sequence[FlowSeries], since_ns: float, until_ns: float) -> dict[str, float]:
    """Mbit/s of all flows of a transport together."""
    found: dict[str, float] = {}
    for flow in flows:
        found[flow.transport] = found.get(flow.transport, 0.0) + flow.mean_mbps(since_ns, until_ns)
    return {name: round(rate, 2) for name, rate in found.items()}


def fairness(rates: Sequence[float]) -> float | None:
    """Jain's index of some rates: 1 where all are the same; None where nothing was sent."""
    squares = sum(rate * rate for rate in rates)
    return round(sum(rates) ** 2 / (len(rates) * squares), 3) if squares else None


def read_queue(run: Path) -> tuple[Numbers, Numbers, Numbers]:
    """The bottleneck's queue in each millisecond of a run: time in ms since its start, packets, bytes."""
    with open(run / "queue.csv") as file:
        rows = [(row["time_ms"], row["pkts_max"], row["bytes_max"]) for row in csv.DictReader(file)]
    table = np.array(rows, dtype=float).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def queue_between(run: Path, record: Record, since_ns: float, until_ns: float) -> Numbers:
    """The queue's length in packets in each millisecond between two times."""
    time_ms, pkts, _ = read_queue(run)
    at_ns = record["trace_start_ns"] + time_ms * 1e6
    return pkts[(at_ns >= since_ns) & (at_ns <= until_ns)]
