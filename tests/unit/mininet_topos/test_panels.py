"""Figures of several panels."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from mininet_topos.results import plots
from mininet_topos.results.panels import legend_below, panels


def test_a_legend_has_each_label_once_and_leaves_room_for_the_panels() -> None:
    """Six repeats of three schemes, as in a full experiment."""
    figure, axes = panels(2)
    for axis in axes:
        for _ in range(6):
            for label in ("plain TCP", "SDTCP", "SDTCP, corrected allowance"):
                axis.plot([0, 1], [0, 1], label=label)
    legend_below(figure, axes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.draw_without_rendering()
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["plain TCP", "SDTCP", "SDTCP, corrected allowance"]
    assert min(axis.get_position().height for axis in axes) > 0.4


def test_a_legend_of_one_panel_has_several_lines() -> None:
    figure, axes = panels(1)
    for number in range(6):
        axes[0].plot([0, 1], [0, 1], label=f"a scheme with a long name {number}")
    legend_below(figure, axes)
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    assert 0 <= legend.x0 < legend.x1 <= figure.bbox.width


def test_dollars_in_the_title_of_a_case_are_no_mathematics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "_times_ms", lambda folder, row: [1.0, 2.0])
    title = "from $A to $\\B"
    row = {"case": "a", "scheme": "plain", "title": title, "ideal_ms": 1.0, "repeat": 1, "valid": True}
    figure = plots.query_times(tmp_path, {"a": [row]})
    figure.draw_without_rendering()
    assert figure.axes[0].get_title() == f"a: {title}"
