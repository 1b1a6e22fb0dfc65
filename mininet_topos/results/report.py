"""`report.html`: one standalone file: tables, plots, parameters, a verdict on each run and trend."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from mininet_topos.experiment import Experiment
from mininet_topos.results.folder import read_metadata
from mininet_topos.results.plots import plot
from mininet_topos.results.style import LOOKS
from mininet_topos.results.summary import Row, summarise
from mininet_topos.results.trends import judge

TEMPLATE = "report.html.j2"


def make_report(folder: Path) -> list[Row]:
    """Summary, trends, plots and report of a result folder, from its raw records. Returns the rows.

    Raises BadExperiment where the folder holds no experiment.
    """
    metadata = {"head": {}, "trends": []} | read_metadata(folder)
    experiment = Experiment.from_json(metadata["experiment"])
    rows = summarise(folder)
    drawings = plot(folder, rows) if rows else []
    environment = Environment(
        loader=PackageLoader("mininet_topos.results", "."),
        autoescape=select_autoescape(["html", "j2"]),
        undefined=StrictUndefined,
    )
    page = environment.get_template(TEMPLATE).render(
        rows=rows,
        trends=judge(folder, rows, metadata["trends"], experiment),
        looks=LOOKS,
        experiment=experiment,
        metadata=metadata,
        drawings=[Markup(_inline(path)) for path in drawings],  # noqa: S704 - our own drawings
    )
    (folder / "report.html").write_text(page)
    return rows


def _inline(path: Path) -> str:
    """An SVG file as an element: without the XML declaration, its identifiers made unique."""
    text = path.read_text()
    element = text[text.index("<svg") :]
    for attribute in ('id="', 'href="#', "url(#"):
        element = element.replace(attribute, f"{attribute}{path.stem}-")
    return element
