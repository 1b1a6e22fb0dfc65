"""`weir transports`: list, load, unload, sockets."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from transports.congestion import TRANSPORTS, available, load, unload
from transports.sockets import socket_reader

Row = dict[str, Any]
_json = click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
_name = click.argument("name", type=click.Choice(list(TRANSPORTS)))


@click.group()
def transports() -> None:
    """Congestion controls for hosts, in BPF: a socket chooses one by TCP_CONGESTION."""


@transports.command("list")
@_json
def list_command(as_json: bool) -> None:
    """Show which congestion controls there are, the kernel's and Weir's."""
    there = available()
    rows = [
        {"name": name, "what": "the kernel's", "loaded": True} for name in there if name not in TRANSPORTS
    ]
    rows += [{"name": t.name, "what": t.summary, "loaded": t.name in there} for t in TRANSPORTS.values()]
    _show(rows, as_json)


@transports.command("load")
@_name
@_json
def load_command(name: str, as_json: bool) -> None:
    """Load a congestion control of Weir, for the whole host, until it is unloaded."""
    _say(name, "loaded" if load(name) else "loaded before", as_json)


@transports.command("unload")
@_name
@_json
def unload_command(name: str, as_json: bool) -> None:
    """Unload one; connections that use it go on."""
    _say(name, "unloaded" if unload(name) else "not loaded", as_json)


@transports.command("sockets")
@_json
def sockets_command(as_json: bool) -> None:
    """Show what weir_dctcp holds of each connection of this network namespace."""
    with socket_reader() as reader:
        rows = [asdict(one) for one in reader.read()]
    for row in rows:
        row |= {end: f"{row[end][0]} {row[end][1]}" for end in ("local", "remote")}
    _show(rows, as_json)


def _say(name: str, what: str, as_json: bool) -> None:
    click.echo(json.dumps({"name": name, "state": what}) if as_json else f"{name}: {what}")


def _show(rows: list[Row], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows))
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for column in rows[0] if rows else ():
        table.add_column(column.replace("_", " "))
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    Console().print(table if rows else "none")


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
