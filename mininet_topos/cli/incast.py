"""`weir lab` demo and incast: experiments that the command line describes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from mininet_topos.cli.parameters import (
    Bytes,
    RoleRate,
    controller_port_option,
    out_option,
    rows_as_json_option,
    unpinned_option,
)
from mininet_topos.cli.terminal import (
    REPORT,
    errors_in_a_line,
    out_folder,
    progress_of,
    reported,
    runs_kept_in,
    show,
    signals_unwind,
)
from mininet_topos.errors import BadExperiment
from mininet_topos.experiments.experiment import FABRIC_MODES, Case, Experiment, demo
from mininet_topos.machine.requirements import require_machine
from mininet_topos.running.experiment_runner import run_experiment, steps

CASE_OPTIONS = ("size_bytes", "background", "queries", "fresh", "deadline_ms", "duration_s")
Command = TypeVar("Command", bound=Callable[..., Any])


def _with_common_options(command: Command) -> Command:
    return out_option(unpinned_option(controller_port_option(rows_as_json_option(command))))


@click.command("demo")
@click.option(
    "--queries", type=click.IntRange(1), default=20, show_default=True, help="Queries of each case."
)
@_with_common_options
def demo_command(
    queries: int, out: Path | None, unpinned: bool, controller_port: int | None, as_json: bool
) -> None:
    """Run one incast in three cases: alone, beside long flows, and with 60 workers.

    The schemes are plain TCP, plain TCP with a minimum RTO of 5 ms, SDTCP, SCCP, and both controllers.
    """
    _carry_out(lambda: replace(demo(queries), pinned=not unpinned), out, controller_port, as_json)


@click.command("incast")
@click.option(
    "--schemes",
    default="plain,sdtcp-auto,sccp-auto",
    show_default=True,
    help="The schemes to compare, in this order; `weir lab schemes` lists them.",
)
@click.option(
    "--workers", default="40", show_default=True, help="Workers of a query; 10,20,40 gives three cases."
)
@click.option(
    "--size", "size_bytes", type=Bytes(), default="32KB", show_default=True, help="The response of a worker."
)
@click.option(
    "--total", "total_bytes", type=Bytes(), help="The responses of all workers together, instead of --size."
)
@click.option(
    "--background", type=int, default=0, show_default=True, help="Long flows to the root beside the queries."
)
@click.option("--queries", type=int, default=20, show_default=True, help="Queries of each case.")
@click.option("--fresh", is_flag=True, help="Open new connections for each query.")
@click.option("--deadline", "deadline_ms", type=float, help="The deadline of a response, in ms.")
@click.option(
    "--duration",
    "duration_s",
    type=float,
    default=0.0,
    help="How long the long flows send, in seconds; with --queries 0.",
)
@click.option(
    "--mark",
    "mark_pkts",
    type=int,
    default=20,
    show_default=True,
    help="Queue length in packets above which the switch marks packets for ECN-TCP and DCTCP.",
)
@click.option(
    "--bandwidth",
    "bandwidth_mbps",
    type=float,
    default=100.0,
    show_default=True,
    help="Rate of the bottleneck, in Mbit/s.",
)
@click.option(
    "--queue",
    "queue_bytes",
    type=Bytes(),
    default="150KB",
    show_default=True,
    help="Limit of the bottleneck's queue.",
)
@click.option(
    "--gap",
    "gap_ms",
    type=click.IntRange(0, 60_000),
    default=100,
    show_default=True,
    help="Time from the end of a query to the start of the next one, in ms.",
)
@click.option(
    "--period",
    "period_ms",
    type=click.IntRange(0, 60_000),
    default=0,
    help="Time from the start of a query to the start of the next one, in ms, instead of --gap.",
)
@click.option(
    "--topology",
    default="star",
    show_default=True,
    help="A topology of `weir lab topologies`, e.g. dumbbell or threetier,2,2,8.",
)
@click.option("--fitted", is_flag=True, help="Build a network of just the needed size for each case.")
@click.option(
    "--rate",
    "rates_mbps",
    type=RoleRate(),
    multiple=True,
    help="Rate in Mbit/s of the trunk, access or root ports that are not the bottleneck; may be repeated.",
)
@click.option(
    "--delay",
    "delay_ms",
    type=float,
    default=0.0,
    help="One-way delay of what each host sends, in ms; a round trip takes two.",
)
@click.option(
    "--loss",
    "loss_percent",
    type=float,
    default=0.0,
    help="Packets of each host that are lost, in percent.",
)
@click.option(
    "--jitter",
    "jitter_ms",
    type=float,
    default=0.0,
    help="Uniform jitter of the delay, in ms; keeps the order.",
)
@click.option(
    "--duplicate", "duplicate_percent", type=float, default=0.0, help="Packets that arrive twice, in percent."
)
@click.option(
    "--reorder",
    "reorder_percent",
    type=float,
    default=0.0,
    help="Packets that skip the delay and so overtake others, in percent.",
)
@click.option(
    "--fabric",
    "fabric_mode",
    type=click.Choice(FABRIC_MODES),
    default=FABRIC_MODES[0],
    show_default=True,
    help="When the controller installs a path: before any flow, or at a flow's first packet.",
)
@click.option(
    "--cc",
    "congestion_control",
    default="reno",
    show_default=True,
    help="Congestion control of the hosts, for schemes that name none.",
)
@click.option(
    "--repeat", "repeats", type=int, default=1, show_default=True, help="Number of runs of each case."
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Seed of the order in which workers are asked."
)
@_with_common_options
def incast_command(
    schemes: str,
    out: Path | None,
    unpinned: bool,
    controller_port: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run an incast of your own: workers answer a root, all at once."""
    options["rates_mbps"] = dict(options["rates_mbps"])

    def make() -> Experiment:
        shared = {name: options.pop(name) for name in CASE_OPTIONS}
        counts = _counts(options.pop("workers"))
        total_bytes = options.pop("total_bytes")
        names = tuple(name.strip() for name in schemes.split(",") if name.strip())
        cases = tuple(_incast(count, total_bytes, len(counts) > 1, shared) for count in counts)
        return Experiment(name="incast", cases=cases, schemes=names, pinned=not unpinned, **options)

    _carry_out(make, out, controller_port, as_json)


def _counts(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise BadExperiment(f"--workers {text}: want numbers, e.g. 40 or 10,20,40") from None


def _incast(workers: int, total_bytes: int | None, several: bool, shared: dict[str, Any]) -> Case:
    """Return the case of one number of workers. With `several` cases, the number is part of the name."""
    size_bytes = total_bytes // max(workers, 1) if total_bytes is not None else shared["size_bytes"]
    title = f"{workers} workers x {size_bytes / 1000:g} KB"
    if shared["background"]:
        title += f" beside {shared['background']} long flows"
    name = f"incast{workers}" if several else "incast"
    return Case(name, title, workers, **(shared | {"size_bytes": size_bytes}))


def _carry_out(make: Callable[[], Experiment], out: Path | None, port: int | None, as_json: bool) -> None:
    with errors_in_a_line(), signals_unwind():
        experiment = make()
        require_machine()
        folder = out_folder(experiment.name, out)
        remedy = f"`weir lab report {folder}` shows them"
        with runs_kept_in(folder, remedy), progress_of(steps(experiment)) as progress:
            run_experiment(experiment, folder, progress, port)
            rows = reported(folder, progress)
        show(rows, folder / REPORT, as_json)
