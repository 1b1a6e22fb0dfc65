"""Progress of transfers on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from dcudp.events import FileState


@contextmanager
def showing_progress(*, enabled: bool) -> Iterator[Callable[[FileState], None]]:
    """A function that takes the state of a transfer. On a terminal it draws a bar for each file under way."""
    if not enabled or not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def show(state: FileState) -> None:
            if state.is_over:
                if (ended := tasks.pop(state.name, None)) is not None:
                    progress.remove_task(ended)
                return
            if state.name not in tasks:
                tasks[state.name] = progress.add_task(state.name, total=state.size)
            progress.update(tasks[state.name], completed=state.done)

        yield show
