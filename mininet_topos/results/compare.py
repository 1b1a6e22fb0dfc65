"""Two result folders side by side: the same cases and schemes, before and after."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.table import Table

from mininet_topos.errors import BadExperiment
from mininet_topos.results.style import LOOKS
from mininet_topos.results.summary import Row, median_of, read_summary

FIGURES = {
    "QCT p50": "qct_ms.p50",
    "QCT p99": "qct_ms.p99",
    "FCT p50": "fct_ms.p50",
    "goodput": "goodput_mbps",
    "queue p50": "queue_pkts_p50",
    "drops": "drops",
    "timeouts": "timeouts",
}


def compare(one: Path, other: Path) -> list[Row]:
    """A row for each figure that both folders have of a case and scheme: medians over valid repeats.

    Raises BadExperiment where a folder has no summary, or nothing in common with the other.
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


def _ratio(before: float, after: float) -> float | None:
    return round(after / before, 3) if before else None


def _medians(folder: Path) -> dict[tuple[str, str, str], float]:
    rows = read_summary(folder)
    found = {}
    for case, scheme in dict.fromkeys((row["case"], row["scheme"]) for row in rows):
        for figure, way in FIGURES.items():
            value = median_of(rows, case, scheme, way)
            if value is not None:
                found[case, scheme, figure] = value
    return found


def table(rows: list[Row]) -> Table:
    """The rows, for a terminal."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for heading in ("case", "scheme", "figure"):
        made.add_column(heading)
    for heading in ("before", "after", "ratio"):
        made.add_column(heading, justify="right")
    for row in rows:
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
        label = LOOKS[row["scheme"]].label
        made.add_row(row["case"], label, row["figure"], f"{row['before']:g}", f"{row['after']:g}", ratio)
    return made
