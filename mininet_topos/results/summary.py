"""The summary: from raw records to the rows of `summary.json`, the source of tables, plots and report."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from mininet_topos.errors import BadExperiment
from mininet_topos.experiments.experiment import Case, Experiment
from mininet_topos.experiments.schemes import find
from mininet_topos.records.exposure import disturbances, exposure, horizon_ms, undisturbed
from mininet_topos.records.raw_records import Record, goodput_points, queries, query_span_ns, read_run
from mininet_topos.records.result_folder import (
    attempts,
    read_json,
    read_metadata,
    run_name,
    write_json,
)
from mininet_topos.results.racks import layer_figures, response_flows
from mininet_topos.results.series import (
    fairness,
    flow_series,
    goodput_by_transport,
    queue_between,
    settled_span_ns,
)
from mininet_topos.results.slowdown import slowdowns
from mininet_topos.workloads.trace import read_trace

PERCENTILES = {"p50": 50, "p95": 95, "p99": 99, "max": 100}
STEADY_S = 1.0
"""How long before and after the queries the long flows' rate is measured."""
RECOVERY_WINDOW_S = 0.3
RECOVERED = 0.9
RELEASED_AFTER_S, RELEASED_UNTIL_S = 0.05, 0.15
"""The time after the end of a planned flow in which the long flows' goodput is measured."""
NS_PER_S = 1e9
Row = dict[str, Any]
OLDER_ROW: Row = {
    "queries": 0,
    "roots": 1,
    "repeat": 1,
    "qct_ms_undisturbed": {},
    "disturbed": [],
    "exposure": {"span_s": 0.0, "stolen": None, "all_stalled": None, "one_stalled": None},
    "void_attempts": [],
    "slowdown": {},
    "layers": {},
    "switch_backlog": None,
    "sysctl": None,
    "version": None,
    "flows_planned": 0,
    "flows_done": 0,
}
"""The values of a row that an older version made; its `qct_ms` leaves `queries_left_out` queries out."""


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile: the least value that is not exceeded by `percent` of the values."""
    if not values:
        raise ValueError("no values")
    rank = max(1, -(-len(values) * percent // 100))
    return sorted(values)[int(rank) - 1]


def load_experiment(folder: Path) -> Experiment:
    """Return the experiment of a result folder. Raises BadExperiment."""
    return Experiment.from_json(read_metadata(folder)["experiment"])


def ended_attempts(folder: Path, experiment: Experiment) -> list[tuple[Case, int, list[Path]]]:
    """Return the attempts at each case, scheme and repeat, in their order, without missing runs."""
    found = []
    for case in experiment.cases:
        for scheme in experiment.schemes:
            for repeat in range(1, experiment.repeats + 1):
                if ended := attempts(folder / "raw", run_name(case, scheme, repeat)):
                    found.append((case, repeat, ended))
    return found


def failed_runs(folder: Path, experiment: Experiment) -> dict[str, list[str]]:
    """Return by its name each run whose ended attempts have all failed: the reason of each attempt."""
    found = {}
    for _, _, ended in ended_attempts(folder, experiment):
        records = [read_json(run / "run.json") for run in ended]
        if all(record.get("failed") for record in records):
            found[ended[0].name.rpartition("-")[0]] = [record["reasons"][0] for record in records]
    return found


def summarise(folder: Path) -> list[Row]:
    """Make `summary.json` from the raw records, and return its rows. Raises BadExperiment.

    A row has the figures of the last attempt that did not fail, and the reasons of every attempt that was
    void. A run has no row if each of its attempts failed.
    """
    experiment = load_experiment(folder)
    rows = []
    for case, repeat, ended in ended_attempts(folder, experiment):
        records = {run: read_json(run / "run.json") for run in ended}
        if shown := [run for run, record in records.items() if not record.get("failed")]:
            row = row_of(experiment, case, shown[-1])
            rows.append(row | {"repeat": repeat, "void_attempts": void_attempts(records.values())})
    write_json(folder / "summary.json", rows)
    return rows


def void_attempts(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return number and reasons of each attempt that was void, of the attempts' own records."""
    return [
        {"attempt": record["attempt"], "reasons": record["reasons"]}
        for record in records
        if not record["valid"]
    ]


def read_summary(folder: Path) -> list[Row]:
    """Return the rows that `summarise` has made. Raises BadExperiment.

    Rows of an older version have OLDER_ROW's values for what it did not record.
    """
    try:
        rows: list[Row] = json.loads((folder / "summary.json").read_text())
    except (OSError, ValueError) as error:
        raise BadExperiment(
            f"{folder} has no summary ({error}): run `weir lab summarise {folder}`"
        ) from error
    return [OLDER_ROW | row for row in rows]


