"""Trends: what a figure says, as bands on a summary's rows; whether the repeated runs show them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mininet_topos.errors import BadExperiment
from mininet_topos.experiment import Experiment
from mininet_topos.results.folder import write_json
from mininet_topos.results.summary import Row, median_of

HOLDS, FAILS, NOT_SHOWN = "holds", "does not hold", "not shown"
FILE = "trends.json"
Judgement = dict[str, Any]
"""A trend's fields, what was `found`, and the `verdict`; found is None where no valid run has it."""


@dataclass(frozen=True, slots=True)
class Trend:
    """One thing that a figure says: a value of a scheme in a case lies from ``least`` to ``most``.

    ``value``: the way to it in a row, as `drops` or `fct_ms.max`; its median over the valid repeats counts.
    With ``than``, a scheme, or ``than_case`` it is the ratio to the same value there.
    """

    figure: str
    says: str
    case: str
    scheme: str
    value: str
    than: str | None = None
    than_case: str | None = None
    least: float | None = None
    most: float | None = None

    def check(self, experiment: Experiment) -> None:
        """Raises BadExperiment where an experiment has no such case or scheme, or there is no band."""
        cases, schemes = {case.name for case in experiment.cases}, set(experiment.schemes)
        if not {self.case, self.than_case or self.case} <= cases:
            raise BadExperiment(f"trend {self.says!r}: its cases are some of {', '.join(sorted(cases))}")
        if not {self.scheme, self.than or self.scheme} <= schemes:
            raise BadExperiment(f"trend {self.says!r}: its schemes are some of {', '.join(sorted(schemes))}")
        if self.least is None and self.most is None:
            raise BadExperiment(f"trend {self.says!r} has no band: want least, most, or both")

    def find(self, rows: Sequence[Row]) -> float | None:
        """The value, or ratio, that rows show; None where they show none."""
        found = median_of(rows, self.case, self.scheme, self.value)
        if found is None or (self.than is None and self.than_case is None):
            return found
        other = median_of(rows, self.than_case or self.case, self.than or self.scheme, self.value)
        return found / other if other else None

    def judge(self, rows: Sequence[Row]) -> Judgement:
        """What rows show of it."""
        found = self.find(rows)
        verdict = NOT_SHOWN
        if found is not None:
            above = self.least is None or found >= self.least
            verdict = HOLDS if above and (self.most is None or found <= self.most) else FAILS
        return asdict(self) | {"found": found, "verdict": verdict}


def trend(values: Mapping[str, Any], experiment: Experiment) -> Trend:
    """An experiment's trend from plain values, as a file has them; `case` may lack where there is but one.

    Raises BadExperiment.
    """
    case = {"case": experiment.cases[0].name} if len(experiment.cases) == 1 else {}
    try:
        made = Trend(**(case | dict(values)))
    except TypeError as error:
        raise BadExperiment(f"not a trend: {str(error).partition(' ')[2]}") from None
    made.check(experiment)
    return made


def judge(
    folder: Path, rows: Sequence[Row], told: Sequence[Mapping[str, Any]], experiment: Experiment
) -> list[Judgement]:
    """Judge the trends that an experiment's metadata tells by its rows, and write them to `trends.json`."""
    judgements = [trend(values, experiment).judge(rows) for values in told]
    write_json(folder / FILE, judgements)
    return judgements


def read_trends(folder: Path) -> list[Judgement]:
    """What `judge` has written."""
    judgements: list[Judgement] = json.loads((folder / FILE).read_text())
    return judgements


def sentence(judgement: Judgement) -> str:
    """A judgement in a line."""
    found = judgement["found"]
    bounds = [f"{name} {judgement[name]:g}" for name in ("least", "most") if judgement[name] is not None]
    shown = "no valid run" if found is None else f"{found:.3g}"
    return f"figure {judgement['figure']}: {judgement['says']}: {shown} ({', '.join(bounds)})"
