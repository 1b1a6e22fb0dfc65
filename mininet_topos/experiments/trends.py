"""Trends: what a published figure shows, as bands on values of the summary's rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from typing import Any

from mininet_topos.errors import BadExperiment
from mininet_topos.experiments.experiment import Experiment
from mininet_topos.experiments.schemes import scheme_of
from mininet_topos.network.layers import LAYERS
from mininet_topos.plain_values import from_plain

VALUES = (
    *("workers", "size_bytes", "background", "roots", "queries", "repeat", "attempt", "mark_pkts"),
    *("bandwidth_mbps", "queue_pkts", "queue_bytes", "ideal_ms", "horizon_ms", "qct_mean_ms", "x_ideal_mean"),
    *("answer_ms", "switch_waited_ms", "missed", "drops", "other_drops", "ovs_drops", "lost", "link_losses"),
    *("retransmits", "timeouts", "loss_probes", "response_flows", "lossy_flows", "alarms", "clamps", "marks"),
    *("queue_max_pkts", "queue_max_bytes", "queue_pkts_p50", "queue_pkts_p95", "busy_rate_mbps"),
    *("goodput_mbps", "released_mbps", "fairness", "cwnd_kb", "recovery_s", "flows_planned", "flows_done"),
    *("least_idle", "line_late_us", "line_stall_us", "line_cpu"),
)
"""The numbers in a row of summary.json that are in no group (results/summary.py)."""
_PERCENTILES = ("p50", "p95", "p99", "max")
_SIZES = ("all", "to_10kb", "to_100kb", "to_1mb", "over_1mb")
GROUPS: dict[str, Iterable[str]] = {
    **dict.fromkeys(("qct_ms", "qct_ms_undisturbed", "x_ideal"), _PERCENTILES),
    "fct_ms": ("mean", *_PERCENTILES),
    "slowdown": tuple(map(".".join, product(_SIZES, ("flows", "done", "p50", "p99")))),
    "layers": tuple(map(".".join, product(LAYERS, ("ports", "mean", "busiest", "max")))),
    "background_mbps": ("before", "during", "after"),
    "exposure": ("span_s", "stolen", "all_stalled", "one_stalled"),
    "switch_backlog": ("mean", "max"),
    "cpu": ("ovs", "controller", "agent"),
}
"""The numbers in a group, by its name. `goodput_by_transport` has one for each transport."""
_KINDS = {"case": "case", "than_case": "case", "scheme": "scheme", "than": "scheme"}
"""The fields of a trend that name a case or a scheme."""


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
        for key, kind in _KINDS.items():
            name, known = getattr(self, key), _names(experiment, kind)
            if name is not None and name not in known:
                raise BadExperiment(
                    f"trend {self.says!r}: the experiment has no {kind} {name!r}; "
                    f"use one of {', '.join(known)}"
                )
        if self.least is None and self.most is None:
            raise BadExperiment(f"trend {self.says!r} has no band: give `least`, `most`, or both")


def _names(experiment: Experiment, kind: str) -> list[str]:
    """Return the names of an experiment's cases, or of its schemes."""
    return [case.name for case in experiment.cases] if kind == "case" else list(experiment.schemes)


def fits(values: Any, experiment: Experiment) -> bool:
    """Whether an experiment has all cases and schemes that the plain values of a trend name.

    Values that are not a table fit: `trend` names that mistake.
    """
    if not isinstance(values, Mapping):
        return True
    return all(
        values.get(key) is None or values[key] in _names(experiment, kind) for key, kind in _KINDS.items()
    )


def require_value(trend: Trend, experiment: Experiment) -> None:
    """Raise BadExperiment if no row of an experiment can have the value of a trend."""
    known = [*VALUES, *(f"{group}.{name}" for group, names in GROUPS.items() for name in names)]
    for scheme in map(scheme_of, experiment.schemes):
        names = scheme.transports or (experiment.congestion_control,)
        known += [f"goodput_by_transport.{name}" for name in names]
    if trend.value not in known:
        near = get_close_matches(trend.value, known, 1)
        remedy = f"did you mean {near[0]!r}?" if near else f"use one such as {', '.join(known[-3:])}"
        raise BadExperiment(f"trend {trend.says!r}: rows have no value {trend.value!r}; {remedy}")


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
