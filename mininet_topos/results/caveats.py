"""What a reader must know about the runs of a table before the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mininet_topos.experiments.experiment import Experiment
from mininet_topos.experiments.schemes import style_of
from mininet_topos.records.result_folder import MOST_ATTEMPTS
from mininet_topos.results.disturbance import unequal
from mininet_topos.results.summary import Row, failed_runs


def unequal_cases(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each case whose schemes were disturbed unequally.

    Void runs count only for a scheme that has no valid run, because figures leave them out.
    """
    groups: dict[str, dict[str, list[Row]]] = {}
    several = len({row["experiment"] for row in rows}) > 1
    for row in rows:
        name = f"{row['experiment']}, case {row['case']}" if several else f"case {row['case']}"
        groups.setdefault(name, {}).setdefault(style_of(row["scheme"]).label, []).append(row)
    return unequal(
        {
            name: {label: [row for row in own if row["valid"]] or own for label, own in group.items()}
            for name, group in groups.items()
        }
    )


def void_attempts(rows: Sequence[Row]) -> list[str]:
    """Return a line for each scheme that had void attempts: how many, and the reasons."""
    lines = []
    for scheme in dict.fromkeys(row["scheme"] for row in rows):
        own = [row for row in rows if row["scheme"] == scheme]
        void = [attempt for row in own for attempt in row["void_attempts"]]
        if void:
            reasons = "; ".join(dict.fromkeys(reason for attempt in void for reason in attempt["reasons"]))
            attempts = sum(
                max([row["attempt"], *(one["attempt"] for one in row["void_attempts"])]) for row in own
            )
            lines.append(f"{style_of(scheme).label}: {len(void)} of {attempts} attempts were void: {reasons}")
    return lines


def missing_runs(folder: Path, experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """Return lines if runs of an experiment have no row; none if all have one.

    The first line says how many, and what to do. Each run whose attempts have failed has a further line.
    """
    missing = experiment.runs - len(rows)
    if not missing:
        return []
    failed = failed_runs(folder, experiment)
    left = missing - sum(len(reasons) >= MOST_ATTEMPTS for reasons in failed.values())
    remedy = f": `weir lab run --resume` carries out {left} of them" if left else ""
    lines = [f"{missing} of {experiment.runs} runs have no figures{remedy}"]
    for name, reasons in failed.items():
        used_up = len(reasons) >= MOST_ATTEMPTS
        lines.append(
            f"{name}: {len(reasons)} of {MOST_ATTEMPTS} attempts failed: {'; '.join(dict.fromkeys(reasons))}"
            + ("; to try again, remove the cause and run the experiment in another --out" if used_up else "")
        )
    return lines


def slow_switches(rows: Sequence[Row]) -> list[str]:
    """Return a line for each scheme of a case whose packets waited for Open vSwitch, not only in a queue.

    That is so if more waited there on average than fits into the bottleneck's queue. Both are part of a
    round trip, but only the queue is a part of the network that the lab emulates.
    """
    most: dict[tuple[str, str], tuple[int, int]] = {}
    for row in rows:
        mean = (row["switch_backlog"] or {"mean": 0})["mean"]
        if mean > row["queue_bytes"]:
            key = (style_of(row["scheme"]).label, row["case"])
            most[key] = max(most.get(key, (0, 0)), (mean, row["queue_bytes"]))
    return [
        f"{scheme}, case {case}: {mean / 1000:.0f} KB waited on average for Open vSwitch's thread, and the "
        f"queue holds {limit / 1000:.0f} KB: the machine may have limited this scheme"
        for (scheme, case), (mean, limit) in most.items()
    ]


def all_caveats(rows: Sequence[Row]) -> list[str]:
    """Return the lines of all kinds of caveats but `unequal_cases`."""
    kinds = (void_attempts, mixed_versions, unended_flows, slow_switches, not_recorded)
    return [line for kind in kinds for line in kind(rows)]


def mixed_versions(rows: Sequence[Row]) -> list[str]:
    """Return a line if runs are of different commits, changes or kernels; none if all are of the same."""
    known = [row["version"] for row in rows if row["version"]]
    runs = Counter(
        (one["commit"][:9], bool(one["changed"]), one.get("diff", ""), one["kernel"]) for one in known
    )
    if len(runs) < 2:
        return []
    named = [
        f"{count} of {commit or 'an unknown commit'}{' with changes' if changed else ''}"
        f"{f' ({diff})' if diff else ''} on Linux {kernel}"
        for (commit, changed, diff, kernel), count in runs.items()
    ]
    return [f"the runs are of different versions: {'; '.join(named)}"]


def unended_flows(rows: Sequence[Row]) -> list[str]:
    """Return a line for each scheme of a case whose planned flows have not all ended in the valid runs."""
    counts: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if row["valid"] and row["flows_done"] < row["flows_planned"]:
            done = counts.setdefault((style_of(row["scheme"]).label, row["case"]), [0, 0])
            done[0] += row["flows_planned"] - row["flows_done"]
            done[1] += row["flows_planned"]
    return [
        f"{scheme}, case {case}: {left} of {planned} planned flows had not ended: they count as infinitely"
        " slow"
        for (scheme, case), (left, planned) in counts.items()
    ]


def not_recorded(rows: Sequence[Row]) -> list[str]:
    """Return a line for each kind of values that runs are without; none if nothing is missing."""
    lines = []
    if left_out := sum(row.get("queries_left_out", 0) for row in rows):
        lines.append(
            f"an older version made this summary: {left_out} queries are not counted; "
            "`weir lab summarise` counts them"
        )
    names = {"stolen": "time that the hypervisor states", "all_stalled": "stalls of all CPUs at once"}
    missing = [text for name, text in names.items() if any(row["exposure"][name] is None for row in rows)]
    if missing:
        lines.append(
            f"some of these runs are without {' and '.join(missing)}: an older version recorded them, "
            "or they ended before the first sample"
        )
    return lines
