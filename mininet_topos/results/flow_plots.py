"""Plots of flows: goodput, congestion window, RTT and queue over time, and distributions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mininet_topos.experiments.baselines import BASELINES
from mininet_topos.experiments.experiment import Experiment
from mininet_topos.experiments.schemes import style_of
from mininet_topos.records.raw_records import read_run, span_ns
from mininet_topos.results.panels import COLUMN_IN, curve_label, legend_below, panels
from mininet_topos.results.series import (
    FlowSeries,
    Numbers,
    flow_series,
    queue_between,
    read_queue,
    settled_span_ns,
)
from mininet_topos.results.summary import Row

ROW_IN = 1.5
MOST_LINES = 12
GRID_NS = 1e8


def flows_over_time(folder: Path, experiment: Experiment, rows: list[Row]) -> Figure:
    """Draw goodput, cwnd and RTT of the flows, and the queue: a column for each run, one run of each scheme.

    A thin line is one flow. A thick line is the sum over the flows of a kind or, for the RTT, their median.
    If planned flows run beside long flows, the long flows are dashed.
    """
    figure = Figure(figsize=(COLUMN_IN * len(rows), 4 * ROW_IN), layout="constrained")
    grid = figure.subplots(4, len(rows), squeeze=False, sharex="col", sharey="row")
    for column, row in enumerate(rows):
        run = folder / "raw" / row["run"]
        record, records = read_run(run)
        flows = flow_series(records, record["transports"])
        start_ns, end_ns = span_ns(records)
        axes = list(grid[:, column])
        _draw_flows(axes[:3], flows, row["scheme"], start_ns)
        _draw_queue(
            axes[3], run, record["trace_start_ns"] - start_ns, (end_ns - start_ns) / 1e9, row, experiment
        )
        axes[0].set_title(f"{row['case']}: {curve_label(row)}", fontsize=8)
        axes[3].set_xlabel("time (s)")
        if len({(flow.transport, flow.endless) for flow in flows}) > 1:
            axes[0].legend(fontsize=7)
    for axis, label in zip(
        grid[:, 0], ("goodput (Mbit/s)", "cwnd (KB)", "RTT (ms)", "queue (packets)"), strict=True
    ):
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
    return figure


def _draw_flows(axes: list[Axes], flows: list[FlowSeries], scheme: str, start_ns: float) -> None:
    together: dict[tuple[str, bool], list[FlowSeries]] = {}
    for flow in flows:
        together.setdefault((flow.transport, flow.endless), []).append(flow)
    several = len({flow.transport for flow in flows}) > 1
    mixed = len({flow.endless for flow in flows}) > 1
    for (transport, endless), some in together.items():
        style = BASELINES[transport].style if several and transport in BASELINES else style_of(scheme)
        kind = (", long" if endless else ", planned") if mixed else ""
        line_style = "--" if mixed and endless else "-"
        columns = [(flow.goodput_mbps, flow.cwnd_bytes / 1000, flow.rtt_ms) for flow in some]
        for index, axis in enumerate(axes):
            if 1 < len(some) <= MOST_LINES:
                for flow, values in zip(some, columns, strict=True):
                    axis.plot(
                        (flow.time_ns - start_ns) / 1e9,
                        values[index],
                        color=style.colour,
                        linewidth=0.4,
                        alpha=0.6,
                    )
            time_ns, merged = _merged([(f.time_ns, c[index]) for f, c in zip(some, columns, strict=True)])
            line = np.nanmedian(merged, axis=0) if index == 2 else np.nansum(merged, axis=0)
            axis.plot(
                (time_ns - start_ns) / 1e9,
                line,
                color=style.colour,
                linestyle=line_style,
                linewidth=1.1,
                label=style.label + kind,
            )


def _merged(series: list[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    """Return several series on one grid of tenths of a second: a row for each, NaN without a sample."""
    first = min(times[0] for times, _ in series)
    last = max(times[-1] for times, _ in series)
    grid = np.arange(first, last + GRID_NS, GRID_NS)
    rows = [np.interp(grid, times, values, left=np.nan, right=np.nan) for times, values in series]
    merged = np.array(rows)
    sampled = ~np.isnan(merged).all(axis=0)
    return grid[sampled], merged[:, sampled]


def _draw_queue(
    axis: Axes, run: Path, offset_ns: float, until_s: float, row: Row, experiment: Experiment
) -> None:
    time_ms, pkts, _ = read_queue(run)
    time_s = time_ms / 1000 + offset_ns / 1e9
    inside = (time_s >= 0) & (time_s <= until_s)
    axis.plot(time_s[inside], pkts[inside], color=style_of(row["scheme"]).colour, linewidth=0.4)
    axis.axhline(experiment.queue_pkts, color="black", linewidth=0.8, linestyle=":")
    if row["mark_pkts"]:
        axis.axhline(row["mark_pkts"], color="black", linewidth=0.8, linestyle="--")


def queue_distribution(folder: Path, by_case: dict[str, list[Row]]) -> Figure:
    """Draw the distribution of the queue length over time: a panel for each case, a curve for each run."""
    figure, axes = panels(len(by_case))
    for axis, (case, rows) in zip(axes, by_case.items(), strict=True):
        for row in rows:
            run = folder / "raw" / row["run"]
            record, records = read_run(run)
            lengths = np.sort(queue_between(run, record, *settled_span_ns(records)))
            style = style_of(row["scheme"])
            shares = np.linspace(0, 1, len(lengths), endpoint=False)
            axis.step(lengths, shares, color=style.colour, linestyle=style.line, label=curve_label(row))
        axis.set_title(f"{case}: {rows[0]['title']}", fontsize=8, parse_math=False)
        axis.set_xlabel("queue (packets)")
        axis.set_ylim(0, 1.02)
    axes[0].set_ylabel("share of the time")
    legend_below(figure, axes)
    return figure


def completion_times(folder: Path, by_case: dict[str, list[Row]]) -> Figure:
    """Draw the distribution of flow completion times: a panel for each case, a curve for each run.

    The curve of a run whose planned flows have not all ended does not reach 1.
    """
    figure, axes = panels(len(by_case))
    for axis, (case, rows) in zip(axes, by_case.items(), strict=True):
        for row in rows:
            _, records = read_run(folder / "raw" / row["run"])
            times = sorted(entry["fct_ms"] for entry in records if entry["event"] == "flow")
            style = style_of(row["scheme"])
            axis.step(
                times,
                np.arange(1, len(times) + 1) / max(row["flows_planned"], 1),
                color=style.colour,
                linestyle=style.line,
                label=curve_label(row),
            )
        axis.set_xscale("log")
        axis.set_title(f"{case}: {rows[0]['title']}", fontsize=8, parse_math=False)
        axis.set_xlabel("flow completion time (ms, log scale)")
        axis.set_ylim(0, 1.02)
    axes[0].set_ylabel("share of the flows")
    legend_below(figure, axes)
    return figure
