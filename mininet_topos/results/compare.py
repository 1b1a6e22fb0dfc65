"""The comparison of two result folders: the same cases and schemes, before and after a change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from statistics import median
from typing import Any

from mininet_topos.errors import BadExperiment
from mininet_topos.experiments.experiment import Experiment
from mininet_topos.experiments.schemes import style_of
from mininet_topos.results.caveats import missing_runs, not_recorded, unended_flows, void_attempts
from mininet_topos.results.comparisons import (
    HIGHER,
    LOWER,
    NO_INTERVAL,
    by_chance,
    ends,
    verdict,
    with_interval,
)
from mininet_topos.results.disturbance import unequal
from mininet_topos.results.statistics import (
    LEAST_REPEATS,
    unpaired_difference_interval,
    unpaired_ratio_interval,
)
from mininet_topos.results.summary import Row, load_experiment, read_summary, values_of
from weir_base.tables import Column

PATH_OF_FIGURE = {
    "QCT p50": "qct_ms.p50",
    "QCT p99": "qct_ms.p99",
    "FCT p50": "fct_ms.p50",
    "goodput": "goodput_mbps",
    "queue p50": "queue_pkts_p50",
    "drops": "drops",
    "lost packets": "lost",
    "timeouts": "timeouts",
    "missed deadlines": "missed",
}
_MAY_DIFFER = {"name", "title", "cases", "schemes", "repeats", "repeat_until_s"}
"""The values of an experiment or a case that do not change what its runs measure."""
_LONGEST_VALUE = 200
COLUMNS = (
    Column("case", align="left", fold_at=12),
    Column("scheme", align="left", fold_at=10, text=lambda row: style_of(row["scheme"]).label),
    Column("figure", align="left"),
    Column("before", text=lambda row: f"{row['before']:g}"),
    Column("after", text=lambda row: f"{row['after']:g}"),
    Column("ratio", "ratio [95 %]", text=lambda row: with_interval(row, "ratio", 2)),
    Column("verdict", align="left", fold_at=10),
)


def compare(one: Path, other: Path) -> list[Row]:
    """Return a row for each figure that both folders have of a case and scheme: medians over valid repeats.

    `verdict`: whether the figure is higher or lower after the change, which needs six repeats in each folder.
    The interval of the ratio decides or, for a figure that is 0 in a repeat, that of the difference. Raises
    BadExperiment if a folder has no summary, or has nothing in common with the other folder.
    """
    before, after = (_values(folder) for folder in (one, other))
    rows = []
    for (case, scheme, figure), values in before.items():
        if others := after.get((case, scheme, figure)):
            interval = unpaired_ratio_interval(others, values)
            difference = unpaired_difference_interval(others, values)
            rows.append(
                {"case": case, "scheme": scheme, "figure": figure}
                | {"before": median(values), "after": median(others)}
                | {"ratio": _ratio(median(values), median(others))}
                | ends(interval)
                | {"verdict": verdict(interval) if interval else verdict(difference, 0.0)}
            )
    if not rows:
        raise BadExperiment(f"{one} and {other} have no valid run of the same case and scheme")
    return rows


def findings(rows: Sequence[Row]) -> list[str]:
    """Return the last lines: a sentence for each figure that differs, or that none does.

    If there are many verdicts, the last one states how many of them chance may have made.
    """
    lines = [
        f"{row['case']}, {style_of(row['scheme']).label}, {row['figure']}: {row['verdict']} after: "
        f"{_change(row)}"
        for row in rows
        if row["verdict"] in (HIGHER, LOWER)
    ]
    without = sum(row["verdict"] == NO_INTERVAL for row in rows)
    if without:
        lines.append(
            f"{without} of {len(rows)} figures have no verdict: that needs {LEAST_REPEATS} valid repeats in "
            f"each folder"
        )
    return [*(lines or ["no difference shown"]), *by_chance(rows)]


def _change(row: Row) -> str:
    """Return by how much a figure changed: the ratio with its interval or, without one, both medians."""
    if row["low"] is None:
        return f"{row['before']:g} before, {row['after']:g} after"
    return f"x {with_interval(row, 'ratio', 2)}"


def caveats(one: Path, other: Path) -> list[str]:
    """Return the first lines: what a reader must know before the figures.

    That is a folder that is not complete, experiments that are not the same, figures without a ratio, runs
    that were disturbed unequally or void, flows that did not end, and values that an older version did not
    record. Raises BadExperiment.
    """
    folders = {"before": read_summary(one), "after": read_summary(other)}
    paths = {"before": one, "after": other}
    experiments = {moment: _experiment(path) for moment, path in paths.items()}
    first = [
        f"{moment}, {paths[moment]}: {line}"
        for moment, experiment in experiments.items()
        for line in missing_runs(paths[moment], experiment, folders[moment])
    ]
    first += _unlike(experiments["before"], experiments["after"])
    first += _without_ratio(folders)
    groups: dict[str, dict[str, list[Row]]] = {}
    for moment, rows in folders.items():
        for row in rows:
            if row["valid"]:
                name = f"case {row['case']}, {style_of(row['scheme']).label}"
                groups.setdefault(name, {}).setdefault(moment, []).append(row)
    kinds = (void_attempts, unended_flows, not_recorded)
    more = [f"{moment}: {line}" for moment, rows in folders.items() for kind in kinds for line in kind(rows)]
    return [*first, *unequal(groups), *more]


def _without_ratio(folders: Mapping[str, Sequence[Row]]) -> list[str]:
    """Return a line for each figure of a common case and scheme that only one folder has as a finite one."""
    pairs = [dict.fromkeys((row["case"], row["scheme"]) for row in rows) for rows in folders.values()]
    lines = []
    for case, scheme in (pair for pair in pairs[0] if pair in pairs[1]):
        for figure, path in PATH_OF_FIGURE.items():
            values = [values_of(rows, case, scheme, path) for rows in folders.values()]
            if any(values) and not all(map(_is_finite, values)):
                before, after = map(_in_words, values)
                label = style_of(scheme).label
                lines.append(f"case {case}, {label}, {figure}: {before} before, {after} after: no ratio")
    return lines


def _is_finite(values: Sequence[float]) -> bool:
    return bool(values) and all(map(math.isfinite, values))


def _in_words(values: Sequence[float]) -> str:
    """Return the values of a figure: their median, how many are infinite, or that no valid run has it."""
    if not values:
        return "no valid run"
    endless = sum(map(math.isinf, values))
    return f"infinite in {endless} of {len(values)} runs" if endless else f"{median(values):g}"


def _experiment(folder: Path) -> Experiment:
    try:
        return load_experiment(folder)
    except BadExperiment as error:
        raise BadExperiment(
            f"{folder} cannot be compared; another version may have made it: {error}"
        ) from error


def _unlike(before: Experiment, after: Experiment) -> list[str]:
    """Return a line for each value of the network or of a common case that the experiments do not share."""
    pairs: list[tuple[str, Any, Any]] = [("", before, after)]
    others = {case.name: case for case in after.cases}
    pairs += [
        (f"case {case.name}: ", case, others[case.name]) for case in before.cases if case.name in others
    ]
    values = [
        (where + field.name, getattr(one, field.name), getattr(other, field.name))
        for where, one, other in pairs
        for field in fields(one)
        if field.name not in _MAY_DIFFER
    ]
    if not (before.fitted and after.fitted):  # all cases share the network of the largest one
        values += [
            (f"the number of {name} in the network", getattr(before, name), getattr(after, name))
            for name in ("workers", "senders")
        ]
    return [
        f"{name} is {_short(old)} before and {_short(new)} after" for name, old, new in values if old != new
    ]


def _short(value: object) -> str:
    """Return a value as text; the flows of a trace are too many for a line."""
    text = str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _ratio(before: float, after: float) -> float | None:
    return round(after / before, 3) if before else None


def _values(folder: Path) -> dict[tuple[str, str, str], list[float]]:
    """Return the values of the valid repeats by case, scheme and figure."""
    rows = read_summary(folder)
    found = {}
    for case, scheme in dict.fromkeys((row["case"], row["scheme"]) for row in rows):
        for figure, path in PATH_OF_FIGURE.items():
            values = values_of(rows, case, scheme, path)
            if _is_finite(values):
                found[case, scheme, figure] = values
    return found
