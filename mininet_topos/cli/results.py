"""`weir lab` report, summarise, plot and compare: the figures of result folders."""

from __future__ import annotations

import json
from pathlib import Path

import click

from mininet_topos.cli.parameters import rows_as_json_option
from mininet_topos.cli.terminal import REPORT, errors_in_a_line, plain, show, show_verdicts
from mininet_topos.results import compare as comparison
from mininet_topos.results.caveats import missing_runs, not_recorded
from mininet_topos.results.summary import load_experiment, read_summary, summarise
from weir_base import tables

_folder_argument = click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))


@click.command("summarise")
@_folder_argument
def summarise_command(folder: Path) -> None:
    """Make summary.json of a result FOLDER again from its raw records, and print its rows."""
    with errors_in_a_line():
        click.echo(json.dumps(summarise(folder)))


@click.command("plot")
@_folder_argument
def plot_command(folder: Path) -> None:
    """Draw the plots of a result FOLDER again from its summary.json, and print their paths."""
    from mininet_topos.results.plots import plot  # matplotlib takes a second to import

    with errors_in_a_line():
        rows = read_summary(folder)
        for line in not_recorded(rows):
            plain(line)
        click.echo("\n".join(str(path) for path in plot(folder, rows)))


@click.command("compare")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def compare_command(before: Path, after: Path, as_json: bool) -> None:
    """Compare two result folders: the same cases and schemes, BEFORE and AFTER a change."""
    with errors_in_a_line():
        rows = comparison.compare(before, after)
        first_lines = comparison.caveats(before, after)
    for line in first_lines:
        click.echo(line, err=as_json)
    if as_json:
        click.echo(json.dumps(rows))
    else:
        tables.show(comparison.COLUMNS, rows)
        click.echo("\n".join(comparison.findings(rows)))


@click.command("report")
@_folder_argument
@rows_as_json_option
def report_command(folder: Path, as_json: bool) -> None:
    """Make the summary, the plots and the report of a result FOLDER again from its raw records."""
    from mininet_topos.results.report import make_report  # matplotlib takes a second to import

    with errors_in_a_line():
        rows = make_report(folder)
        for line in missing_runs(folder, load_experiment(folder), rows):
            plain(line, style="red")
        show(rows, folder / REPORT, as_json)
        show_verdicts([folder])
