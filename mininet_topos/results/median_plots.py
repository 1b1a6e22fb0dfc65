"""The plot of medians over repeats with intervals: a panel for each figure, a marker for each scheme."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from mininet_topos.experiments.schemes import style_of
from mininet_topos.results.panels import legend_below, panels
from mininet_topos.results.summary import Row

SPREAD = 0.6
"""The part of the distance between two cases that the markers of one case take."""


def _unit(figure: str) -> str:
    if figure.startswith("slowdown"):
        return ""
    return " (Mbit/s)" if figure == "goodput" else " (ms)"


def median_plot(found: Sequence[Row]) -> Figure:
    """Draw the medians (``comparisons.medians``) of each figure by case.

    A median of too few repeats has no interval.
    """
    figures = list(dict.fromkeys(row["figure"] for row in found))
    cases = list(dict.fromkeys(row["case"] for row in found))
    schemes = list(dict.fromkeys(row["scheme"] for row in found))
    figure, axes = panels(len(figures))
    for axis, name in zip(axes, figures, strict=True):
        for number, scheme in enumerate(schemes):
            style = style_of(scheme)
            own = [row for row in found if (row["figure"], row["scheme"]) == (name, scheme)]
            offset = SPREAD * ((number + 0.5) / len(schemes) - 0.5)
            middle = np.array([row["median"] for row in own])
            ends = np.array(
                [[row["median"] if row[end] is None else row[end] for end in ("low", "high")] for row in own]
            ).reshape(-1, 2)
            axis.errorbar(
                [cases.index(row["case"]) + offset for row in own],
                middle,
                np.abs(ends.T - middle),
                color=style.colour,
                linestyle="none",
                marker=style.marker,
                markersize=4,
                capsize=2,
                label=style.label,
            )
        axis.set_xticks(range(len(cases)), cases)
        axis.set_ylim(bottom=0)
        axis.set_xlim(-0.5, len(cases) - 0.5)
        axis.set_ylabel(name + _unit(name))
        axis.set_xlabel("case; bars: 95 % interval of the median")
    legend_below(figure, axes)
    return figure
