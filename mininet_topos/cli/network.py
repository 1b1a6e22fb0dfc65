"""`weir lab` topologies, rehearse and clean: networks without an experiment."""

from __future__ import annotations

import json
from pathlib import Path

import click

from mininet_topos.cli.terminal import errors_in_a_line, out_folder, plain, signals_unwind
from mininet_topos.experiments.schemes import scheme_of
from mininet_topos.machine.lab_state import clean
from mininet_topos.machine.requirements import require_machine
from weir_base import tables

TOPOLOGY_COLUMNS = (
    tables.Column("topology", align="left"),
    tables.Column(
        "parameters",
        align="left",
        fold_at=20,
        text=lambda row: ", ".join(f"{key}={value}" for key, value in row["parameters"].items()),
    ),
    *(tables.Column(name) for name in ("hosts", "switches", "links")),
    tables.Column("diameter_links", heading="diameter"),
    tables.Column("bisection_links", heading="bisection"),
)
REHEARSAL_COLUMNS = (
    tables.Column("stage", heading="stage (s)", align="left"),
    tables.Column("least"),
    tables.Column("most"),
)


@click.command("topologies")
@click.argument("specs", nargs=-1, metavar="[NAME,PARAMETER,...]...")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def topologies_command(specs: tuple[str, ...], as_json: bool) -> None:
    """List topologies with the numbers of their hosts, switches and links.

    Name topologies with their parameters, e.g. fattree,4. Without a name, the command lists every topology
    with its default parameters.
    """
    from mininet_topos.network import topologies  # Mininet's modules are slow to import

    with errors_in_a_line():
        rows = [topologies.describe(spec) for spec in specs or topologies.TOPOLOGIES]
    if as_json:
        click.echo(json.dumps(rows))
    else:
        tables.show(TOPOLOGY_COLUMNS, rows)


@click.command("rehearse")
@click.argument("spec", metavar="NAME[,PARAMETER,...]")
@click.option("--times", type=click.IntRange(1), default=1, show_default=True, help="Number of rehearsals.")
@click.option(
    "--scheme",
    default="plain",
    show_default=True,
    help="The scheme whose programs run on the network; `weir lab schemes` lists them.",
)
@click.option("--out", type=click.Path(path_type=Path), help="The folder to create, for the logs.")
@click.option("--json", "as_json", is_flag=True, help="Print the seconds of each rehearsal as JSON.")
def rehearse_command(spec: str, times: int, scheme: str, out: Path | None, as_json: bool) -> None:
    """Build a topology, connect to every host, remove the network, and report the duration of each stage."""
    from mininet_topos.running import rehearsal

    with errors_in_a_line(), signals_unwind():
        require_machine()
        folder = out_folder("rehearsal", out)
        rows = list(rehearsal.rehearse(spec, scheme_of(scheme), times, folder, plain))
    if as_json:
        click.echo(json.dumps(rows))
    else:
        tables.show(REHEARSAL_COLUMNS, rehearsal.extremes(rows))


@click.command("clean")
@click.option("--json", "as_json", is_flag=True, help="Print what was removed as JSON.")
def clean_command(as_json: bool) -> None:
    """Remove what killed labs have left on this machine. Labs that still run are not touched."""
    with errors_in_a_line():
        require_machine()
        removed = clean()
        if as_json:
            click.echo(json.dumps({"removed": removed}))
        else:
            click.echo("\n".join(f"removed {what}" for what in removed) or "nothing to remove")
