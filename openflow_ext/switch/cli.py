"""``weir switch`` and ``weir ports``."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from openflow_ext.settings import SettingsError, check, load
from openflow_ext.switch.agent import Agent, detach
from openflow_ext.switch.config import SwitchSettings
from openflow_ext.switch.dataplane import DataPlaneError, NoSuchPort, PortCounters
from openflow_ext.switch.errors import SwitchError
from openflow_ext.switch.kernel import KernelDataPlane
from openflow_ext.switch.pinned import PinnedMaps


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"event": "log", "level": record.levelname.lower(), "message": record.getMessage()}
        return json.dumps(line)


@click.command()
@click.option("--bridge", "bridges", multiple=True, help="A bridge to extend; may be given again.")
@click.option(
    "--controller",
    "controllers",
    multiple=True,
    help="tcp:HOST[:PORT], ssl:HOST[:PORT] or unix:PATH; may be given again. Else: the bridge's own.",
)
@click.option("--name", help="Name of the data plane and its pins (default weir).")
@click.option("--rundir", type=click.Path(path_type=Path), help="Open vSwitch's run directory.")
@click.option("--keep", is_flag=True, help="At the end, leave the data plane working for a successor.")
@click.option("--detach", "do_detach", is_flag=True, help="Remove what a killed agent has left, and end.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable lines.")
@click.option("-q", "--quiet", is_flag=True, help="Log warnings only.")
def switch(keep: bool, do_detach: bool, as_json: bool, quiet: bool, **options: Any) -> None:
    """Extend Open vSwitch bridges: the agent that understands Weir's OpenFlow extension."""
    _set_up_log(as_json, quiet)
    try:
        settings = _settings(options)
        if do_detach:
            _report_detached(asyncio.run(detach(settings, lambda: _open_dataplane(settings))), as_json)
        else:
            asyncio.run(_run(settings, keep, as_json))
    except (SwitchError, DataPlaneError, SettingsError) as error:
        _fail(error, as_json)


def _settings(options: dict[str, Any]) -> SwitchSettings:
    """The [switch] section, overruled by the options that were given."""
    given = {name: value for name, value in options.items() if value}
    if "bridges" in given:
        given["bridges"] = tuple(dict.fromkeys(given["bridges"]))
    section = load("switch", SwitchSettings).model_dump(exclude_unset=True)
    return check("switch", SwitchSettings, {"switch": section | given}, "weir switch")


def _open_dataplane(settings: SwitchSettings) -> KernelDataPlane:
    if os.geteuid() != 0:
        raise SwitchError("not root: BPF programs need it; run with sudo")
    return KernelDataPlane(settings.name, settings.max_flows, settings.assumed_scale)


def _set_up_log(as_json: bool, quiet: bool) -> None:
    handler = logging.StreamHandler(sys.stdout if as_json else sys.stderr)
    handler.setFormatter(_JsonLines() if as_json else logging.Formatter("weir switch: %(message)s"))
    root = logging.getLogger("openflow_ext")
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING if quiet else logging.INFO)


async def _run(settings: SwitchSettings, keep: bool, as_json: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def ready(ports: int, failed: list[str]) -> None:
        if as_json:
            click.echo(json.dumps({"event": "ready", "ports": ports, "failed": failed}))
        else:
            click.echo(
                f"weir switch: ready, {ports} ports" + (f", not {', '.join(failed)}" if failed else "")
            )
        _tell_service_manager("READY=1")

    await Agent(settings, lambda: _open_dataplane(settings), ready).run(stop, keep)


def _tell_service_manager(state: str) -> None:
    """sd_notify(3), where a service manager listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
            notify.send(state.encode())


def _report_detached(bridges: list[str], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"event": "detached", "bridges": bridges}))
    else:
        click.echo(f"weir switch: detached; restored: {', '.join(bridges) or 'nothing to restore'}")


def _fail(error: Exception, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"event": "error", "message": str(error)}))
    else:
        click.echo(f"weir switch: {error}", err=True)
    sys.exit(1)


@click.command()
@click.option("--name", default="weir", help="Name of the data plane (default weir).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a reading.")
@click.option("--watch", is_flag=True, help="Read again each second until Ctrl-C.")
def ports(name: str, as_json: bool, watch: bool) -> None:
    """Show the port counters of a running data plane."""
    try:
        maps = PinnedMaps(name)
        try:
            _show(maps, as_json, watch)
        finally:
            maps.close()
    except DataPlaneError as error:
        _fail(error, as_json)
    except KeyboardInterrupt:
        pass


def _show(maps: PinnedMaps, as_json: bool, watch: bool) -> None:
    if as_json:
        while True:
            click.echo(json.dumps({"ports": read_ports(maps)}))
            if not watch:
                return
            time.sleep(1)
    if not watch:
        Console().print(_table(read_ports(maps)))
        return
    with Live(_table(read_ports(maps))) as live:
        while True:
            time.sleep(1)
            live.update(_table(read_ports(maps)))


def read_ports(maps: PinnedMaps) -> list[dict[str, Any]]:
    """Every port with its counters, by bridge and OpenFlow port number."""
    rows = []
    for ifindex, (bridge, ofport) in sorted(maps.ports().items(), key=lambda item: item[1]):
        try:
            counters = maps.counters(ifindex)
        except NoSuchPort:
            continue
        place = {"name": _name(ifindex), "bridge": bridge, "ofport": ofport, "ifindex": ifindex}
        rows.append(place | dataclasses.asdict(counters))
    return rows


def _name(ifindex: int) -> str:
    try:
        return socket.if_indextoname(ifindex)
    except OSError:
        return f"if{ifindex}"


_SHOWN = [field.name for field in dataclasses.fields(PortCounters)]


def _table(rows: list[dict[str, Any]]) -> Table:
    """One column a port: a port has more counters than a terminal has room beside each other."""
    table = Table(title="Port counters")
    table.add_column("")
    for row in rows:
        table.add_column(f"{row['name']} ({row['ofport']})", justify="right")
    for shown in _SHOWN:
        table.add_row(
            shown, *(f"{row[shown]:,}" if shown != "alarm_up" else _yes(row[shown]) for row in rows)
        )
    return table


def _yes(value: bool) -> str:
    return "yes" if value else "no"
