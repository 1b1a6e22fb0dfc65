"""`weir lab`: demo, incast, topologies, rehearse, report, clean."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from mininet_topos import lab as running
from mininet_topos.errors import LabError
from mininet_topos.experiment import FABRIC_MODES, Case, Experiment, demo
from mininet_topos.net import require_machine
from mininet_topos.schemes import SCHEMES
from mininet_topos.state import clean
from mininet_topos.summary import Row
from mininet_topos.table import notes, table

console = Console(stderr=True)
EXIT_SIGTERM = 128 + signal.SIGTERM
EXIT_SIGINT = 128 + signal.SIGINT


class Terminated(BaseException):
    """SIGTERM came."""


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


@click.group()
def lab() -> None:
    """Run experiments in Mininet: real switch, real controllers, real TCP."""


def _out(name: str, out: Path | None) -> Path:
    return out or Path("results") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


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
@click.option("--schemes", default=",".join(SCHEMES), show_default=True, help="Some of these, in order.")
@click.option("--workers", type=int, default=40, show_default=True)
@click.option(
    "--size", "size_bytes", type=int, default=32_000, show_default=True, help="Bytes a worker answers."
)
@click.option("--background", type=int, default=0, show_default=True, help="Long flows into the root.")
@click.option("--queries", type=int, default=20, show_default=True)
@click.option("--bandwidth", "bandwidth_mbps", type=float, default=100.0, show_default=True, help="Mbit/s.")
@click.option("--queue", "queue_bytes", type=int, default=150_000, show_default=True, help="Bytes.")
@click.option(
    "--gap",
    "gap_ms",
    type=click.IntRange(0, 60_000),
    default=100,
    show_default=True,
    help="ms between queries.",
)
@click.option(
    "--topology",
    default="star",
    show_default=True,
    help="As `weir lab topologies` has them, e.g. dumbbell or threetier,2,2,8.",
)
@click.option(
    "--rate",
    "rates_mbps",
    type=RoleRate(),
    multiple=True,
    help="ROLE=Mbit/s, of the ports to a trunk, access or root that are not the bottleneck.",
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
    "--seed", type=int, default=1, show_default=True, help="Of the order in which workers are asked."
)
@_with_common
def incast_command(
    schemes: str, out: Path | None, controller_port: int | None, as_json: bool, **options: Any
) -> None:
    """One incast of your own."""
    options["rates_mbps"] = dict(options["rates_mbps"])

    def make() -> Experiment:
        case = {name: options.pop(name) for name in ("workers", "size_bytes", "background", "queries")}
        title = f"{case['workers']} workers x {case['size_bytes'] / 1000:g} KB"
        if case["background"]:
            title += f" beside {case['background']} long flows"
        names = tuple(name.strip() for name in schemes.split(",") if name.strip())
        return Experiment(name="incast", cases=(Case("incast", title, **case),), schemes=names, **options)

    _carry_out(make, out, controller_port, as_json)


@lab.command("report")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the rows of summary.json.")
def report_command(folder: Path, as_json: bool) -> None:
    """Make summary, plots and report of a result FOLDER again from its raw records."""
    from mininet_topos.report import make_report  # matplotlib takes a second to import

    with _errors_in_a_line():
        _show(make_report(folder), folder, as_json)


@lab.command("topologies")
@click.argument("specs", nargs=-1, metavar="[NAME,PARAMETER,...]...")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def topologies_command(specs: tuple[str, ...], as_json: bool) -> None:
    """List the topologies with their counts: those named, e.g. fattree,4, or all with their defaults."""
    from mininet_topos import topologies  # what Mininet imports takes a while

    with _errors_in_a_line():
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

    with _errors_in_a_line(), _signals_unwind():
        require_machine()
        folder = _out("rehearsal", out)
        rows = list(rehearsal.rehearse(spec, SCHEMES[scheme], times, folder, _plain))
    if as_json:
        click.echo(json.dumps(rows))
    else:
        Console().print(rehearsal.table(rows))


@lab.command("clean")
@click.option("--json", "as_json", is_flag=True)
def clean_command(as_json: bool) -> None:
    """Remove what labs that were killed have left; labs that run are left alone."""
    with _errors_in_a_line():
        require_machine()
        removed = clean()
        if as_json:
            click.echo(json.dumps({"removed": removed}))
        else:
            click.echo("\n".join(f"removed {what}" for what in removed) or "nothing to remove")


def _carry_out(make: Any, out: Path | None, port: int | None, as_json: bool) -> None:
    with _errors_in_a_line(), _signals_unwind():
        experiment: Experiment = make()
        require_machine()
        folder = _out(experiment.name, out)
        with _progress(experiment) as progress:
            running.run_experiment(experiment, folder, progress, port)
            progress.say("summary, plots, report")
            from mininet_topos.report import make_report  # matplotlib takes a second to import

            rows = make_report(folder)
        _show(rows, folder, as_json)


@contextlib.contextmanager
def _errors_in_a_line() -> Iterator[None]:
    """An error of the lab, or Ctrl-C, is one line on stderr and a non-zero exit."""
    try:
        yield
    except LabError as error:
        line = " ".join(str(error).split())
        console.print(f"weir lab: {line}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    except (KeyboardInterrupt, Terminated) as signalled:
        console.print("weir lab: broken off; nothing is left behind", style="red", soft_wrap=True)
        sys.exit(EXIT_SIGINT if isinstance(signalled, KeyboardInterrupt) else EXIT_SIGTERM)


@contextlib.contextmanager
def _signals_unwind() -> Iterator[None]:
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
def _progress(experiment: Experiment) -> Iterator[running.Progress]:
    """A bar on a terminal; elsewhere a line for each thing that is begun."""
    if not console.is_terminal:
        yield running.Progress(say=_begun(), done=lambda: None, warn=_plain)
        return
    columns = (SpinnerColumn(), BarColumn(20), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=running.steps(experiment))
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
            _plain(thing)
            last = thing

    return say


def _plain(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _show(rows: list[Row], folder: Path, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows))
        return
    out = Console()
    out.print(table(rows))
    for line in notes(rows):
        out.print(line, highlight=False, soft_wrap=True)
    void = sum(not row["valid"] for row in rows)
    if void:
        out.print(f"{void} of {len(rows)} runs are void (*): see the report", style="red")
    out.print(f"results: {folder}   report: {folder / 'report.html'}", soft_wrap=True, highlight=False)
