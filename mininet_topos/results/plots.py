"""The plots of a result folder, as SVG and PNG: query completion times, queues, and long flows."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from mininet_topos.experiments.experiment import Experiment
from mininet_topos.experiments.schemes import style_of
from mininet_topos.records.raw_records import goodput_points, queries, query_span_ns, read_run
from mininet_topos.results.comparisons import medians, repeated
from mininet_topos.results.flow_plots import completion_times, flows_over_time, queue_distribution
from mininet_topos.results.median_plots import median_plot
from mininet_topos.results.panels import curve_label, legend_below, panels
from mininet_topos.results.summary import Row, load_experiment

STYLE = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.hashsalt": "weir",
}
SHOWN_QUERIES = 3
MOST_PANELS = 4
"""With more cases than these, the plots show times by number of roots or workers, and no distribution."""


@mpl.rc_context(STYLE)
def plot(folder: Path, rows: list[Row]) -> list[Path]:
    """Draw all plots into `plots/` of a result folder, and return the SVG files in the report's order.

    Plots over time show the first repeat.
    """
    experiment = load_experiment(folder)
    (folder / "plots").mkdir(exist_ok=True)
    by_case: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_case[row["case"]].append(row)
    asked = {case: some for case, some in by_case.items() if some[0]["queries"]}
    sampled = {case: some for case, some in by_case.items() if some[0]["goodput_mbps"] is not None}
    planned = {case: some for case, some in by_case.items() if some[0]["flows_done"]}
    drawn = [("query_times", query_times(folder, asked))] if asked and len(asked) <= MOST_PANELS else []
    if repeated(rows) and (found := [row for row in medians(rows) if row["median"] is not None]):
        drawn.append(("medians", median_plot(found)))
    valid = [row for row in rows if row["valid"]]
    if valid and (swept := _swept([some[0] for some in asked.values()])):
        drawn.append((swept, by_number_of(swept, folder, valid)))
    if len(asked) <= MOST_PANELS:
        drawn += [
            (f"queue_{case}", queue_over_time(folder, experiment, _first_repeat(some)))
            for case, some in asked.items()
        ]
    drawn += [
        (f"flows_{case}", flows_over_time(folder, experiment, _first_repeat(some)))
        for case, some in sampled.items()
    ]
    if planned:
        drawn.append(("completion_times", completion_times(folder, planned)))
    if sampled:
        drawn.append(("queue_distribution", queue_distribution(folder, sampled)))
    first = _first_repeat(rows)
    if any(row["background_mbps"] for row in first):
        drawn.append(("background", background(folder, first)))
    return [save(figure, folder / "plots" / name) for name, figure in drawn]


def _first_repeat(rows: list[Row]) -> list[Row]:
    """Return the rows of the first repeat that there is: a panel for every repeat would be too many."""
    first = min(row["repeat"] for row in rows)
    return [row for row in rows if row["repeat"] == first]


def save(figure: Figure, stem: Path) -> Path:
    """Write a figure as PNG and SVG, and return the path of the SVG."""
    figure.savefig(stem.with_suffix(".png"), dpi=200)
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    return stem.with_suffix(".svg")


def _times_ms(folder: Path, row: Row) -> list[float]:
    _, records = read_run(folder / "raw" / row["run"])
    return [query["qct_ms"] for query in queries(records)]


def query_times(folder: Path, by_case: dict[str, list[Row]]) -> Figure:
    """Draw the distribution of the query completion times: a panel for each case, a curve for each scheme."""
    figure, axes = panels(len(by_case))
    for axis, (case, rows) in zip(axes, by_case.items(), strict=True):
        for row in rows:
            style = style_of(row["scheme"])
            times = sorted(_times_ms(folder, row))
            if not times:
                continue  # the run is void: no query was completed
            axis.step(
                [times[0], *times],
                np.linspace(0, 1, len(times) + 1),
                where="post",
                color=style.colour,
                linestyle=style.line,
                label=curve_label(row),
            )
        axis.axvline(rows[0]["ideal_ms"], color="black", linewidth=0.8, linestyle=":", label="ideal")
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_title(f"{case}: {rows[0]['title']}", fontsize=8, parse_math=False)
        axis.set_xlabel("query completion time (ms, log scale)")
        axis.set_ylim(0, 1.02)
    legend_below(figure, axes)
    axes[0].set_ylabel("share of the queries")
    return figure


def _swept(rows: list[Row]) -> str:
    """Return of what the cases (one row of each) have different numbers: roots or workers; empty: of neither.

    Cases with different numbers of long flows are not drawn this way.
    """
    if len({row["background"] for row in rows}) != 1:
        return ""
    return next((name for name in ("roots", "workers") if len({row[name] for row in rows}) > 1), "")


def by_number_of(swept: str, folder: Path, rows: list[Row]) -> Figure:
    """Draw the mean query completion time by number of roots or workers: a panel for each size of a response.

    The bars show the 10th and the 90th percentile of all queries of all rows, which are of valid runs.
    """
    sizes = sorted({row["size_bytes"] for row in rows if row["queries"]})
    totals = {row["size_bytes"] * row["workers"] for row in rows if row["queries"]}
    together = [sizes] if len(totals) == 1 else [[size] for size in sizes]  # one total: one panel
    figure, axes = panels(len(together))
    for axis, some in zip(axes, together, strict=True):
        inside = [row for row in rows if row["queries"] and row["size_bytes"] in some]
        for scheme in dict.fromkeys(row["scheme"] for row in inside):
            style = style_of(scheme)
            times: dict[int, list[float]] = defaultdict(list)
            for row in inside:
                if row["scheme"] == scheme:
                    times[row[swept]] += _times_ms(folder, row)
            counts = sorted(count for count in times if times[count])
            means = np.array([np.mean(times[count]) for count in counts])
            ends = np.array([np.percentile(times[count], (10, 90)) for count in counts]).reshape(-1, 2)
            spread = np.abs(ends.T - means).clip(min=0)
            axis.errorbar(
                *(counts, means, spread),
                color=style.colour,
                linestyle=style.line,
                marker=style.marker,
                markersize=3,
                capsize=2,
                label=style.label,
            )
        ideal = {row[swept]: row["ideal_ms"] for row in inside}
        axis.plot(
            sorted(ideal), [ideal[count] for count in sorted(ideal)], "k:", linewidth=0.8, label="ideal"
        )
        axis.set_title(
            "the same total for all" if len(some) > 1 else f"{some[0] / 1000:g} KB per worker",
            fontsize=8,
        )
        axis.set_xlabel(swept)
        axis.set_ylim(bottom=0)
    axes[0].set_ylabel("query completion time (ms)")
    axes[0].legend(fontsize=7)
    return figure


def queue_over_time(folder: Path, experiment: Experiment, rows: list[Row]) -> Figure:
    """Draw the bottleneck's queue during the first queries of a case: a panel for each scheme."""
    figure, axes = panels(len(rows), sharey=True)
    for axis, row in zip(axes, rows, strict=True):
        style = style_of(row["scheme"])
        time_s, queue_kb = _queue_trace(folder, row)
        axis.fill_between(time_s, queue_kb, color=style.colour, alpha=0.25, linewidth=0)
        axis.plot(time_s, queue_kb, color=style.colour, linewidth=0.6)
        axis.axhline(experiment.queue_bytes / 1000, color="black", linewidth=0.8, linestyle=":")
        axis.set_title(f"{row['case']}: {style.label}, {row['drops']} drops in all", fontsize=8)
        axis.set_xlabel("time since the first query (s)")
        axis.set_xlim(time_s[0], time_s[-1])
    axes[0].set_ylabel("queue (KB); dotted: its limit")
    axes[0].set_ylim(0, experiment.queue_bytes / 1000 * 1.08)
    return figure


