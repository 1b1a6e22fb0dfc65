"""``weir off`` and ``weir on``: all ports of this host's switches, or of all switches of the controllers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from openflow_ext.switch.agent import watch
from openflow_ext.switch.config import SwitchSettings
from openflow_ext.switch.dataplane.interface import DataPlaneError
from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from openflow_ext.switch.errors import AgentRuns, SwitchError
from openflow_ext.switch.locks import lock_of_data_plane, locked
from openflow_ext.switch.off_ports import ports_off, set_off
from openflow_ext.switch.ovs import takeover
from weir_base.settings import SettingsError, load

FOLLOWS_S = 2.0
"""An agent that runs has followed the change after this time."""
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Switched:
    """The result at one bridge: its ports, and how many of them are off now."""

    bridge: str
    ports: int
    off: int


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        click.option("--rundir", type=click.Path(path_type=Path), help="Open vSwitch's run directory."),
        click.option("--name", help="Name of the data plane (default: [switch] name)."),
        click.option("--bridge", "bridges", multiple=True, help="Only this bridge; can be repeated."),
    ):
        command = option(command)
    return command


@click.command()
@_options
def off(**options: Any) -> None:
    """Turn Weir off at all ports of this host, at once and without losing state.

    No packet is changed any more: no window is lowered, no SYN fitted, no packet marked. Flows, N_i, entries,
    alarms and decisions go on, so that "weir on" continues where it was. Windows of connections that were
    opened with a finer window scale are still translated, because their hosts would misread them otherwise.

    The command works while the agent or Open vSwitch is down. It is noted in Open vSwitch's database
    (external_ids:weir-off of the bridge), and holds until "weir on", also over restarts. "weir fleet off"
    reaches every switch of the controllers.

    \b
    Examples:
      weir off
      weir off --bridge br0
    """
    _turn_or_exit(off=True, **options)


@click.command()
@_options
def on(**options: Any) -> None:
    """Turn Weir on again at all ports of this host.

    \b
    Examples:
      weir on
      weir on --bridge br0
    """
    _turn_or_exit(off=False, **options)


def _turn_or_exit(*, off: bool, as_json: bool, bridges: tuple[str, ...], **given: Any) -> None:
    word = "off" if off else "on"
    try:
        chosen = {name: value for name, value in given.items() if value}
        settings = load("switch", SwitchSettings).model_copy(update=chosen)
        done = asyncio.run(_turn(settings, bridges, off))
    except (SwitchError, DataPlaneError, SettingsError) as error:
        click.echo(
            json.dumps({"event": "error", "message": str(error)}) if as_json else f"weir {word}: {error}",
            err=not as_json,
        )
        sys.exit(1)
    if as_json:
        click.echo(json.dumps({"event": word, "bridges": [asdict(one) for one in done]}))
        return
    observes = (
        '[switch] mode is "observe"'
        if settings.mode == "observe"
        else 'the agent that runs keeps them off: its [switch] mode is "observe", or it does not answer'
    )
    for one in done:
        why = f": {observes}" if one.off and not off else ""
        click.echo(f"bridge {one.bridge}: {one.off} of {one.ports} ports are off{why}")


async def _turn(settings: SwitchSettings, bridges: tuple[str, ...], off: bool) -> list[Switched]:
    """Turn the bridges off or on. Raises SwitchError, DataPlaneError."""
    with contextlib.closing(PinnedMaps(settings.name)) as maps:
        if off and not bridges:
            for number in {number for number, _ in maps.ports().values()}:
                set_off(maps, number, True)
        try:
            db = await watch(settings.rundir)
        except SwitchError as error:
            done = (
                "all ports are off now, but an agent that starts turns them on: "
                if off and not bridges
                else ""
            )
            raise SwitchError(f"{done}{error}") from error
        try:
            numbers = _extended(db.tables["Bridge"].values(), settings.name, bridges)
            for name, number in numbers.items():
                if off:
                    set_off(maps, number, True)
                await takeover.switch_off(db, name, off)
            return [await _followed(maps, settings, name, number, off) for name, number in numbers.items()]
        finally:
            await db.close()


def _extended(rows: Any, name: str, bridges: tuple[str, ...]) -> dict[str, int]:
    """The number of each bridge of the data plane ``name``. Raises SwitchError for a bridge that has none."""
    ours = {
        row["name"]: int(row["external_ids"][takeover.NUMBER])
        for row in rows
        if row["external_ids"].get(takeover.NAME) == name
        and row["external_ids"].get(takeover.NUMBER, "").isdecimal()
    }
    if not ours:
        raise SwitchError(f"no bridge is extended by the data plane {name}: start `weir switch` first")
    for bridge in bridges:
        if bridge not in ours:
            raise SwitchError(
                f"bridge {bridge} is not extended; the extended ones: {', '.join(sorted(ours))}"
            )
    return {bridge: number for bridge, number in ours.items() if not bridges or bridge in bridges}


async def _followed(
    maps: PinnedMaps, settings: SwitchSettings, name: str, number: int, off: bool
) -> Switched:
    """Wait until the agent has followed. If no agent runs, change the ports here.

    An agent that runs may have other settings than this command. What it wrote is in force.
    """
    wanted = off or settings.mode == "observe"
    until_s = time.monotonic() + FOLLOWS_S
    while set((found := ports_off(maps, number)).values()) - {wanted} and time.monotonic() < until_s:
        await asyncio.sleep(POLL_S)
    if set(found.values()) - {wanted}:
        lock = lock_of_data_plane(settings.rundir, settings.name)
        with (
            contextlib.suppress(AgentRuns),
            locked(lock, f"the data plane {settings.name}"),  # no agent starts while the ports are changed
        ):
            set_off(maps, number, wanted)
        found = ports_off(maps, number)
    return Switched(name, len(found), sum(found.values()))
