"""The comparison of two result folders: the same cases and schemes, before and after a change."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from mininet_topos.errors import BadExperiment
from mininet_topos.experiments.schemes import style_of
from mininet_topos.results.caveats import not_recorded
from mininet_topos.results.comparisons import ends, verdict, with_interval
from mininet_topos.results.disturbance import unequal
from mininet_topos.results.statistics import unpaired_ratio_interval
from mininet_topos.results.summary import Row, read_summary, values_of
from weir_base.tables import Column

PATH_OF_FIGURE = {
    "QCT p50": "qct_ms.p50",
    "QCT p99": "qct_ms.p99",
    "FCT p50": "fct_ms.p50",
    "goodput": "goodput_mbps",
    "queue p50": "queue_pkts_p50",
    "drops": "drops",
    "timeouts": "timeouts",
}
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
    Raises BadExperiment if a folder has no summary, or has nothing in common with the other folder.
    """
    before, after = (_values(folder) for folder in (one, other))
    rows = []
    for (case, scheme, figure), values in before.items():
        if others := after.get((case, scheme, figure)):
            interval = unpaired_ratio_interval(others, values)
            rows.append(
                {"case": case, "scheme": scheme, "figure": figure}
                | {"before": median(values), "after": median(others)}
                | {"ratio": _ratio(median(values), median(others))}
                | ends(interval)
                | {"verdict": verdict(interval)}
            )
    if not rows:
        raise BadExperiment(f"{one} and {other} have no valid run of the same case and scheme")
    return rows


def caveats(one: Path, other: Path) -> list[str]:
    """Return the first lines: runs that were disturbed unequally, and values that were not recorded."""
    folders = {"before": read_summary(one), "after": read_summary(other)}
    groups: dict[str, dict[str, list[Row]]] = {}
    for moment, rows in folders.items():
        for row in rows:
            if row["valid"]:
                name = f"case {row['case']}, {style_of(row['scheme']).label}"
                groups.setdefault(name, {}).setdefault(moment, []).append(row)
    missing = [f"{moment}: {line}" for moment, rows in folders.items() for line in not_recorded(rows)]
    return [*unequal(groups), *missing]


def _ratio(before: float, after: float) -> float | None:
    return round(after / before, 3) if before else None


def _values(folder: Path) -> dict[tuple[str, str, str], list[float]]:
    """Return the values of the valid repeats by case, scheme and figure."""
    rows = read_summary(folder)
    found = {}
    for case, scheme in dict.fromkeys((row["case"], row["scheme"]) for row in rows):
        for figure, path in PATH_OF_FIGURE.items():
            if values := values_of(rows, case, scheme, path):
                found[case, scheme, figure] = values
    return found
