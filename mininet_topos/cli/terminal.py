"""The terminal output of `weir lab`: errors in one line, progress, tables of rows, verdicts on trends."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click
from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from mininet_topos.errors import LabError
from mininet_topos.results.caveats import missing_runs, unequal_cases
from mininet_topos.results.comparisons import (
    MEDIAN_COLUMNS,
    by_chance,
    comparisons,
    different,
    medians,
    repeated,
)
from mininet_topos.results.summary import Row, load_experiment
from mininet_topos.results.table import FLOW_COLUMNS, QUERY_COLUMNS, notes
from mininet_topos.results.verdicts import HOLDS, read_verdicts, sentence
from mininet_topos.running.experiment_runner import Progress
from weir_base import tables

console = Console(stderr=True)
REPORT = "report.html"
EXIT_SIGINT = 128 + signal.SIGINT


class Terminated(BaseException):
    """The command has received SIGTERM or SIGHUP, the number of which is its first argument."""


def out_folder(name: str, out: Path | None) -> Path:
    """Return the result folder of a command: the user's choice, or a new one below `results`."""
    return out or Path("results") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def reported(folder: Path, progress: Progress) -> list[Row]:
    """Make the summary, the plots and the report of a result folder, and return the rows.

    Warns of runs without figures.
    """
    progress.say("summary, plots, report")
    from mininet_topos.results.report import make_report  # matplotlib takes a second to import

    rows = make_report(folder)
    for line in missing_runs(folder, load_experiment(folder), rows):
        progress.warn(line)
    return rows


@contextlib.contextmanager
def errors_in_a_line() -> Iterator[None]:
    """Print an error of the lab, or an interruption, as one line on stderr; exit with a non-zero status."""
    try:
        yield
    except LabError as error:
        complain(f"weir lab: {error}")
        sys.exit(1)
    except OSError as error:  # above all a full disk
        what = error.filename or "a result file"
        complain(f"weir lab: {what}: {error.strerror}; finished runs are kept")
        sys.exit(1)
    except (KeyboardInterrupt, Terminated) as signalled:
        status = EXIT_SIGINT if isinstance(signalled, KeyboardInterrupt) else 128 + signalled.args[0]
        parts = ["interrupted", "the network and its programs are removed"]
        with contextlib.suppress(OSError):  # the terminal may be gone
            complain(f"weir lab: {'; '.join([*parts, *getattr(signalled, '__notes__', ())])}")
        sys.exit(status)


@contextlib.contextmanager
def runs_kept_in(folder: Path, remedy: str) -> Iterator[None]:
    """Let the line about an interruption state where finished runs are, and what to do with them."""
    try:
        yield
    except (KeyboardInterrupt, Terminated) as signalled:
        if folder.exists():
            signalled.add_note(f"finished runs are in {folder}: {remedy}")
        raise


@contextlib.contextmanager
def signals_unwind() -> Iterator[None]:
    """Let SIGTERM, SIGINT and SIGHUP raise an exception, so that the network is removed.

    SIGTERM and SIGINT do so even if the caller's shell has set them to be ignored. SIGHUP, which a terminal
    sends when it is closed, stays ignored under nohup.
    """

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        raise Terminated(number)

    handlers = {signal.SIGTERM: end, signal.SIGINT: signal.default_int_handler}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handlers[signal.SIGHUP] = end
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def progress_of(steps: int) -> Iterator[Progress]:
    """Show a progress bar with the remaining time; without a terminal, print a line for each new activity."""
    if not console.is_terminal:
        yield Progress(say=_activities(), done=lambda: None, warn=plain)
        return
    columns = (SpinnerColumn(), BarColumn(20), TimeRemainingColumn(), TextColumn("{task.description}"))
    with ProgressBar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=steps)
        yield Progress(
            say=lambda text: bar.update(task, description=text),
            done=lambda: bar.advance(task),
            warn=lambda text: bar.console.print(text, style="yellow", markup=False, highlight=False),
        )


def _activities() -> Callable[[str], None]:
    """Return a function that prints each new activity once, without the number of finished queries."""
    last = ""

    def say(text: str) -> None:
        nonlocal last
        activity = text.partition(": query ")[0]
        if activity != last:
            plain(activity)
            last = activity

    return say


def plain(text: str, style: str | None = None) -> None:
    """Print a line on stderr without wrapping it and without interpreting its characters."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def complain(text: str) -> None:
    """Print a text as one red line on stderr."""
    plain(" ".join(text.split()), style="red")


def show(rows: list[Row], report: Path, as_json: bool) -> None:
    """Print rows as tables or as JSON, and the path of the report.

    The first lines name the comparisons whose schemes were disturbed unequally; with JSON they go to stderr.
    Each of several experiments has tables of its own, because their cases may have the same names.
    """
    first_lines = unequal_cases(rows)
    if as_json:
        for line in first_lines:
            plain(line, style="red")
        click.echo(json.dumps(rows))
        return
    out = tables.console()
    for line in first_lines:
        out.print(line, style="red", soft_wrap=True, markup=False)
    names = list(dict.fromkeys(row["experiment"] for row in rows))
    for name in names:
        if len(names) > 1:
            out.print(f"experiment {name}", style="bold", markup=False)
        _show_experiment([row for row in rows if row["experiment"] == name], out)
    out.print(f"results: {report.parent}   report: {report}", soft_wrap=True, markup=False)


def _show_experiment(rows: list[Row], out: Console) -> None:
    """Print the tables of one experiment, and the lines below them."""
    if repeated(rows):
        tables.show(MEDIAN_COLUMNS, medians(rows), title="medians over the repeats")
        none = ["no two schemes differ, as far as the intervals say"]
        for line in [*(different(rows) or none), *by_chance(comparisons(rows))]:
            out.print(line, soft_wrap=True, markup=False)
    if asked := [row for row in rows if row["queries"]]:
        tables.show(QUERY_COLUMNS, asked, title="query completion times")
    if sampled := [row for row in rows if row["goodput_mbps"] is not None and not row["queries"]]:
        tables.show(FLOW_COLUMNS, sampled, title="flows")
    for line in notes(rows):
        out.print(line, soft_wrap=True, markup=False)
    if void := sum(not row["valid"] for row in rows):
        out.print(f"{void} of {len(rows)} runs are void (*): see the report", style="red")


def show_verdicts(folders: list[Path]) -> bool:
    """Print the verdict on each folder's trends to stderr. Returns whether all hold."""
    verdicts = []
    for folder in folders:
        for verdict in read_verdicts(folder):
            verdicts.append(verdict["verdict"])
            style = None if verdicts[-1] == HOLDS else "red"
            plain(f"{folder.name}, {sentence(verdict)}: {verdicts[-1]}", style)
    return all(verdict == HOLDS for verdict in verdicts)
