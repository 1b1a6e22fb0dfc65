"""`report.html`: one standalone file with tables, plots, parameters, and verdicts on runs and trends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from mininet_topos.experiments.experiment import Experiment
from mininet_topos.experiments.schemes import style_of
from mininet_topos.network.layers import LAYERS
from mininet_topos.records.result_folder import read_metadata
from mininet_topos.results.caveats import all_caveats, missing_runs, unequal_cases
from mininet_topos.results.comparisons import (
    by_chance,
    comparisons,
    median_text,
    medians,
    repeated,
    with_interval,
    write_comparisons,
)
from mininet_topos.results.disturbance import taken_by_hypervisor
from mininet_topos.results.plots import plot
from mininet_topos.results.slowdown import LABELS
from mininet_topos.results.summary import Row, summarise
from mininet_topos.results.verdicts import judge_all

TEMPLATE = "report.html.j2"


def make_report(folder: Path) -> list[Row]:
    """Make summary, verdicts, plots and report of a result folder from its raw records. Returns the rows.

    Raises BadExperiment if the folder holds no experiment.
    """
    metadata = {"head": {}, "trends": [], "changes": {}, "links_by": ""} | read_metadata(folder)
    experiment = Experiment.from_json(metadata["experiment"])
    rows = summarise(folder)
    write_comparisons(folder, rows)
    drawings = plot(folder, rows) if rows else []
    compared = comparisons(rows) if repeated(rows) else []
    environment = Environment(
        loader=PackageLoader("mininet_topos.results", "."),
        autoescape=select_autoescape(["html", "j2"]),
        undefined=StrictUndefined,
    )
    page = environment.get_template(TEMPLATE).render(
        rows=rows,
        unequal=unequal_cases(rows),
        missing=missing_runs(folder, experiment, rows),
        caveats=all_caveats(rows),
        taken_by_hypervisor=taken_by_hypervisor,
        medians=medians(rows) if repeated(rows) else [],
        comparisons=compared,
        by_chance=by_chance(compared),
        median_text=median_text,
        with_interval=with_interval,
        trends=judge_all(folder, rows, metadata["trends"], experiment),
        style_of=style_of,
        slowdown_labels=LABELS,
        layers=LAYERS,
        experiment=experiment,
        sysctls=sysctls_of_hosts(rows),
        metadata=metadata,
        drawings=[Markup(_inline(path)) for path in drawings],  # noqa: S704 - our own drawings
    )
    (folder / "report.html").write_text(page)
    return rows


def sysctls_of_hosts(rows: Sequence[Row]) -> dict[str, str]:
    """Return the values of the hosts' settings, by the name of setting and host.

    If not all schemes have the same value, each value names its schemes.
    """
    found: dict[str, dict[str, dict[str, None]]] = {}
    for row in rows:
        for host, settings in (row["sysctl"] or {}).items():
            for name, value in settings.items():
                of_value = found.setdefault(f"{name} of {host}", {}).setdefault(value, {})
                of_value[style_of(row["scheme"]).label] = None
    return {
        name: next(iter(values))
        if len(values) == 1
        else "; ".join(f"{value} ({', '.join(labels)})" for value, labels in values.items())
        for name, values in found.items()
    }


def _inline(path: Path) -> str:
    """Return an SVG file as an element, without the XML declaration and with unique identifiers."""
    text = path.read_text()
    element = text[text.index("<svg") :]
    for attribute in ('id="', 'href="#', "url(#"):
        element = element.replace(attribute, f"{attribute}{path.stem}-")
    return element
