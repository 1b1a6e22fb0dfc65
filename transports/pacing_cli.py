"""The commands `weir transports path set`, `remove` and `list`."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TypeVar

import click
from pyroute2 import netns

from transports import pacing_paths
from transports.congestion import TransportError
from transports.pacing_paths import (
    MOST_ALLOWANCE_BYTES,
    MOST_FLOWS,
    MOST_K,
    MOST_RATE_BPS,
    Network,
    PacingPath,
)
from weir_base import tables
from weir_base.parameters import FiniteRange

BPS_PER_MBPS = 1_000_000
_T = TypeVar("_T")
COLUMNS = (
    tables.Column("destination", align="left", help="Destination network; the longest prefix counts."),
    tables.Column("flows", help="n: flows through the bottleneck; 0: this host counts its own."),
    tables.Column("k", text=lambda row: f"{row['k']:g}", help="Packets of a flow in the time of one packet."),
    tables.Column("buffer_bytes", help="B: size of the bottleneck's queue."),
    tables.Column("rate_bps", help="C: rate of the bottleneck."),
    tables.Column("allowance_bytes", help="What the switch divides into windows; 0: windows carry no n."),
    tables.Column("lifetime_s", text=lambda row: f"{row['lifetime_s']:g}", help="Life of n; 0: for ever."),
    tables.Column("age_s", text=lambda row: f"{row['age_s']:.3f}", help="How long ago n was true."),
    tables.Column("flows_from", align="left", help="Where n comes from."),
)


def _network(_context: click.Context, _parameter: click.Parameter, value: str) -> Network:
    try:
        return ipaddress.ip_network(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}: give an address or a network such as 10.0.0.0/24") from error


_destination = click.argument("destination", callback=_network)
pids_option = click.option(
    "--pid",
    "pids",
    type=click.IntRange(1),
    multiple=True,
    help="Act in the network namespace of this process instead of the command's own. Repeatable.",
)
k_option = click.option(
    "--k",
    type=FiniteRange(1 / 256, MOST_K),
    default=1.0,
    show_default=True,
    help="Packets of a flow in the time of one packet; 1 if all flows begin at once.",
)


@click.group("path")
def path_group() -> None:
    """The bottlenecks towards destinations, for Adaptive Pacing; of this network namespace."""


@path_group.command("set")
@_destination
@click.option("--buffer-bytes", type=click.IntRange(1), required=True, help="B: size of the queue.")
@click.option(
    "--rate-mbps",
    type=FiniteRange(min=0.001, max=MOST_RATE_BPS / BPS_PER_MBPS),
    required=True,
    help="C: rate of the link.",
)
@click.option(
    "--flows",
    type=click.IntRange(0, MOST_FLOWS),
    default=0,
    show_default=True,
    help="n: flows through the bottleneck; 0: count the connections of this host.",
)
@k_option
@click.option(
    "--allowance-bytes",
    type=click.IntRange(0, MOST_ALLOWANCE_BYTES),
    default=0,
    show_default=True,
    help="What the bottleneck's switch divides into fair shares (SCCP: rate x common RTT). n is then this "
    "divided by the advertised window; 0: windows carry no n.",
)
@click.option(
    "--lifetime-s",
    type=FiniteRange(0),
    default=0.0,
    show_default=True,
    help="How long n and the allowance count; 0: for ever.",
)
@pids_option
def set_command(
    destination: Network,
    buffer_bytes: int,
    rate_mbps: float,
    flows: int,
    k: float,
    allowance_bytes: int,
    lifetime_s: float,
    pids: tuple[int, ...],
) -> None:
    """State the bottleneck towards DESTINATION, in place of an earlier statement."""
    rate_bps = round(rate_mbps * BPS_PER_MBPS)
    path = PacingPath(buffer_bytes, rate_bps, k, flows, lifetime_s, allowance_bytes=allowance_bytes)
    in_namespaces(pids, lambda: pacing_paths.set_path(destination, path))
    click.echo(f"path to {destination}: set")


@path_group.command("remove")
@_destination
@pids_option
def remove_command(destination: Network, pids: tuple[int, ...]) -> None:
    """Forget the bottleneck towards DESTINATION. Connections to it are not paced any longer."""
    removed = any(in_namespaces(pids, lambda: pacing_paths.remove_path(destination)))
    click.echo(f"path to {destination}: {'removed' if removed else 'not set'}")


@path_group.command("list", epilog=f"Columns:\n\n{tables.described(COLUMNS)}")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def list_command(as_json: bool) -> None:
    """List the paths of this network namespace."""
    rows = [
        asdict(path) | {"destination": str(network), "flows_from": path.flows_from.name.lower()}
        for network, path in pacing_paths.paths().items()
    ]
    if as_json:
        click.echo(json.dumps(rows))
    else:
        tables.show(COLUMNS, rows, empty="no paths")


def in_namespaces(pids: Sequence[int], act: Callable[[], _T]) -> list[_T]:
    """Act in the network namespace of each process; without one, in this command's. Raises TransportError."""
    return [_in_namespace(pid, act) for pid in pids] if pids else [act()]


def _in_namespace(pid: int, act: Callable[[], _T]) -> _T:
    """Act in a thread that enters the namespace, so that this thread stays where it is."""

    def entered() -> _T:
        netns.setns(f"/proc/{pid}/ns/net", flags=0)
        return act()

    with ThreadPoolExecutor(max_workers=1) as thread:
        try:
            return thread.submit(entered).result()
        except OSError as error:
            raise TransportError(f"cannot enter the network namespace of process {pid}: {error}") from error
