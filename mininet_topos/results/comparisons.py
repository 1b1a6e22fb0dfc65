"""Comparisons of schemes over paired repeats: medians with intervals, and which schemes differ.

The repeats with the same number follow each other in time under all schemes. So they form pairs, and a slow
change of the machine does not make one scheme look better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from mininet_topos.experiments.schemes import style_of
from mininet_topos.records.result_folder import write_json
from mininet_topos.results.statistics import CONFIDENCE, Interval, median_interval, ratio_interval
from mininet_topos.results.summary import Row, value_of
from weir_base.tables import Column

FILE = "comparisons.json"
FIGURES = {
    "QCT p50": "qct_ms.p50",
    "QCT p99": "qct_ms.p99",
    "FCT p50": "fct_ms.p50",
    "FCT p99": "fct_ms.p99",
    "slowdown p50": "slowdown.all.p50",
    "slowdown p99": "slowdown.all.p99",
    "slowdown p50, up to 10 KB": "slowdown.to_10kb.p50",
    "slowdown p99, up to 10 KB": "slowdown.to_10kb.p99",
    "slowdown p50, over 1 MB": "slowdown.over_1mb.p50",
    "goodput": "goodput_mbps",
}
HIGHER, LOWER, NOT_SHOWN = "higher", "lower", "no difference shown"
NO_INTERVAL = "no interval"


def repeated(rows: Sequence[Row]) -> bool:
    """Whether an experiment asked for repeats."""
    return any(row["repeat"] > 1 for row in rows)


def medians(rows: Sequence[Row]) -> list[Row]:
    """Return a row for each experiment, case, scheme and figure: the median over its valid repeats.

    `low` and `high` are the ends of the interval; None with too few repeats. A figure that is infinite in a
    repeat, because flows did not end, has no median; `infinite` is the number of these repeats.
    """
    found = []
    for (experiment, case), schemes in _by_case(rows).items():
        for scheme, runs in schemes.items():
            for figure, of_repeat in _by_figure(runs).items():
                values = list(of_repeat.values())
                infinite = sum(map(math.isinf, values))
                found.append(
                    {"experiment": experiment, "case": case, "scheme": scheme, "figure": figure}
                    | {"repeats": len(values), "infinite": infinite}
                    | {"median": None if infinite else round(median(values), 4)}
                    | ends(None if infinite else median_interval(values))
                )
    return found


def comparisons(rows: Sequence[Row]) -> list[Row]:
    """Return a row for each experiment, case, figure and pair of schemes: the median ratio of their repeats.

    `verdict`: whether the figure of `scheme` is HIGHER or LOWER than that of `than`. Only an interval that
    leaves out 1 says so.
    """
    found = []
    for (experiment, case), schemes in _by_case(rows).items():
        for than, scheme in combinations(schemes, 2):
            own, others = _finite_by_figure(schemes[scheme]), _finite_by_figure(schemes[than])
            for figure in (name for name in own if name in others):
                both = [repeat for repeat in own[figure] if repeat in others[figure]]
                pairs = [(own[figure][repeat], others[figure][repeat]) for repeat in both]
                interval = ratio_interval(pairs)
                found.append(
                    {"experiment": experiment, "case": case, "figure": figure}
                    | {"scheme": scheme, "than": than, "pairs": len(pairs)}
                    | {"ratio": round(interval.median, 4) if interval else None}
                    | ends(interval)
                    | {"verdict": verdict(interval)}
                )
    return found


def write_comparisons(folder: Path, rows: Sequence[Row]) -> None:
    """Write medians and comparisons of an experiment with repeats to `comparisons.json`."""
    write_json(folder / FILE, {"medians": medians(rows), "comparisons": comparisons(rows)})


def different(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each pair of schemes, case and figure that the intervals call different."""
    return [
        f"{row['case']}, {row['figure']}: {style_of(row['scheme']).label} is {row['verdict']} than "
        f"{style_of(row['than']).label}: x {row['ratio']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
        for row in comparisons(rows)
        if row["verdict"] in (HIGHER, LOWER)
    ]


def by_chance(rows: Sequence[Row]) -> list[str]:
    """Return a sentence if there are so many verdicts that chance alone makes some of them.

    An interval says of one comparison how sure it is. It does not know how many others there are.
    """
    judged = sum(row["verdict"] != NO_INTERVAL for row in rows)
    wrong = (1 - CONFIDENCE) * judged
    if wrong < 1:
        return []
    return [
        f"{judged} intervals of {CONFIDENCE:.0%} were judged: without any real difference, chance makes up "
        f"to about {wrong:.0f} of them differ. Repeat the experiment with another --out before you cite one "
        "of many"
    ]


def with_interval(row: Mapping[str, Any], name: str, digits: int) -> str:
    """Return a value with its interval, for example `55.1 [54.0, 57.2]`; `-` if there is none."""
    if row[name] is None:
        return "-"
    if row["low"] is None:
        return f"{row[name]:.{digits}f}"
    return f"{row[name]:.{digits}f} [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"


def median_text(row: Mapping[str, Any]) -> str:
    """Return the median of a row of ``medians`` with its interval, or in how many repeats it is infinite."""
    if row["infinite"]:
        return f"infinite in {row['infinite']} of {row['repeats']}"
    return with_interval(row, "median", 1)


MEDIAN_COLUMNS = (
    Column("case", align="left", fold_at=9),
    Column("scheme", align="left", fold_at=9, text=lambda row: style_of(row["scheme"]).label),
    Column("figure", align="left"),
    Column("repeats"),
    Column("median", "median [95 %]", text=median_text),
)


def verdict(interval: Interval | None, equal: float = 1.0) -> str:
    """Return HIGHER or LOWER if an interval leaves out `equal`: 1 for a ratio, 0 for a difference."""
    if interval is None:
        return NO_INTERVAL
    if not interval.excludes(equal):
        return NOT_SHOWN
    return HIGHER if interval.median > equal else LOWER


def ends(interval: Interval | None) -> Row:
    """Return the ends of an interval as values of a row; None without an interval."""
    if interval is None:
        return {"low": None, "high": None}
    return {"low": round(interval.low, 4), "high": round(interval.high, 4)}


def _by_case(rows: Sequence[Row]) -> dict[tuple[str, str], dict[str, list[Row]]]:
    """Return the valid rows by experiment and case, and then by scheme."""
    found: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in rows:
        if row["valid"]:
            of_case = found.setdefault((row["experiment"], row["case"]), {})
            of_case.setdefault(row["scheme"], []).append(row)
    return found


def _by_figure(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """Return the values of each figure that rows have, by the number of the repeat. They may be infinite."""
    found: dict[str, dict[int, float]] = {}
    for figure, path in FIGURES.items():
        values = {row["repeat"]: value for row in rows if (value := value_of(row, path)) is not None}
        if values:
            found[figure] = values
    return found


def _finite_by_figure(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """Return the same without the figures that are infinite in a repeat: they have no ratio."""
    return {
        figure: values
        for figure, values in _by_figure(rows).items()
        if all(map(math.isfinite, values.values()))
    }