def median_of(rows: Sequence[Row], case: str, scheme: str, path: str) -> float | None:
    """Return the median of a value over the valid repeats of a case under a scheme; None if none has it.

    `path` is the path of the value in a row, for example `drops` or `fct_ms.max`.
    """
    found = values_of(rows, case, scheme, path)
    return median(found) if found else None


def values_of(rows: Sequence[Row], case: str, scheme: str, path: str) -> list[float]:
    """Return a value of each valid repeat of a case under a scheme that has it. It may be infinite."""
    valid = [row for row in rows if (row["case"], row["scheme"], row["valid"]) == (case, scheme, True)]
    return [value for row in valid if (value := value_of(row, path)) is not None]


def value_of(row: Row, path: str) -> float | None:
    """Return a value of a row by its path, for example `fct_ms.max`; None if the row has none.

    It is infinite if it belongs to flows that did not end, or to long flows that did not recover.
    """
    found: Any = row
    *outer, last = path.split(".")
    for key in outer:
        found = found.get(key) if found else None
    if not found or last not in found:
        return None
    if found[last] is None:
        return math.inf if outer or (path == "recovery_s" and row.get("background_mbps")) else None
    return float(found[last])


def row_of(experiment: Experiment, case: Case, run: Path) -> Row:
    """Return the row of one run: one case under one scheme."""
    record, records = read_run(run)
    done, horizon = queries(records), horizon_ms(case, experiment)
    disturbed = disturbances(records, record["stalls"], horizon)
    answers_ms = [ms for query in done for ms in query["workers_ms"]]
    ideal_ms = experiment.ideal_ms(case)
    qct_ms = _qct_ms(done)
    counters, tcp = record["counters"], record["counters"]["tcp"]
    own, drops = _counts_beside_tcp(records), counters["queue_drops"] + counters.get("other_queue_drops", 0)
    return {
        "experiment": experiment.name,
        "case": case.name,
        "title": case.title,
        "scheme": record["scheme"],
        "workers": case.workers,
        "size_bytes": case.size_bytes,
        "background": case.background,
        "roots": case.roots,
        "queries": case.all_queries,
        "bandwidth_mbps": experiment.bandwidth_mbps,
        "queue_pkts": experiment.queue_pkts,
        "queue_bytes": experiment.queue_bytes,
        "ideal_ms": round(ideal_ms, 3),
        "qct_ms": qct_ms,
        **_means(done, ideal_ms),
        "qct_ms_undisturbed": _qct_ms(undisturbed(records, disturbed)),
        "horizon_ms": round(horizon, 3),
        "disturbed": disturbed,
        "exposure": exposure(record, records),
        "switch_waited_ms": round(sum(query["switch_waited_ms"] for query in done), 1),
        "answer_ms": round(fmean(answers_ms), 3) if answers_ms else None,
        "x_ideal": {name: round(value / ideal_ms, 3) for name, value in qct_ms.items()},
        "drops": drops,
        "other_drops": counters.get("other_queue_drops", 0),
        "ovs_drops": counters["ovs_drops"],
        "lost": drops + counters["ovs_drops"],
        **response_flows(records),
        "layers": layer_figures(record, records),
        "link_losses": counters.get("link_losses", 0),
        "pinned": experiment.pinned,
        **_link_figures(record),
        "retransmits": tcp["RetransSegs"] + own["total_retrans"],
        "timeouts": tcp["TCPTimeouts"] + own["timeouts"],
        "loss_probes": tcp["TCPLossProbes"],
        "queue_max_pkts": record["queue_max_pkts"],
        "queue_max_bytes": record["queue_max_bytes"],
        "busy_rate_mbps": round(record["busy_rate_bps"] / 1e6, 2) if record["busy_rate_bps"] else None,
        "least_idle": round(min((sample["idle"] for sample in record["cpu"]), default=1.0), 3),
        "cpu": _cpu_shares(record),
        **_switch_figures(record),
        **background_figures(records, experiment.period_ms),
        "released_mbps": released_mbps(records),
        **flow_figures(run, record, records, case),
        **planned_figures(run, records, experiment, case),
        "mark_pkts": _mark_pkts(experiment, record["scheme"]),
        "attempt": record["attempt"],
        "run": run.name,
        **{name: record.get(name) for name in ("switch_backlog", "sysctl", "version")},
        "valid": record["valid"],
        "reasons": record["reasons"],
    }


def _counts_beside_tcp(records: list[Record]) -> dict[str, int]:
    """Return what the flows of other transports sent again, and their timeouts, which no kernel counts."""
    last = {_flow_of(entry): entry for entry in records if "rate_pps" in entry}
    return {
        name: sum(entry.get(name, 0) for entry in last.values()) for name in ("total_retrans", "timeouts")
    }