def _queue_trace(folder: Path, row: Row) -> tuple[np.ndarray, np.ndarray]:
    """Return time (s since the first query) and queue (KB), around the first SHOWN_QUERIES queries."""
    run = folder / "raw" / row["run"]
    record, records = read_run(run)
    start_ns, end_ns = query_span_ns(queries(records)[:SHOWN_QUERIES])
    origin_ms = (start_ns - record["trace_start_ns"]) / 1e6
    with open(run / "queue.csv") as file:
        trace = np.array([(int(line["time_ms"]), int(line["bytes_max"])) for line in csv.DictReader(file)])
    since_ms = trace[:, 0] - origin_ms
    inside = (since_ms >= -50) & (since_ms <= (end_ns - start_ns) / 1e6 + 100)
    return since_ms[inside] / 1000, trace[inside, 1] / 1000


def background(folder: Path, rows: list[Row]) -> Figure:
    """Draw the long flows' goodput over time: a panel for each scheme; the time of the queries is shaded."""
    some = [row for row in rows if row["background_mbps"]]
    figure, axes = panels(len(some), sharey=True)
    for axis, row in zip(axes, some, strict=True):
        style = style_of(row["scheme"])
        _, records = read_run(folder / "raw" / row["run"])
        points = np.array(goodput_points(records))
        start_ns, end_ns = query_span_ns(records)
        rate_mbps = 8e3 * np.diff(points[:, 1]) / np.diff(points[:, 0])
        axis.axvspan(0, (end_ns - start_ns) / 1e9, color="black", alpha=0.06, linewidth=0)
        axis.plot((points[1:, 0] - start_ns) / 1e9, rate_mbps, color=style.colour, linewidth=0.8)
        axis.set_title(f"{row['case']}: {style.label}", fontsize=8)
        axis.set_xlabel("time since the first query (s)")
    axes[0].set_ylabel("long flows' goodput (Mbit/s)")
    axes[0].set_ylim(bottom=0)
    return figure
