"""The slowdown of planned flows, by their size: the completion time divided by the ideal one. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mininet_topos.workloads.flow import Flow

ALL = "all"
CLASSES: dict[str, tuple[float, float]] = {
    ALL: (0, math.inf),
    "to_10kb": (0, 10_000),
    "to_100kb": (10_000, 100_000),
    "to_1mb": (100_000, 1_000_000),
    "over_1mb": (1_000_000, math.inf),
}
"""The classes of flows by size in bytes: more than the first number, at most the second."""
LABELS = {
    ALL: "all",
    "to_10kb": "up to 10 KB",
    "to_100kb": "to 100 KB",
    "to_1mb": "to 1 MB",
    "over_1mb": "over 1 MB",
}
PERCENTILES = {"p50": 50, "p99": 99}


def slowdowns(
    plan: Sequence[Flow],
    took_ms: Mapping[int, float],
    ideal_ms: Callable[[Flow], float | None],
    percentile: Callable[[Sequence[float], float], float],
) -> dict[str, dict[str, Any]]:
    """Return the slowdown of each class that has flows, by CLASSES' names.

    ``took_ms``: the completion time of each flow that has ended, by its place in the plan. A value has
    `flows`, the number of planned flows, and `done`, of which ended. `p50` and `p99` are percentiles over all
    planned flows; one that has not ended counts as infinitely slow, and None stands for infinite. Empty if a
    flow has no ideal time.
    """
    found: dict[str, dict[str, Any]] = {}
    ideal = [ideal_ms(flow) for flow in plan]
    if not plan or None in ideal:
        return found
    slow = [took_ms.get(at, math.inf) / (ideal[at] or math.inf) for at in range(len(plan))]
    for name, (above, most) in CLASSES.items():
        chosen = [at for at, flow in enumerate(plan) if above < flow.size_bytes <= most]
        if not chosen:
            continue
        values = [slow[at] for at in chosen]
        row: dict[str, Any] = {"flows": len(chosen), "done": sum(at in took_ms for at in chosen)}
        for label, percent in PERCENTILES.items():
            value = percentile(values, percent)
            row[label] = round(value, 3) if math.isfinite(value) else None
        found[name] = row
    return found
