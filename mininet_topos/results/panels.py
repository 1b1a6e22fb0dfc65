"""Figures of several panels side by side, with one legend below them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mininet_topos.experiments.schemes import style_of

COLUMN_IN = 3.4
PANEL_IN = 2.3
HANDLE_IN, CHARACTER_IN = 0.6, 0.07
"""What a label takes in a legend: its line with the gaps, and each of its characters, at most."""


def panels(count: int, height_in: float = PANEL_IN, sharey: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels in a row."""
    figure = Figure(figsize=(COLUMN_IN * count, height_in), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False, sharey=sharey)[0]
    return figure, list(axes)


def curve_label(row: Mapping[str, Any]) -> str:
    """The label of a run's curve: its scheme, and whether the run is void."""
    return style_of(row["scheme"]).label + ("" if row["valid"] else " (void)")


def legend_below(figure: Figure, axes: list[Axes]) -> None:
    """Each label of the panels once: a scheme has a curve for each repeat, in each panel."""
    handles = {
        text: line for axis in axes for line, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    label_in = HANDLE_IN + CHARACTER_IN * max(map(len, handles), default=0)
    columns = max(1, min(len(handles), int(figure.get_figwidth() / label_in)))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)
