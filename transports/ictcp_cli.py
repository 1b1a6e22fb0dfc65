"""The commands `weir transports ictcp attach`, `detach`, `show` and `check`."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from transports import ictcp
from weir_base import tables
from weir_base.parameters import FiniteRange

BPS_PER_MBPS = 1_000_000
COLUMNS = (
    tables.Column("capacity_bps", heading="rate", help="Rate of the link, as stated, in bit/s."),
    tables.Column("free_bps", heading="free", help="Unused part of 0.9 of it in the last slot, in bit/s."),
    tables.Column("subslot_us", help="Half of a slot, in µs: the mean RTT."),
    tables.Column(
        "mean_window_bytes", heading="window", help="Mean window of the connections that received."
    ),
    tables.Column("slots", help="Slots since it was attached."),
    tables.Column("lowered", help="Segments whose window was lowered."),
    tables.Column("increases", help="How often a window grew."),
    tables.Column("decreases", help="How often a window shrank."),
    tables.Column("restarts", help="New connections, and connections that were idle."),
)
_interface = click.argument("interface")
_json = click.option("--json", "as_json", is_flag=True, help="Write JSON.")


@click.group("ictcp")
def ictcp_group() -> None:
    """Choose the windows of this host's connections, so that their sum fits its link (ICTCP)."""


@ictcp_group.command("attach")
@_interface
@click.option(
    "--rate-mbps",
    type=FiniteRange(min=1, max=400_000),
    required=True,
    help="Rate at which packets can arrive at the interface.",
)
@_json
def attach_command(interface: str, rate_mbps: float, as_json: bool) -> None:
    """Limit the connections of this network namespace at INTERFACE, until it is detached."""
    ictcp.attach(interface, round(rate_mbps * BPS_PER_MBPS))
    _print_state(interface, "attached", as_json)


@ictcp_group.command("detach")
@_interface
@_json
def detach_command(interface: str, as_json: bool) -> None:
    """Stop to limit connections at INTERFACE. Open connections get their own windows back."""
    _print_state(interface, "detached" if ictcp.detach(interface) else "not attached", as_json)


@ictcp_group.command("check")
def check_command() -> None:
    """Let the kernel check the programs, and attach nothing."""
    ictcp.check()
    click.echo("this kernel accepts ICTCP")


@ictcp_group.command("show", epilog=f"Columns:\n\n{tables.described(COLUMNS)}")
@_interface
@_json
def show_command(interface: str, as_json: bool) -> None:
    """Show the state at INTERFACE."""
    row = asdict(ictcp.read(interface))
    if as_json:
        click.echo(json.dumps(row))
    else:
        tables.show(COLUMNS, [row])


def _print_state(interface: str, state: str, as_json: bool) -> None:
    named = {"interface": interface, "state": state}
    click.echo(json.dumps(named) if as_json else f"ICTCP at {interface}: {state}")
