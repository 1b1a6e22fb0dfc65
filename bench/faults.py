"""Break parts of a running network under load, one after another, and check all that is promised.

    python -m bench.faults [--seconds N] [--seed S] [--engine ryu|os-ken] [--controls sdtcp|sccp]
        [--faults A,B] [--json]

Two streams fill a port of 30 Mbit/s under SDTCP or SCCP. The faults are kill -9, a pause and an orderly
restart of agent, controller, writer, ovs-vswitchd and ovsdb-server, a locked database, a full disk, and
jumps of the clocks of controller and agent by seven hours. Each lasts 0.5 to 3 s. Every round of faults has
each once; the seed decides the order and the times. After each fault, within 30 s: the streams send, the
data plane follows no other flow, N_i is right (SCCP), hosts can connect, connections are recorded once and
with possible times (those during the fault too, unless a part that records was killed), the streams are
recorded as open, and no flow is punished that does not send to the slow port. At the end the streams must
have lost no byte, and no clamp may stand.

"normal s" is the longest time until all checks held. The memory of each part is the least and the most in
KB, over the ends of all faults. The exit status is 1 if anything was violated. Needs root and Open vSwitch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from bench.figures import present
from bench.temporary import temporary_folder
from tests.support.faults.faults import FAULTS
from tests.support.faults.trial import Visit, all_is_over, trial
from tests.support.faults.world import APPS, world

COLUMNS = ("fault", "times", "normal s", "violations")


def rows(visits: Sequence[Visit]) -> list[dict[str, Any]]:
    """A row for each kind of fault."""
    kinds = sorted({visit.fault for visit in visits})
    return [
        {
            "fault": kind,
            "times": sum(visit.fault == kind for visit in visits),
            "normal s": max(visit.normal_s for visit in visits if visit.fault == kind),
            "violations": sum(len(visit.violations) for visit in visits if visit.fault == kind),
        }
        for kind in kinds
    ]


def memory(visits: Sequence[Visit]) -> str:
    """The least and the most memory of each part, in the first and in the last third of the trial."""
    third = max(1, len(visits) // 3)
    parts = {
        name: [[visit.memory_kb[name] for visit in some] for some in (visits[:third], visits[-third:])]
        for name in visits[0].memory_kb
    }
    texts = (
        f"{name}: {min(early)} to {max(early)}, later {min(late)} to {max(late)}"
        for name, (early, late) in parts.items()
    )
    return "memory in KB: " + "; ".join(texts)


def say(visit: Visit) -> None:
    """Report a fault as it ends."""
    click.echo(str(asdict(visit)), err=True)


@click.command(help=__doc__)
@click.option("--seconds", default=600.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--engine", type=click.Choice(("ryu", "os-ken")), default="ryu", show_default=True)
@click.option("--controls", type=click.Choice(tuple(APPS)), default="sdtcp", show_default=True)
@click.option("--faults", default=",".join(FAULTS), help="The kinds of faults; by default all.")
@click.option("--json", "as_json", is_flag=True)
def main(seconds: float, seed: int, engine: str, controls: str, faults: str, as_json: bool) -> None:
    chosen = faults.split(",")
    if unknown := set(chosen) - set(FAULTS):
        raise click.ClickException(f"no fault is called {unknown.pop()!r}: use some of {', '.join(FAULTS)}")
    with temporary_folder() as folder, world(folder, engine, controls) as now:
        visits = trial(now, seed, seconds, say, chosen)
        last = all_is_over(now)
    present(f"faults of {controls} on {engine}, seed {seed}", COLUMNS, rows(visits), as_json)
    click.echo(memory(visits))
    for text in last:
        click.echo(f"at the end: {text}", err=True)
    sys.exit(bool(last or any(visit.violations for visit in visits)))


if __name__ == "__main__":
    main()