def _mark_pkts(experiment: Experiment, scheme: str) -> int | None:
    """Return the queue length above which the switch marked packets; None if it did not."""
    known = find(scheme)  # of a scheme that is no longer installed, nothing is known
    return known.mark_pkts or experiment.mark_pkts if known and known.marked else None


def _qct_ms(some: Sequence[Record]) -> dict[str, float]:
    """Return the percentiles of the completion times of some queries; empty without queries."""
    return _percentiles([query["qct_ms"] for query in some]) if some else {}


def _percentiles(times_ms: Sequence[float]) -> dict[str, float]:
    return {name: percentile(times_ms, percent) for name, percent in PERCENTILES.items()}


def _means(some: Sequence[Record], ideal_ms: float) -> dict[str, float | None]:
    """Return the mean completion time of queries, and its multiple of the ideal time."""
    mean_ms = fmean(query["qct_ms"] for query in some) if some else None
    times = {"qct_mean_ms": mean_ms, "x_ideal_mean": mean_ms and mean_ms / ideal_ms}
    return {name: None if value is None else round(value, 3) for name, value in times.items()}


def _cpu_shares(record: dict[str, Any]) -> dict[str, float]:
    """Return the mean share of one CPU that each process used: ovs, controller, agent."""
    samples = record["cpu"]
    names = [name for name in (samples[0] if samples else {}) if name not in ("t_ns", "idle", "stolen")]
    return {name: round(fmean(sample[name] for sample in samples), 3) for name in names}


def _link_figures(record: dict[str, Any]) -> Row:
    """Return how the delay of the hosts' links was made and how exact it was; None without a delay line.

    ``line_late_us``: lateness of the delay line's packets at the 99th percentile. ``line_stall_us``: the
    longest time that the delay line stood still.
    """
    links = record.get("links") or {}
    return {
        "links_by": links.get("by"),
        "line_late_us": links.get("lateness_us", {}).get("p99"),
        "line_stall_us": links.get("longest_stall_us"),
        "line_cpu": links.get("cpu"),
    }


def _switch_figures(record: dict[str, Any]) -> Row:
    """Return the extended switch's counts of the run, summed over its ports; None without an agent."""
    if not record["ports_after"]:
        return {"alarms": None, "clamps": None, "marks": None}
    before, after = (
        {name: sum(port[name] for port in record[moment]) for name in ("alarms", "clamped", "marked")}
        for moment in ("ports_before", "ports_after")
    )
    grown = {name: after[name] - before[name] for name in before}
    return {"alarms": grown["alarms"], "clamps": grown["clamped"], "marks": grown["marked"]}


def flow_figures(run: Path, record: Record, records: list[Record], case: Case) -> Row:
    """Return the figures of the sampled flows and of the queue while the flows had settled.

    ``cwnd_kb``: the mean sum of all congestion windows; None if a flow's transport has none.
    ``missed``: the share of the responses and planned flows that missed their deadline.
    """
    since_ns, until_ns = settled_span_ns(records)
    flows = flow_series(records, record["transports"])
    rates = [flow.mean_mbps(since_ns, until_ns) for flow in flows]
    queue = queue_between(run, record, since_ns, until_ns).tolist()
    cwnd_kb = sum(flow.mean_cwnd_kb(since_ns, until_ns) for flow in flows)
    return {
        "goodput_mbps": round(sum(rates), 2) if flows else None,
        "goodput_by_transport": goodput_by_transport(flows, since_ns, until_ns),
        "fairness": fairness(rates) if flows else None,
        "cwnd_kb": round(cwnd_kb, 1) if flows and not math.isnan(cwnd_kb) else None,
        "missed": missed(run, records, case),
        "queue_pkts_p50": percentile(queue, 50) if queue else None,
        "queue_pkts_p95": percentile(queue, 95) if queue else None,
    }


def planned_figures(run: Path, records: list[Record], experiment: Experiment, case: Case) -> Row:
    """Return the figures of the planned flows.

    ``fct_ms``: mean and percentiles of the completion times of all planned flows. A flow that has not ended
    counts as infinitely slow; None stands for infinite. ``slowdown``: by size (slowdown.py).
    """
    took = _took_ms(records)
    times, slow = list(took.values()), {}
    if case.flows:
        planned = read_trace(run / "plan.csv")
        times += [math.inf] * (len(planned) - len(took))
        slow = slowdowns(planned, took, experiment.ideal_of_flows(), percentile)
    figures = {"mean": round(fmean(times), 2), **_percentiles(times)} if times else {}
    return {
        "flows_planned": len(times),
        "flows_done": len(took),
        "fct_ms": {name: ms if math.isfinite(ms) else None for name, ms in figures.items()},
        "slowdown": slow,
    }


