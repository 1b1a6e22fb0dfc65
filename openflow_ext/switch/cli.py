"""``weir switch``: its options, its settings, its process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from openflow_ext.switch import service_manager
from openflow_ext.switch.agent import Agent, detach
from openflow_ext.switch.config import SwitchSettings
from openflow_ext.switch.dataplane.interface import DataPlaneError
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from openflow_ext.switch.dataplane.removal import remove_data_plane
from openflow_ext.switch.errors import SwitchError
from weir_base.settings import SettingsError, check, load


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"event": "log", "level": record.levelname.lower(), "message": record.getMessage()}
        return json.dumps(line)


@click.command()
@click.option("--bridge", "bridges", multiple=True, help="A bridge to extend; can be repeated.")
@click.option(
    "--controller",
    "controllers",
    multiple=True,
    help="tcp:HOST[:PORT], ssl:HOST[:PORT] or unix:PATH; can be repeated. Default: the bridge's own.",
)
@click.option("--name", help="Name of the data plane and its pins (default weir).")
@click.option("--rundir", type=click.Path(path_type=Path), help="Open vSwitch's run directory.")
@click.option(
    "--count",
    type=click.Choice(["flows", "simple"]),
    help="N_i counts live flows (default), or is SCCP's plain integer without flow state.",
)
@click.option("--keep", is_flag=True, help="At the end, leave the data plane running for the next agent.")
@click.option(
    "--detach", "do_detach", is_flag=True, help="Remove what a killed agent left behind, then exit."
)
@click.option(
    "--discard-state",
    is_flag=True,
    help="Start without the clamps, counts and flows of an earlier agent whose maps cannot be taken over.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
@click.option("-q", "--quiet", is_flag=True, help="Log warnings only.")
def switch(
    keep: bool, do_detach: bool, discard_state: bool, as_json: bool, quiet: bool, **options: Any
) -> None:
    """Extend Open vSwitch bridges with Weir's OpenFlow extension: run the agent.

    The agent stands between a bridge and its controllers and attaches BPF programs to the bridge's ports.
    When it ends (Ctrl-C, SIGTERM) it restores what it replaced. If it is killed, forwarding continues, and
    the data plane keeps counting, clamping and marking until the next agent adopts it. An agent of another
    version moves its state into new maps while traffic passes. If state would be lost, it refuses to start.

    \b
    Files in Open vSwitch's run directory:
      BRIDGE.controller*   the sockets to which Open vSwitch connects
      weir.NAME.lock       the lock of the data plane
      BRIDGE.weir.lock     the lock of a bridge
    The data plane itself is pinned in /sys/fs/bpf/NAME.

    \b
    Settings: section [switch] of the configuration file ($WEIR_CONFIG, or /etc/weir/weir.toml).
    Options override it.
      bridges, controllers, name, rundir        as the options
      private_key, certificate, ca_certificate  for ssl: controllers (default: as in ovs-vsctl set-ssl)
      check_host_names  whether the certificate of an ssl: controller must name its host
      max_flows       TCP flows that can be tracked; each takes 0.3 KB of memory
                      (none: about 1 % of the memory, 65,536 to a million flows)
      assumed_scale   window scale if no handshake was seen (none: such flows are not clamped)
      idle_s          a flow without payload for this time in seconds leaves N_i (1; 0: never)
      count           flows, or simple: SCCP's plain integer
      mark_pkts       mark ECN-capable packets that join a queue longer than this (0: never);
                      a controller's PORT_CONFIG overrides it
      mark_all_pkts   mark all of them from this length on, and between the two lengths a share that
                      rises linearly (0: mark all beyond mark_pkts)
      packet_ins_per_s  limit of packet-ins to each controller (1000; 0: none)
      mode            act, or observe: everything is counted, and no packet is changed
      framing         experimenter, or native: alarms are message types of OpenFlow 1.3

    \b
    Examples:
      weir switch --bridge br0 --controller tcp:192.0.2.1:6653
      weir switch --bridge br0 --keep      under a service manager (sd_notify, watchdog)
      weir switch --bridge br0 --detach    after a crash, to restore the bridge

    If the agent cannot start, it changes nothing, prints one line with the reason and exits with code 1.
    """
    _set_up_log(as_json, quiet)
    try:
        settings = _settings(options)
        _require_root()
        if do_detach:
            _report_detached(asyncio.run(detach(settings, remove_data_plane)), as_json)
        else:
            asyncio.run(_run(settings, keep, as_json, discard_state))
    except (SwitchError, DataPlaneError, SettingsError) as error:
        _fail(error, as_json)


def _settings(options: dict[str, Any]) -> SwitchSettings:
    """The [switch] section, overridden by the options that were given."""
    given = {name: value for name, value in options.items() if value}
    if "bridges" in given:
        given["bridges"] = tuple(dict.fromkeys(given["bridges"]))
    section = load("switch", SwitchSettings).model_dump(exclude_unset=True)
    return check("switch", SwitchSettings, {"switch": section | given}, "weir switch")


def _require_root() -> None:
    if os.geteuid() != 0:
        raise SwitchError("not root: loading BPF programs requires root; run with sudo")


def _open_dataplane(settings: SwitchSettings, discard_state: bool) -> KernelDataPlane:
    return KernelDataPlane(
        settings.name, settings.max_flows, settings.assumed_scale, discard_state=discard_state
    )


def _set_up_log(as_json: bool, quiet: bool) -> None:
    handler = logging.StreamHandler(sys.stdout if as_json else sys.stderr)
    handler.setFormatter(_JsonLines() if as_json else logging.Formatter("weir switch: %(message)s"))
    root = logging.getLogger("openflow_ext")
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING if quiet else logging.INFO)


async def _run(settings: SwitchSettings, keep: bool, as_json: bool, discard_state: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def ready(ports: int, failed: list[str]) -> None:
        if as_json:
            click.echo(json.dumps({"event": "ready", "ports": ports, "failed": failed}))
        else:
            click.echo(
                f"weir switch: ready, {ports} ports" + (f", failed: {', '.join(failed)}" if failed else "")
            )
        service_manager.notify(service_manager.READY)

    alive = asyncio.create_task(service_manager.report_alive())
    try:
        await Agent(settings, lambda: _open_dataplane(settings, discard_state), ready).run(stop, keep)
    finally:
        alive.cancel()


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
