"""A rehearsal: a network is built, its hosts are reached, and it is removed; the lab measures each stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mininet_topos.errors import LabError
from mininet_topos.experiments.schemes import Scheme
from mininet_topos.network.lab_network import network_apart
from mininet_topos.network.layout import lay_out
from mininet_topos.records.result_folder import make_folder, write_json
from mininet_topos.running.scheme_programs import running

Row = dict[str, float]
STAGES = ("up_s", "reached_s", "down_s")


def rehearse(
    spec: str, scheme: Scheme, times: int, folder: Path, say: Callable[[str], None]
) -> Iterator[Row]:
    """Yield, for each of `times` rehearsals, the duration of each stage in seconds.

    `folder` gets the logs and `rehearsal.json`. Raises BadExperiment, Unable, ProgramFailed, and LabError if
    something of the network still exists afterwards.
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
        raise LabError(f"still there after the removal: {', '.join(left)}; run `weir lab clean`")
    seconds = (up - began, reached - up, down - reached)
    return {name: round(value, 2) for name, value in zip(STAGES, seconds, strict=True)}


def extremes(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a row for each stage with its shortest and its longest duration."""
    return [
        {"stage": name.removesuffix("_s"), "least": min(values), "most": max(values)}
        for name in STAGES
        if (values := [row[name] for row in rows])
    ]
