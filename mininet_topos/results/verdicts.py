"""Verdicts: whether the runs of a result folder show the trends of their experiment."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mininet_topos.experiments.experiment import Experiment
from mininet_topos.experiments.trends import Trend, trend
from mininet_topos.records.result_folder import write_json
from mininet_topos.results.summary import Row, median_of, values_of

HOLDS, FAILS, NOT_SHOWN = "holds", "does not hold", "not shown"
FILE = "trends.json"
Verdict = dict[str, Any]
"""A trend's fields, the value that was `found`, and the `verdict`.

`found` is None if no valid run has it, or if it is infinite.
"""


def find(trend: Trend, rows: Sequence[Row]) -> float | None:
    """Return the value or the ratio that rows show for a trend; None if they show none, as inf / inf does.

    That is the median over the valid repeats. If something shall never happen, it is the largest of them.
    """
    if trend.never:
        return max(values_of(rows, trend.case, trend.scheme, trend.value), default=None)
    found = median_of(rows, trend.case, trend.scheme, trend.value)
    if found is None or not trend.compares:
        return found
    other = median_of(rows, trend.than_case or trend.case, trend.than or trend.scheme, trend.value)
    if not other or (math.isinf(found) and math.isinf(other)):
        return None
    return found / other


def judge(trend: Trend, rows: Sequence[Row]) -> Verdict:
    """Judge one trend by rows of a summary."""
    found = find(trend, rows)
    verdict = NOT_SHOWN
    if found is not None:
        above = trend.least is None or found >= trend.least
        verdict = HOLDS if above and (trend.most is None or found <= trend.most) else FAILS
    shown = found if found is None or math.isfinite(found) else None
    return asdict(trend) | {"found": shown, "verdict": verdict}


def judge_all(
    folder: Path, rows: Sequence[Row], trends: Sequence[Mapping[str, Any]], experiment: Experiment
) -> list[Verdict]:
    """Judge the trends in an experiment's metadata, and write the verdicts to `trends.json`."""
    verdicts = [judge(trend(values, experiment), rows) for values in trends]
    write_json(folder / FILE, verdicts)
    return verdicts


def read_verdicts(folder: Path) -> list[Verdict]:
    """Return what `judge_all` has written."""
    verdicts: list[Verdict] = json.loads((folder / FILE).read_text())
    return verdicts


def sentence(verdict: Verdict) -> str:
    """Return a verdict as one line, without its last word."""
    found = verdict["found"]
    bounds = [f"{name} {verdict[name]:g}" for name in ("least", "most") if verdict[name] is not None]
    nothing = "no valid run" if verdict["verdict"] == NOT_SHOWN else "never"
    shown = nothing if found is None else f"{found:.3g}"
    return f"figure {verdict['figure']}: {verdict['says']}: {shown} ({', '.join(bounds)})"
