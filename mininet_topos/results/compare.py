"""The comparison of two result folders: the same cases and schemes, before and after a change."""

from __future__ import annotations

from pathlib import Path

from mininet_topos.errors import BadExperiment
from mininet_topos.experiments.schemes import style_of
from mininet_topos.results.caveats import not_recorded
from mininet_topos.results.disturbance import unequal
from mininet_topos.results.summary import Row, median_of, read_summary
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
    Column("ratio", text=lambda row: "-" if row["ratio"] is None else f"{row['ratio']:.2f}"),
)


def compare(one: Path, other: Path) -> list[Row]:
    """Return a row for each figure that both folders have of a case and scheme: medians over valid repeats.

    Raises BadExperiment if a folder has no summary, or has nothing in common with the other folder.
    """
    before, after = (_medians(folder) for folder in (one, other))
    rows = [
        {"case": case, "scheme": scheme, "figure": figure, "before": value}
        | {"after": after[case, scheme, figure], "ratio": _ratio(value, after[case, scheme, figure])}
        for (case, scheme, figure), value in before.items()
        if (case, scheme, figure) in after
    ]
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


def _medians(folder: Path) -> dict[tuple[str, str, str], float]:
    rows = read_summary(folder)
    found = {}
    for case, scheme in dict.fromkeys((row["case"], row["scheme"]) for row in rows):
        for figure, path in PATH_OF_FIGURE.items():
            value = median_of(rows, case, scheme, path)
            if value is not None:
                found[case, scheme, figure] = value
    return found
