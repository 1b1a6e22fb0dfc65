"""A network brought up, its hosts reached, and taken down again: how long that takes, so many times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich import box
from rich.table import Table

from mininet_topos.errors import LabError
from mininet_topos.layout import lay_out
from mininet_topos.net import network_apart
from mininet_topos.programs import running
from mininet_topos.results.folder import make_folder, write_json
from mininet_topos.schemes import Scheme

Row = dict[str, float]
STAGES = ("up_s", "reached_s", "down_s")


def rehearse(
    spec: str, scheme: Scheme, times: int, folder: Path, say: Callable[[str], None]
) -> Iterator[Row]:
    """How long each of `times` took to come up, to have every host reached, and to go down, in seconds.

    `folder` gets the logs and `rehearsal.json`. Raises BadExperiment, Unable, ProgramFailed, and LabError
    where something is left behind.
    """
    lay_out(spec, 1, 0, {})
    make_folder(folder)
    rows = []
    for number in range(1, times + 1):
        say(f"{spec}: {number} of {times}")
        rows.append(_once(spec, scheme, folder / "raw" / str(number)))
        write_json(folder / "rehearsal.json", rows)
        yield rows[-1]


def _once(spec: str, scheme: Scheme, folder: Path) -> Row:
    began = time.monotonic()
    with network_apart(lay_out(spec, 1, 0, {})) as net:
        up = time.monotonic()
        with running(scheme, net, folder):
            reached = time.monotonic()
    down = time.monotonic()
    if left := net.state.left():
        raise LabError(f"left behind: {', '.join(left)}; run `weir lab clean`")
    seconds = (up - began, reached - up, down - reached)
    return {name: round(value, 2) for name, value in zip(STAGES, seconds, strict=True)}


def table(rows: list[Row]) -> Table:
    """The shortest and the longest of each stage, for a terminal."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for heading in ("seconds", "least", "most"):
        made.add_column(heading, justify="right" if heading != "seconds" else "left")
    for name in STAGES:
        values = [row[name] for row in rows]
        made.add_row(name.removesuffix("_s"), f"{min(values):.1f}", f"{max(values):.1f}")
    return made
