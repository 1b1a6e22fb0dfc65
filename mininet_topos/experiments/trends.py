"""Trends: what a published figure shows, as bands on values of the summary's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mininet_topos.errors import BadExperiment
from mininet_topos.experiments.experiment import Experiment
from mininet_topos.plain_values import from_plain


@dataclass(frozen=True, slots=True)
class Trend:
    """One statement about a figure: a value of a scheme in a case lies between ``least`` and ``most``.

    ``figure`` names the figure and ``says`` states the trend in words. ``value`` is the path of the value in
    a row of summary.json, for example `drops` or `fct_ms.max`. With ``than`` (a scheme) or ``than_case`` (a
    case), the band limits the ratio to the same value there. Without them, `most = 0` says that something
    never happens, in any valid repeat.
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

    @property
    def compares(self) -> bool:
        """Whether the band limits a ratio."""
        return self.than is not None or self.than_case is not None

    @property
    def never(self) -> bool:
        """Whether the trend says that something never happens."""
        return self.most == 0 and not self.compares

    def check(self, experiment: Experiment) -> None:
        """Raise BadExperiment if the experiment has no such case or scheme, or if there is no band."""
        known = {"case": [case.name for case in experiment.cases], "scheme": list(experiment.schemes)}
        for kind, names in (("case", (self.case, self.than_case)), ("scheme", (self.scheme, self.than))):
            for name in names:
                if name is not None and name not in known[kind]:
                    raise BadExperiment(
                        f"trend {self.says!r}: the experiment has no {kind} {name!r}; "
                        f"use one of {', '.join(known[kind])}"
                    )
        if self.least is None and self.most is None:
            raise BadExperiment(f"trend {self.says!r} has no band: give `least`, `most`, or both")


def trend(values: Mapping[str, Any], experiment: Experiment) -> Trend:
    """Return a trend of an experiment from the plain values of a file.

    `case` may be missing if the experiment has only one case. Raises BadExperiment.
    """
    says = values.get("says", "without `says`") if isinstance(values, Mapping) else "?"
    case = {"case": experiment.cases[0].name} if len(experiment.cases) == 1 else {}
    named = {**case, **values} if isinstance(values, Mapping) else values
    made = from_plain(Trend, named, f"trend {says!r}")
    made.check(experiment)
    return made
