"""The commands `weir transports list`, `load`, `unload`, `sockets` and `figures`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from transports.congestion import TRANSPORTS, TransportError, available, is_this_build, load, unload
from transports.follow_cli import follow_command
from transports.ictcp_cli import ictcp_group
from transports.model_figures import draw
from transports.pacing_cli import path_group
from transports.sockets import socket_reader
from weir_base import tables

LIST_COLUMNS = (
    tables.Column("name", align="left"),
    tables.Column("what", align="left", fold_at=20),
    tables.Column("loaded", align="left"),
    tables.Column("this_build", "this build", align="left", help="Whether it is of the built object."),
)
SOCKET_COLUMNS = (
    tables.Column("local", align="left", help="Address and port of the local end."),
    tables.Column("remote", align="left", help="Address and port of the remote end."),
    tables.Column("cwnd", help="Congestion window, in segments."),
    tables.Column(
        "alpha", text=lambda row: f"{row['alpha']:.3f}", help="Estimated fraction of marked bytes, 0 to 1."
    ),
    tables.Column("control", align="left", help="Congestion control."),
    tables.Column(
        "exponent",
        text=lambda row: f"{row['exponent']:.3f}",
        help="Exponent of alpha at the last reduction: d of D2TCP, the weight of L2DCT; 0: none.",
    ),
    tables.Column("flows", help="n of Adaptive Pacing when it last sent; 0: none."),
    tables.Column("flows_from", align="left", help="Source of n: counted, operator, network or window."),
    tables.Column(
        "flows_age_s",
        text=lambda row: "" if row["flows_age_s"] is None else f"{row['flows_age_s']:.3f}",
        help="Age of n, in s, if a path states it.",
    ),
    tables.Column(
        "interval_us",
        text=lambda row: f"{row['interval_us']:.1f}",
        help="Interval t of Adaptive Pacing or of DCTCP+, in µs; 0: not paced.",
    ),
    tables.Column("pacing_rate_bps", help="Rate at which the kernel sends if it paces, in bit/s."),
    tables.Column(
        "slow_time_us",
        text=lambda row: f"{row['slow_time_us']:.1f}",
        help="Delay of packets by DCTCP+, in µs; 0: none.",
    ),
    tables.Column("ce", help="Whether the last data segment arrived with CE."),
    tables.Column("srtt_us", help="Smoothed RTT, in µs."),
    tables.Column("ssthresh", help="Slow start threshold, in segments."),
    tables.Column("prior_cwnd", help="Congestion window before the last reduction, in segments."),
    tables.Column("acked_bytes", help="Bytes acknowledged in the current observation window."),
    tables.Column("marked_bytes", help="Of these, the bytes whose ACKs carried ECE."),
)
_json = click.option("--json", "as_json", is_flag=True, help="Write JSON.")
_name = click.argument("name", type=click.Choice(list(TRANSPORTS)))


@click.group()
def transports() -> None:
    """Congestion control for hosts, in BPF: by socket (TCP_CONGESTION), or by receiver (ICTCP)."""


transports.add_command(ictcp_group)
transports.add_command(path_group)
transports.add_command(follow_command)


@transports.command("list")
@_json
def list_command(as_json: bool) -> None:
    """List the congestion controls of the kernel and of Weir.

    For each control of Weir that is loaded, root also sees whether it is of this build.
    """
    registered = available()
    rows: list[dict[str, Any]] = [
        {"name": name, "what": "part of the kernel", "loaded": True, "this_build": None}
        for name in registered
        if name not in TRANSPORTS
    ]
    for t in TRANSPORTS.values():
        is_loaded = t.name in registered
        row = {"name": t.name, "what": t.summary, "loaded": is_loaded}
        rows.append(row | {"this_build": _is_this_build(t.name) if is_loaded else None})
    if as_json:
        click.echo(json.dumps(rows))
    else:
        tables.show(LIST_COLUMNS, rows)


@transports.command("load")
@_name
@_json
def load_command(name: str, as_json: bool) -> None:
    """Load a congestion control for the whole host, until it is unloaded.

    If another build of it is loaded, such as one from before an upgrade, it is replaced. Connections that use
    it keep it.
    """
    new = "replaced another build" if name in available() else "loaded"
    _print_state(name, new if load(name) else "was already loaded", as_json)


@transports.command("unload")
@_name
@_json
def unload_command(name: str, as_json: bool) -> None:
    """Unload a congestion control. Connections that use it keep it."""
    _print_state(name, "unloaded" if unload(name) else "not loaded", as_json)


@transports.command(
    "sockets", epilog=f"Columns, the most important first:\n\n{tables.described(SOCKET_COLUMNS)}"
)
@_json
@tables.options(SOCKET_COLUMNS)
def sockets_command(as_json: bool, columns: tuple[str, ...], sort: str | None) -> None:
    """Show the state of each connection with a congestion control of Weir in this network namespace."""
    with socket_reader() as reader:
        rows = [asdict(connection) for connection in reader.read()]
    for row in rows:
        row |= {end: f"{row[end][0]} {row[end][1]}" for end in ("local", "remote")}
    rows_in_order = tables.sorted_rows(rows, sort)
    if as_json:
        click.echo(json.dumps(rows_in_order))
    else:
        tables.show(
            SOCKET_COLUMNS, rows_in_order, empty="no connections", only=columns, choose_with="--columns"
        )


@transports.command("figures")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def figures_command(folder: Path) -> None:
    """Draw figures 1 and 3 of the paper on Adaptive Pacing from its model, as SVG files."""
    try:
        written = draw(folder)
    except ImportError as error:
        raise click.ClickException(f"{error}: install weir[lab], or run `make setup`") from error
    except OSError as error:
        raise click.ClickException(f"cannot write the figures: {error}") from error
    for path in written:
        click.echo(path)


def _is_this_build(name: str) -> bool | None:
    """None: this user cannot see it, or nothing is built."""
    try:
        return is_this_build(name)
    except (TransportError, PermissionError):
        return None


def _print_state(name: str, state: str, as_json: bool) -> None:
    click.echo(json.dumps({"name": name, "state": state}) if as_json else f"{name}: {state}")
