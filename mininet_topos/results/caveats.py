"""What a reader must know about the runs of a table before the figures."""

from __future__ import annotations

from collections.abc import Sequence

from mininet_topos.experiments.schemes import style_of
from mininet_topos.results.disturbance import unequal
from mininet_topos.results.summary import Row


def unequal_cases(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each case whose schemes were disturbed unequally."""
    groups: dict[str, dict[str, list[Row]]] = {}
    several = len({row["experiment"] for row in rows}) > 1
    for row in rows:
        name = f"{row['experiment']}, case {row['case']}" if several else f"case {row['case']}"
        groups.setdefault(name, {}).setdefault(style_of(row["scheme"]).label, []).append(row)
    return unequal(groups)


def void_attempts(rows: Sequence[Row]) -> list[str]:
    """Return a line for each scheme that had void attempts: how many, and the reasons."""
    lines = []
    for scheme in dict.fromkeys(row["scheme"] for row in rows):
        own = [row for row in rows if row["scheme"] == scheme]
        void = [attempt for row in own for attempt in row["void_attempts"]]
        if void:
            reasons = "; ".join(dict.fromkeys(reason for attempt in void for reason in attempt["reasons"]))
            attempts = sum(row["attempt"] for row in own)
            lines.append(f"{style_of(scheme).label}: {len(void)} of {attempts} attempts were void: {reasons}")
    return lines


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
