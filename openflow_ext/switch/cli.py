"""``weir switch``: options, settings, the process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import click

from openflow_ext.settings import SettingsError, check, load
from openflow_ext.switch.agent import Agent, detach
from openflow_ext.switch.config import SwitchSettings
from openflow_ext.switch.dataplane import DataPlaneError
from openflow_ext.switch.errors import SwitchError
from openflow_ext.switch.kernel import KernelDataPlane
from openflow_ext.switch.remains import remove_left


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
@click.option(
    "--count",
    type=click.Choice(["flows", "simple"]),
    help="What N_i is: live flows (default), or SCCP's plain integer, without flow state.",
)
@click.option("--keep", is_flag=True, help="At the end, leave the data plane working for a successor.")
@click.option("--detach", "do_detach", is_flag=True, help="Remove what a killed agent has left, and end.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable lines.")
@click.option("-q", "--quiet", is_flag=True, help="Log warnings only.")
def switch(keep: bool, do_detach: bool, as_json: bool, quiet: bool, **options: Any) -> None:
    """Extend Open vSwitch bridges: the agent that understands Weir's OpenFlow extension.

    The agent puts itself between a bridge and its controllers, BPF programs on the bridge's ports, and
    what it replaced back when it ends (Ctrl-C, SIGTERM). Forwarding goes on whatever becomes of it; killed,
    it leaves counting, clamping and marking at work for a successor.

    \b
    Files, below Open vSwitch's run directory:
      BRIDGE.controller*   the sockets that Open vSwitch connects to
      weir.NAME.lock, BRIDGE.weir.lock   one agent a data plane, one a bridge
    and /sys/fs/bpf/NAME, the data plane.

    \b
    Settings: section [switch] of the file that $WEIR_CONFIG names; options overrule it.
      bridges, controllers, name, rundir        as the options
      private_key, certificate, ca_certificate  for ssl: controllers (default: ovs-vsctl set-ssl's)
      max_flows       TCP flows that can be tracked (1000000), 0.3 KB of memory each
      assumed_scale   window scale where no handshake was seen (none: such flows are not clamped)
      idle_s          a flow without payload for so long leaves N_i (1; 0: never)
      count           flows, or simple: SCCP's plain integer
      mark_pkts       mark ECN-capable packets that join a longer queue (0: none); a controller's PORT_CONFIG
                      overrules it
      framing         experimenter, or native: alarms as message types of OpenFlow 1.3

    \b
    Examples:
      weir switch --bridge br0 --controller tcp:192.0.2.1:6653
      weir switch --bridge br0 --keep      under a service manager (sd_notify is spoken)
      weir switch --bridge br0 --detach    after a crash, to have the bridge as it was

    Exit code 1, and one line that says why, where it cannot start; nothing has changed then.
    """
    _set_up_log(as_json, quiet)
    try:
        settings = _settings(options)
        _require_root()
        if do_detach:
            _report_detached(asyncio.run(detach(settings, remove_left)), as_json)
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


def _require_root() -> None:
    if os.geteuid() != 0:
        raise SwitchError("not root: BPF programs need it; run with sudo")


def _open_dataplane(settings: SwitchSettings) -> KernelDataPlane:
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
