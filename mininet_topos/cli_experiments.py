"""`weir lab` list, run, report, summarise, plot, compare: experiments in files, and result folders."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.console import Console

from mininet_topos import catalogue
from mininet_topos import lab as running
from mininet_topos.errors import BadExperiment, LabError, ProgramFailed, RunFailed, Unable
from mininet_topos.net import require_machine
from mininet_topos.results import compare as comparing
from mininet_topos.results.summary import Row, read_summary, summarise
from mininet_topos.terminal import (
    REPORT,
    complain,
    errors_in_a_line,
    out_folder,
    progress_of,
    reported,
    show,
    show_trends,
    signals_unwind,
)

EXIT_TREND = 3


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the experiments as JSON.")
def list_command(as_json: bool) -> None:
    """List the experiments, with the figures that they reproduce."""
    with errors_in_a_line():
        there = catalogue.entries()
    rows = [
        {"name": name, "quick": entry.quick, "steps": running.steps(entry.experiment), **entry.head}
        for name, entry in there.items()
    ]
    if as_json:
        click.echo(json.dumps(rows))
        return
    width = max(map(len, there)) + 2
    for row in rows:
        quick = "quick  " if row["quick"] else "       "
        click.echo(f"{row['name']:{width}}{quick}{row['reproduces']}: {row['title']}")


@click.command("run")
@click.argument("names", nargs=-1, required=True, metavar="NAME|FILE|quick|all...")
@click.option("--out", type=click.Path(path_type=Path), help="Where each experiment's folder is made.")
@click.option("--resume", is_flag=True, help="Go on with what --out holds; what is done is left as it is.")
@click.option(
    "--raw", is_flag=True, help="Run alone: no summary, plots, report (weir lab report makes them)."
)
@click.option("--controller-port", type=click.IntRange(1, 65535), help="Default: a free one.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows of all summaries.")
def run_command(
    names: tuple[str, ...],
    out: Path | None,
    resume: bool,
    raw: bool,
    controller_port: int | None,
    as_json: bool,
) -> None:
    """Run experiments that stand in files: `weir lab list` names them.

    At the end stands what each figure's trends came to, on stderr; the exit status is 3 where one does not
    hold. Of several experiments those that this kernel cannot run, or that break off, are left out and named.
    """
    with errors_in_a_line(), signals_unwind():
        chosen = catalogue.chosen(names)
        if resume and out is None:
            raise BadExperiment("--resume goes on with a folder: name it with --out")
        require_machine()
        parent = out_folder("lab", out)
        with progress_of(sum(running.steps(entry.experiment) for entry in chosen)) as progress:
            rows, left_out = _run_each(chosen, parent, progress, controller_port, resume, raw)
        if raw:
            click.echo(json.dumps([]) if as_json else f"raw records: {parent}")
        else:
            show(rows, parent / "*" / REPORT, as_json)
        done = [parent / name for entry in chosen if (name := entry.experiment.name) not in left_out]
        all_hold = raw or show_trends(done)
        for name, error in left_out.items():
            complain(f"{name} is left out: {error}")
        if any(not isinstance(error, Unable) for error in left_out.values()):
            sys.exit(1)
        sys.exit(0 if all_hold else EXIT_TREND)


def _run_each(
    chosen: list[catalogue.Entry],
    parent: Path,
    progress: running.Progress,
    port: int | None,
    resume: bool,
    raw: bool,
) -> tuple[list[Row], dict[str, LabError]]:
    """Run experiments; returns their rows, and why some of several are left out. One alone raises instead."""
    rows: list[Row] = []
    left_out: dict[str, LabError] = {}
    for entry in chosen:
        name = entry.experiment.name
        try:
            running.run_experiment(entry.experiment, parent / name, progress, port, entry.about, resume)
            rows += [] if raw else reported(parent / name, progress)
        except (Unable, ProgramFailed, RunFailed) as error:
            if len(chosen) == 1:
                raise
            progress.warn(f"{name}: {error}; going on with the others")
            left_out[name] = error
    return rows, left_out


@click.command("summarise")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def summarise_command(folder: Path) -> None:
    """Make summary.json of a result FOLDER again, alone, and print its rows."""
    with errors_in_a_line():
        click.echo(json.dumps(summarise(folder)))


@click.command("plot")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def plot_command(folder: Path) -> None:
    """Draw the plots of a result FOLDER again, alone, from its summary.json."""
    from mininet_topos.results.plots import plot  # matplotlib takes a second to import

    with errors_in_a_line():
        click.echo("\n".join(str(path) for path in plot(folder, read_summary(folder))))


@click.command("compare")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def compare_command(before: Path, after: Path, as_json: bool) -> None:
    """Set two result folders side by side."""
    with errors_in_a_line():
        rows = comparing.compare(before, after)
    if as_json:
        click.echo(json.dumps(rows))
    else:
        Console().print(comparing.table(rows))


@click.command("report")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the rows of summary.json.")
def report_command(folder: Path, as_json: bool) -> None:
    """Make summary, plots and report of a result FOLDER again from its raw records."""
    from mininet_topos.results.report import make_report  # matplotlib takes a second to import

    with errors_in_a_line():
        show(make_report(folder), folder / REPORT, as_json)
        show_trends([folder])


COMMANDS = (list_command, run_command, report_command, summarise_command, plot_command, compare_command)
