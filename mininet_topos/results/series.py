"""The flows and the queue of a run over time, from its raw records."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mininet_topos.records.raw_records import Record, span_ns

Numbers = NDArray[np.float64]
SETTLING = 0.25
"""The share of a run, at its start, in which long flows are still converging to their rates."""


@dataclass(frozen=True, slots=True)
class FlowSeries:
    """The samples of one flow, about ten a second, as its sender knows it (TCP_INFO), and its end.

    ``acked_bytes`` are what the receiver has: with selective acknowledgements, also behind a lost segment. A
    figure that the flow's transport does not have is NaN: DCUDP has no window.
    """

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
        """The rate since the previous sample; 0 for the first sample."""
        rates = 8e3 * np.diff(self.acked_bytes) / np.maximum(np.diff(self.time_ns), 1)
        return np.concatenate(([0.0], rates))

    def mean_mbps(self, since_ns: float, until_ns: float) -> float:
        """Return the mean goodput between two times. Before and after its samples, a flow has a rate of 0."""
        if until_ns <= since_ns:
            return 0.0
        before, after = np.interp((since_ns, until_ns), self.time_ns, self.acked_bytes)
        return float(8e3 * (after - before) / (until_ns - since_ns))

    def mean_cwnd_kb(self, since_ns: float, until_ns: float) -> float:
        """Return the mean congestion window between two times, in KB; 0 if there is no sample."""
        inside = self.cwnd_bytes[(self.time_ns >= since_ns) & (self.time_ns <= until_ns)]
        return float(inside.mean()) / 1000 if len(inside) else 0.0


def flow_series(records: Sequence[Record], transports: Mapping[str, str]) -> list[FlowSeries]:
    """Return every sampled flow, ordered by start. `transports` has the transport of each host.

    The record of a complete flow is the last point of its series: most bytes of a short flow are acknowledged
    after its last sample.
    """
    by_flow: dict[tuple[str, str, int], list[Record]] = {}
    ends = {(record["host"], record["flow"]): record for record in records if record["event"] == "flow"}
    for record in records:
        if record["event"] in ("connected", "sample") and "flow" in record:
            by_flow.setdefault((record["host"], record["peer"], record["flow"]), []).append(record)
    for (host, _, number), samples in by_flow.items():
        if not samples[0]["endless"] and (host, number) in ends:
            samples.append(ends[host, number])
    return [_series(host, transports.get(host, ""), samples) for (host, _, _), samples in by_flow.items()]


def _series(host: str, transport: str, samples: list[Record]) -> FlowSeries:
    def column(name: str) -> Numbers:
        return np.array([record.get(name, np.nan) for record in samples], dtype=float)

    return FlowSeries(
        host,
        transport,
        samples[0]["endless"],
        column("t_ns"),
        column("bytes_acked") + np.nan_to_num(column("sacked") * column("mss")),
        column("cwnd") * column("mss"),
        column("rtt_us") / 1000,
        column("delivered_ce"),
    )


def settled_span_ns(records: list[Record]) -> tuple[float, float]:
    """Return start and end of the part of a run in which its long flows have settled."""
    start_ns, end_ns = span_ns(records)
    return start_ns + SETTLING * (end_ns - start_ns), end_ns


def goodput_by_transport(flows: Sequence[FlowSeries], since_ns: float, until_ns: float) -> dict[str, float]:
    """Return the sum of the flows' rates in Mbit/s for each transport."""
    found: dict[str, float] = {}
    for flow in flows:
        found[flow.transport] = found.get(flow.transport, 0.0) + flow.mean_mbps(since_ns, until_ns)
    return {name: round(rate, 2) for name, rate in found.items()}


def fairness(rates: Sequence[float]) -> float | None:
    """Return Jain's fairness index of rates: 1 if all are equal; None if nothing was sent."""
    squares = sum(rate * rate for rate in rates)
    return round(sum(rates) ** 2 / (len(rates) * squares), 3) if squares else None


def read_queue(run: Path) -> tuple[Numbers, Numbers, Numbers]:
    """Return the bottleneck's queue in each ms of a run: time since its start in ms, packets, bytes."""
    with open(run / "queue.csv") as file:
        rows = [(row["time_ms"], row["pkts_max"], row["bytes_max"]) for row in csv.DictReader(file)]
    table = np.array(rows, dtype=float).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def queue_between(run: Path, record: Record, since_ns: float, until_ns: float) -> Numbers:
    """Return the queue's length in packets in each ms between two times."""
    time_ms, pkts, _ = read_queue(run)
    at_ns = record["trace_start_ns"] + time_ms * 1e6
    inside: Numbers = pkts[(at_ns >= since_ns) & (at_ns <= until_ns)]
    return inside
