"""How the lab's commands speak to a terminal: errors in a line, progress, the table of rows."""

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
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from mininet_topos import lab as running
from mininet_topos.errors import LabError
from mininet_topos.results.summary import Row
from mininet_topos.results.table import flow_table, notes, table
from mininet_topos.results.trends import FAILS, HOLDS, read_trends, sentence

console = Console(stderr=True)
REPORT = "report.html"
EXIT_SIGTERM = 128 + signal.SIGTERM
EXIT_SIGINT = 128 + signal.SIGINT


class Terminated(BaseException):
    """SIGTERM came."""


def out_folder(name: str, out: Path | None) -> Path:
    return out or Path("results") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def reported(folder: Path, progress: running.Progress) -> list[Row]:
    progress.say("summary, plots, report")
    from mininet_topos.results.report import make_report  # matplotlib takes a second to import

    return make_report(folder)


@contextlib.contextmanager
def errors_in_a_line() -> Iterator[None]:
    """An error of the lab, or Ctrl-C, is one line on stderr and a non-zero exit."""
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
        complain("weir lab: broken off; nothing is left behind")
        sys.exit(EXIT_SIGINT if isinstance(signalled, KeyboardInterrupt) else EXIT_SIGTERM)


@contextlib.contextmanager
def signals_unwind() -> Iterator[None]:
    """SIGTERM unwinds as Ctrl-C does, so that all is cleaned up; both do, also where they were ignored."""

    def on_sigterm(_number: int, _frame: FrameType | None) -> NoReturn:
        raise Terminated

    handlers = {signal.SIGTERM: on_sigterm, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def progress_of(steps: int) -> Iterator[running.Progress]:
    """A bar with the time left on a terminal; elsewhere a line for each thing that is begun."""
    if not console.is_terminal:
        yield running.Progress(say=_begun(), done=lambda: None, warn=plain)
        return
    columns = (SpinnerColumn(), BarColumn(20), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=steps)
        yield running.Progress(
            say=lambda text: bar.update(task, description=text),
            done=lambda: bar.advance(task),
            warn=lambda text: bar.console.print(text, style="yellow", markup=False, highlight=False),
        )


def _begun() -> Callable[[str], None]:
    """Prints what is begun, but not how far it is."""
    last = ""

    def say(text: str) -> None:
        nonlocal last
        thing = text.partition(": query ")[0]
        if thing != last:
            plain(thing)
            last = thing

    return say


def plain(text: str, style: str | None = None) -> None:
    """A line on stderr as it is, however long and whatever is in it."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def complain(text: str) -> None:
    """A text in one red line on stderr."""
    plain(" ".join(text.split()), style="red")


def show(rows: list[Row], report: Path, as_json: bool) -> None:
    """Print rows, as tables or JSON, and where more is."""
    if as_json:
        click.echo(json.dumps(rows))
        return
    out = Console()
    if any(row["queries"] for row in rows):
        out.print(table(rows))
    if sampled := [row for row in rows if row["goodput_mbps"] is not None and not row["queries"]]:
        out.print(flow_table(sampled))
    for line in notes(rows):
        out.print(line, highlight=False, soft_wrap=True)
    void = sum(not row["valid"] for row in rows)
    if void:
        out.print(f"{void} of {len(rows)} runs are void (*): see the report", style="red")
    out.print(f"results: {report.parent}   report: {report}", soft_wrap=True, highlight=False)


def show_trends(folders: list[Path]) -> bool:
    """Say on stderr what became of each folder's trends; returns whether none fails."""
    verdicts = []
    for folder in folders:
        for judgement in read_trends(folder):
            verdicts.append(judgement["verdict"])
            style = None if verdicts[-1] == HOLDS else "red"
            plain(f"{folder.name}, {sentence(judgement)}: {verdicts[-1]}", style)
    return FAILS not in verdicts
