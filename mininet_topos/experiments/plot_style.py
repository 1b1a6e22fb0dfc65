"""The style of a scheme or a baseline in every plot, table and report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlotStyle:
    """Label, colour, line style and marker.

    ``colour`` is a hexadecimal RGB value; the project's schemes use the set of Okabe and Ito, whose
    colours differ for colour-blind readers too. ``line`` and ``marker`` have the values of matplotlib.
    """

    label: str
    colour: str
    line: str | tuple[int, tuple[int, ...]] = "-"
    marker: str = "o"
