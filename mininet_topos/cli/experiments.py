"""`weir lab` list, schemes and run: experiments in files."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from mininet_topos.cli.parameters import Change, controller_port_option, unpinned_option
from mininet_topos.cli.terminal import (
    REPORT,
    complain,
    errors_in_a_line,
    out_folder,
    progress_of,
    reported,
    runs_kept_in,
    show,
    show_verdicts,
    signals_unwind,
)
from mininet_topos.errors import BadExperiment, LabError, Unable
from mininet_topos.experiments import catalogue
from mininet_topos.experiments.schemes import schemes
from mininet_topos.machine.requirements import require_machine
from mininet_topos.plain_values import first_twice
from mininet_topos.records.result_folder import require_usable
from mininet_topos.results.summary import Row
from mininet_topos.running import experiment_runner
from mininet_topos.running.experiment_runner import Progress, steps
from weir_base import tables

EXIT_TREND = 3


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the experiments as JSON.")
def list_command(as_json: bool) -> None:
    """List the experiments of the project with the figures that they reproduce."""
    with errors_in_a_line():
        entries = catalogue.entries()
    rows = [
        {"name": name, "quick": entry.quick, "steps": steps(entry.experiment), **entry.head}
        for name, entry in entries.items()
    ]
    if as_json:
        click.echo(json.dumps(rows))
        return
    columns = (
        tables.Column("name", align="left"),
        tables.Column("quick"),
        tables.Column("reproduces", align="left", fold_at=16),
        tables.Column("title", align="left", fold_at=24),
    )
    tables.show(columns, rows)


@click.command("schemes")
@click.option("--json", "as_json", is_flag=True, help="Print the schemes as JSON.")
def schemes_command(as_json: bool) -> None:
    """List the schemes that an experiment can compare, with their programs and transports."""
    with errors_in_a_line():
        found = schemes()
    rows = [
        {"name": name, "label": scheme.style.label, "apps": scheme.apps, "agent": scheme.extended}
        | {"transports": scheme.transports}
        for name, scheme in found.items()
    ]
    if as_json:
        click.echo(json.dumps(rows))
        return
    columns = (
        tables.Column("name", align="left"),
        tables.Column("label", align="left"),
        tables.Column("agent"),
        tables.Column("transports", align="left", fold_at=10),
        tables.Column("apps", align="left", fold_at=14),
    )
    tables.show(columns, rows)


@click.command("run")
@click.argument("names", nargs=-1, required=True, metavar="NAME|FILE|quick|all...")
@click.option(
    "--out", type=click.Path(path_type=Path), help="The folder that gets a result folder for each experiment."
)
@click.option("--resume", is_flag=True, help="Continue the experiments in --out; finished runs are kept.")
@click.option("--raw", is_flag=True, help="Only run: no summary, plots or report (see `weir lab report`).")
@click.option(
    "--repeat",
    "repeats",
    type=click.IntRange(min=1),
    help="Number of runs of each case, instead of the experiment's own; from 6 on with intervals.",
)
@click.option(
    "--set",
    "changes",
    type=Change(),
    multiple=True,
    help="Change a field of each experiment, e.g. delay_ms=5 or congestion_control=bbr. Repeat it for more.",
)
@unpinned_option
@controller_port_option
@click.option("--json", "as_json", is_flag=True, help="Print the rows of all summaries.")
def run_command(
    names: tuple[str, ...],
    out: Path | None,
    resume: bool,
    raw: bool,
    repeats: int | None,
    changes: tuple[tuple[str, Any], ...],
    unpinned: bool,
    controller_port: int | None,
    as_json: bool,
) -> None:
    """Run experiments by NAME (see `weir lab list`), from a FILE, or the sets `quick` and `all`.

    At the end, the command prints a verdict on each trend to stderr. The exit status is 3 if a trend does not
    hold, or if no valid run shows it. If you run several experiments, the command skips an experiment that
    fails, or that this kernel cannot run, and names it at the end. The exit status is 1 if one failed, or if
    all are skipped.
    """
    with errors_in_a_line(), signals_unwind():
        changed = _changed_once(changes)
        chosen = [_adapted(entry, not unpinned, repeats) for entry in catalogue.chosen(names, changed)]
        if resume and out is None:
            raise BadExperiment("--resume continues an existing folder: name it with --out")
        parent = out_folder("lab", out)
        _require_folders(chosen, parent, resume)
        require_machine()
        total = sum(steps(entry.experiment) for entry in chosen)
        remedy = f"the same command with --resume --out {parent} goes on"
        with runs_kept_in(parent, remedy), progress_of(total) as progress:
            rows, skipped = _run_each(chosen, parent, progress, controller_port, resume, raw)
        if raw:
            click.echo(json.dumps([]) if as_json else f"raw records: {parent}")
        else:
            show(rows, parent / "*" / REPORT, as_json)
        done = [parent / name for entry in chosen if (name := entry.experiment.name) not in skipped]
        all_hold = raw or show_verdicts(done)
        for name, error in skipped.items():
            complain(f"{name} is skipped: {error}")
        for entry in chosen:
            for says in entry.left_out:
                complain(f"{entry.experiment.name}: not judged, because of --set: {says}")
        if not done or any(not isinstance(error, Unable) for error in skipped.values()):
            sys.exit(1)
        sys.exit(0 if all_hold else EXIT_TREND)


def _changed_once(changes: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Return the fields of --set. Raises BadExperiment if one is given twice."""
    if twice := first_twice([key for key, _ in changes]):
        raise BadExperiment(f"--set gives {twice} twice: give it once")
    return dict(changes)


def _adapted(entry: catalogue.Entry, pinned: bool, repeats: int | None) -> catalogue.Entry:
    """Return an experiment with the repeats of the command line; unpinned if either says so."""
    own = entry.experiment
    changed = replace(own, pinned=own.pinned and pinned, repeats=repeats or own.repeats)
    return replace(entry, experiment=changed)


def _require_folders(chosen: list[catalogue.Entry], parent: Path, resume: bool) -> None:
    """Raise BadExperiment, before the first run, if an experiment could not have its folder later."""
    names = [entry.experiment.name for entry in chosen]
    if twice := first_twice(names):
        raise BadExperiment(
            f"two experiments are called {twice}, and each needs a folder of its own: name each once, or set "
            f"`name` in one of the files"
        )
    for entry in chosen:
        require_usable(parent / entry.experiment.name, entry.experiment, resume)


def _run_each(
    chosen: list[catalogue.Entry],
    parent: Path,
    progress: Progress,
    port: int | None,
    resume: bool,
    raw: bool,
) -> tuple[list[Row], dict[str, LabError]]:
    """Run experiments. Returns their rows, and the errors of the skipped experiments.

    If there is only one experiment, its error is raised instead.
    """
    rows: list[Row] = []
    skipped: dict[str, LabError] = {}
    for entry in chosen:
        name = entry.experiment.name
        try:
            experiment_runner.run_experiment(
                entry.experiment, parent / name, progress, port, entry.about, resume
            )
            rows += [] if raw else reported(parent / name, progress)
        except LabError as error:
            if len(chosen) == 1:
                raise
            progress.warn(f"{name}: {error}; continuing with the other experiments")
            skipped[name] = error
    return rows, skipped
