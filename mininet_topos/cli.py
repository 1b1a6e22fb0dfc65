"""`weir lab`: demo, incast, topologies, rehearse, clean; the rest is in cli_experiments.py."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import click
from rich.console import Console

from mininet_topos import cli_experiments
from mininet_topos import lab as running
from mininet_topos.errors import BadExperiment
from mininet_topos.experiment import FABRIC_MODES, Case, Experiment, demo
from mininet_topos.net import require_machine
from mininet_topos.schemes import SCHEMES
from mininet_topos.state import clean
from mininet_topos.terminal import (
    REPORT,
    errors_in_a_line,
    out_folder,
    plain,
    progress_of,
    reported,
    show,
    signals_unwind,
)

CASE_OPTIONS = (
    *("size_bytes", "background", "queries"),
    *("fresh", "deadline_ms", "duration_s"),
)


class RoleRate(click.ParamType):
    """ROLE=MBPS."""

    name = "role=mbps"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A pair of a role and a rate."""
        role, _, rate_mbps = value.partition("=")
        try:
            return role, float(rate_mbps)
        except ValueError:
            self.fail(f"{value!r}: want ROLE=Mbit/s, e.g. trunk=1000", param, ctx)


class Bytes(click.ParamType):
    """A number of bytes, also as 32KB or 1.5MB: thousands and millions of them."""

    name = "bytes"
    units: ClassVar[dict[str, int]] = {"": 1, "B": 1, "KB": 1000, "MB": 1_000_000}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """As a whole number."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Z]*)", str(value).upper())
        if found is None or found[2] not in self.units:
            self.fail(f"{value!r}: want bytes, e.g. 32000, 32KB or 1.5MB", param, ctx)
        return round(float(found[1]) * self.units[found[2]])


@click.group()
def lab() -> None:
    """Run experiments in Mininet: real switch, real controllers, real TCP."""


for _command in cli_experiments.COMMANDS:
    lab.add_command(_command)


_common = (
    click.option("--out", type=click.Path(path_type=Path), help="The result folder to make."),
    click.option("--controller-port", type=click.IntRange(1, 65535), help="Default: a free one."),
    click.option("--json", "as_json", is_flag=True, help="Print the rows of summary.json."),
)


def _with_common(command: Any) -> Any:
    for option in reversed(_common):
        command = option(command)
    return command


@lab.command("demo")
@click.option("--queries", type=click.IntRange(1), default=20, show_default=True)
@_with_common
def demo_command(queries: int, out: Path | None, controller_port: int | None, as_json: bool) -> None:
    """One incast, three ways: plain TCP, SDTCP and SCCP, alone and beside long flows."""
    _carry_out(lambda: demo(queries), out, controller_port, as_json)


@lab.command("incast")
@click.option(
    "--schemes",
    default="plain,sdtcp,sccp",
    show_default=True,
    help=f"Some of {', '.join(SCHEMES)}, in order.",
)
@click.option("--workers", default="40", show_default=True, help="How many answer; 10,20,40: a case of each.")
@click.option(
    "--size", "size_bytes", type=Bytes(), default="32KB", show_default=True, help="That a worker answers."
)
@click.option("--total", "total_bytes", type=Bytes(), help="That all workers answer together, instead.")
@click.option("--background", type=int, default=0, show_default=True, help="Long flows into the root.")
@click.option("--queries", type=int, default=20, show_default=True)
@click.option("--fresh", is_flag=True, help="Each query opens its connections anew.")
@click.option("--deadline", "deadline_ms", type=float, help="ms that an answer may take.")
@click.option(
    "--duration", "duration_s", type=float, default=0.0, help="With --queries 0: seconds for the long flows."
)
@click.option(
    "--mark",
    "mark_pkts",
    type=int,
    default=20,
    show_default=True,
    help="Packets beyond which ECN-TCP and DCTCP are marked.",
)
@click.option("--bandwidth", "bandwidth_mbps", type=float, default=100.0, show_default=True, help="Mbit/s.")
@click.option("--queue", "queue_bytes", type=Bytes(), default="150KB", show_default=True)
@click.option(
    "--gap",
    "gap_ms",
    type=click.IntRange(0, 60_000),
    default=100,
    show_default=True,
    help="ms between queries.",
)
@click.option(
    "--period",
    "period_ms",
    type=click.IntRange(0, 60_000),
    default=0,
    help="ms from one query's begin to the next one's, in place of the gap.",
)
@click.option(
    "--topology",
    default="star",
    show_default=True,
    help="As `weir lab topologies` has them, e.g. dumbbell or threetier,2,2,8.",
)
@click.option("--fitted", is_flag=True, help="A network for each number of workers, no larger than it needs.")
@click.option(
    "--rate",
    "rates_mbps",
    type=RoleRate(),
    multiple=True,
    help="ROLE=Mbit/s, of the ports to a trunk, access or root that are not the bottleneck.",
)
@click.option(
    "--delay",
    "delay_ms",
    type=float,
    default=0.0,
    help="ms that what a host sends is under way; needs netem.",
)
@click.option(
    "--loss", "loss_percent", type=float, default=0.0, help="Percent of it that is lost; needs netem."
)
@click.option(
    "--fabric",
    "fabric_mode",
    type=click.Choice(FABRIC_MODES),
    default=FABRIC_MODES[0],
    show_default=True,
    help="How flows get their paths.",
)
@click.option(
    "--cc", "congestion_control", default="reno", show_default=True, help="The hosts' congestion control."
)
@click.option(
    "--repeat", "repeats", type=int, default=1, show_default=True, help="How often each case is run."
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Of the order in which workers are asked."
)
@_with_common
def incast_command(
    schemes: str, out: Path | None, controller_port: int | None, as_json: bool, **options: Any
) -> None:
    """One incast of your own."""
    options["rates_mbps"] = dict(options["rates_mbps"])

    def make() -> Experiment:
        shared = {name: options.pop(name) for name in CASE_OPTIONS}
        counts = _counts(options.pop("workers"))
        total_bytes = options.pop("total_bytes")
        names = tuple(name.strip() for name in schemes.split(",") if name.strip())
        cases = tuple(_incast(count, total_bytes, len(counts) > 1, shared) for count in counts)
        return Experiment(name="incast", cases=cases, schemes=names, **options)

    _carry_out(make, out, controller_port, as_json)


def _counts(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise BadExperiment(f"--workers {text}: want numbers, e.g. 40 or 10,20,40") from None


def _incast(workers: int, total_bytes: int | None, several: bool, shared: dict[str, Any]) -> Case:
    """A case of so many workers; `several`: it needs a name of its own."""
    size_bytes = total_bytes // max(workers, 1) if total_bytes is not None else shared["size_bytes"]
    title = f"{workers} workers x {size_bytes / 1000:g} KB"
    if shared["background"]:
        title += f" beside {shared['background']} long flows"
    name = f"incast{workers}" if several else "incast"
    return Case(name, title, workers, **(shared | {"size_bytes": size_bytes}))


@lab.command("topologies")
@click.argument("specs", nargs=-1, metavar="[NAME,PARAMETER,...]...")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def topologies_command(specs: tuple[str, ...], as_json: bool) -> None:
    """List the topologies with their counts: those named, e.g. fattree,4, or all with their defaults."""
    from mininet_topos import topologies  # what Mininet imports takes a while

    with errors_in_a_line():
        rows = [topologies.describe(spec) for spec in specs or topologies.TOPOLOGIES]
    if as_json:
        click.echo(json.dumps(rows))
    else:
        Console().print(topologies.table(rows))


@lab.command("rehearse")
@click.argument("spec", metavar="NAME[,PARAMETER,...]")
@click.option("--times", type=click.IntRange(1), default=1, show_default=True)
@click.option("--scheme", type=click.Choice(list(SCHEMES)), default="plain", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="The folder to make, for logs.")
@click.option("--json", "as_json", is_flag=True, help="Print the seconds of each as JSON.")
def rehearse_command(spec: str, times: int, scheme: str, out: Path | None, as_json: bool) -> None:
    """Bring a topology up under a scheme, reach every host, take it down; tell how long each took."""
    from mininet_topos import rehearsal

    with errors_in_a_line(), signals_unwind():
        require_machine()
        folder = out_folder("rehearsal", out)
        rows = list(rehearsal.rehearse(spec, SCHEMES[scheme], times, folder, plain))
    if as_json:
        click.echo(json.dumps(rows))
    else:
        Console().print(rehearsal.table(rows))


@lab.command("clean")
@click.option("--json", "as_json", is_flag=True)
def clean_command(as_json: bool) -> None:
    """Remove what labs that were killed have left; labs that run are left alone."""
    with errors_in_a_line():
        require_machine()
        removed = clean()
        if as_json:
            click.echo(json.dumps({"removed": removed}))
        else:
            click.echo("\n".join(f"removed {what}" for what in removed) or "nothing to remove")


def _carry_out(make: Any, out: Path | None, port: int | None, as_json: bool) -> None:
    with errors_in_a_line(), signals_unwind():
        experiment: Experiment = make()
        require_machine()
        folder = out_folder(experiment.name, out)
        with progress_of(running.steps(experiment)) as progress:
            running.run_experiment(experiment, folder, progress, port)
            rows = reported(folder, progress)
        show(rows, folder / REPORT, as_json)
