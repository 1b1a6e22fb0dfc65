"""Turns of several schemes on the lab's star, for benches that compare schemes in one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import TypeVar

import click

from mininet_topos.experiments.experiment import Case, Experiment
from mininet_topos.experiments.schemes import scheme_of
from mininet_topos.network.lab_network import Network
from mininet_topos.running.scheme_programs import running

RATE_BPS = 100_000_000
QUEUE_BYTES = 150_000
Found = TypeVar("Found")


def refuse_transports(schemes: Sequence[str]) -> None:
    """Raise ClickException for schemes that choose the hosts' transport, such as dctcp.

    Real programs use the congestion control of their route, which ``--congestion-control`` names.
    """
    for name in schemes:
        if scheme_of(name).transports:
            raise click.ClickException(
                f"scheme {name}: real programs do not use its transport; run it with `weir lab run`, or name"
                " a congestion control with --congestion-control"
            )


def star_experiment(
    name: str, what: str, senders: int, schemes: str, rtt_ms: float, congestion_control: str
) -> Experiment:
    """One port of 100 Mbit/s with a queue of 150 KB, unpinned. ``schemes``: their names, with commas.

    Raises ClickException as ``refuse_transports`` does.
    """
    experiment = Experiment(
        name=name,
        cases=(Case(name, what, 1, 1, senders, 1),),
        schemes=tuple(schemes.split(",")),
        bandwidth_mbps=RATE_BPS // 1_000_000,
        queue_bytes=QUEUE_BYTES,
        delay_ms=rtt_ms / 2,
        pinned=False,
        congestion_control=congestion_control,
    )
    refuse_transports(experiment.schemes)
    return experiment


def take_turns(
    experiment: Experiment,
    turns: int,
    net: Network,
    folder: Path,
    one_turn: Callable[[Path], Found],
    prepare: Callable[[], None] = lambda: None,
) -> dict[str, list[Found]]:
    """Run each scheme so many times, in turn with the others. Returns what the turns found, by scheme.

    ``one_turn`` gets a folder of its own, and the scheme's programs run meanwhile. ``prepare`` is called
    before they start.
    """
    found: dict[str, list[Found]] = {scheme: [] for scheme in experiment.schemes}
    for host in net.hosts:
        host.set_route(congestion_control=experiment.congestion_control)
    order = zip(range(turns * len(experiment.schemes)), cycle(experiment.schemes), strict=False)
    for number, scheme in order:
        prepare()
        own = folder / f"{experiment.cases[0].title}-{2 * experiment.delay_ms:g}-{scheme}-{number}"
        configured = experiment.configured(scheme_of(scheme))
        with running(configured, net, own, congestion_control=experiment.congestion_control):
            found[scheme].append(one_turn(own))
    return found