def _took_ms(records: list[Record]) -> dict[int, float]:
    """Return the completion time of each planned flow that has ended, by its place in the plan."""
    return {entry["flow"]: entry["fct_ms"] for entry in records if entry["event"] == "flow"}


def missed(run: Path, records: list[Record], case: Case) -> float | None:
    """Return the share of responses and flows with a deadline that missed it; None if none had a deadline."""
    late = []
    if case.deadline_ms is not None:
        late += [ms > case.deadline_ms for query in queries(records) for ms in query["workers_ms"]]
    if case.flows:
        took = _took_ms(records)
        for number, flow in enumerate(read_trace(run / "plan.csv")):
            if flow.deadline_us is not None:
                late.append(took.get(number, math.inf) * 1000 > flow.deadline_us)
    return round(sum(late) / len(late), 4) if late else None


def background_figures(records: list[dict[str, Any]], period_ms: int) -> Row:
    """Return the long flows' goodput before, during and after the queries, and their recovery time.

    "After" is the last second before the flows ended.
    "During" lasts from the last sample before the first query to the end of the last query or, with a
    period, to the end of the last period. With a period, this time is thus the same for every scheme.

    ``recovery_s`` is the time from the end of the last query until the goodput over RECOVERY_WINDOW_S is
    RECOVERED of the goodput before the queries; None if it never is, or if there are no long flows.
    """
    points = while_sending(goodput_points(records))
    start_ns, end_ns = query_span_ns(records)
    if len(points) < 2 or not end_ns:
        return {"background_mbps": None, "recovery_s": None}
    start_sample_ns = max((at_ns for at_ns, _ in points if at_ns <= start_ns), default=start_ns)
    last_period_end_ns = queries(records)[-1]["start_ns"] + period_ms * 1e6 - (start_ns - start_sample_ns)
    before = goodput_mbps(points, start_sample_ns - STEADY_S * NS_PER_S, start_sample_ns)
    last_ns = points[-1][0]
    rates = {
        "before": before,
        "during": goodput_mbps(points, start_sample_ns, max(end_ns, last_period_end_ns)),
        "after": goodput_mbps(points, max(end_ns, last_ns - STEADY_S * NS_PER_S), last_ns),
    }
    recovery_s = None
    for at_ns, _ in points:
        since_ns = at_ns - RECOVERY_WINDOW_S * NS_PER_S
        if since_ns >= end_ns and goodput_mbps(points, since_ns, at_ns) >= RECOVERED * before:
            recovery_s = round((at_ns - end_ns) / NS_PER_S, 2)
            break
    return {
        "background_mbps": {name: round(rate, 2) for name, rate in rates.items()},
        "recovery_s": recovery_s,
    }


def released_mbps(records: list[Record]) -> float | None:
    """Return the long flows' goodput just after planned flows have ended: the median over these ends.

    It is the goodput from RELEASED_AFTER_S to RELEASED_UNTIL_S after an end. An end does not count if another
    planned flow is open in this time. None: no end counts, or no flow is endless.
    """
    begun = [entry for entry in records if entry["event"] == "connected" and "flow" in entry]
    points = while_sending(goodput_points(records))
    if not points or not any(entry["endless"] for entry in begun):
        return None
    opened = {_flow_of(entry): entry["t_ns"] for entry in begun if not entry["endless"]}
    ended = {_flow_of(entry): entry["t_ns"] for entry in records if entry["event"] == "flow"}
    rates = []
    for end_ns in ended.values():
        since_ns = end_ns + RELEASED_AFTER_S * NS_PER_S
        until_ns = end_ns + RELEASED_UNTIL_S * NS_PER_S
        others = (
            at for at, start in opened.items() if start < until_ns and ended.get(at, math.inf) > since_ns
        )
        if next(others, None) is None and until_ns <= points[-1][0]:
            rates.append(goodput_mbps(points, since_ns, until_ns))
    return round(median(rates), 2) if rates else None


def _flow_of(entry: Record) -> tuple[str, int]:
    return entry["host"], entry["flow"]


def while_sending(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return (time, total bytes) without the end, from the sample interval on in which the flows ended."""
    grown = [at for at, (one, other) in enumerate(pairwise(points), 1) if other[1] > one[1]]
    return points[: grown[-1]] if grown else points


def goodput_mbps(points: list[tuple[float, float]], since_ns: float, until_ns: float) -> float:
    """Return the mean rate between two times from (time, total bytes), limited to the time of the points."""
    times_ns, totals = zip(*points, strict=True)
    since_ns, until_ns = max(since_ns, times_ns[0]), min(until_ns, times_ns[-1])
    if until_ns <= since_ns:
        return 0.0
    first, last = np.interp((since_ns, until_ns), times_ns, totals)
    return float(8e3 * (last - first) / (until_ns - since_ns))
