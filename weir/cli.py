"""The `weir` command: finds each subcommand in the part that it belongs to, when it is asked for.

A part that cannot be imported takes down its own subcommand only, so `weir doctor` still works.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import NamedTuple

import click


class Part(NamedTuple):
    """Where a subcommand lives, and its line in `weir --help`."""

    location: str
    summary: str


PARTS = {
    "accounts": Part("webui.cli:accounts", "Say who may log in to the dashboard."),
    "config": Part("weir.config:config", "Check the configuration file."),
    "controller": Part("weir.controller:controller", "Run the controller's apps, on Ryu or os-ken."),
    "db": Part("flowdb.cli:db", "Make, upgrade, measure, export and prune the flow database."),
    "doctor": Part("weir.doctor:doctor", "Say what this machine can do, and how to get the rest."),
    "flows": Part(
        "openflow_ext.switch.look:flows", "Show an extended switch's entries, or its tracked flows."
    ),
    "lab": Part("mininet_topos.cli:lab", "Run experiments in Mininet."),
    "ports": Part("openflow_ext.switch.look:ports", "Show the ports of an extended switch."),
    "switch": Part("openflow_ext.switch.cli:switch", "Extend a bridge of Open vSwitch: run the agent."),
    "transports": Part("transports.cli:transports", "Congestion controls for hosts: list, load, unload."),
    "web": Part("webui.cli:web", "Serve the dashboard."),
    "why": Part("weir.why:why", "Say why a flow was slowed down, and what came of it."),
}


class LazyGroup(click.Group):
    """A group that imports a subcommand when it is called, and lists them without importing any."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return sorted(PARTS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in PARTS:
            return None
        module, attribute = PARTS[name].location.split(":")
        try:
            command = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            if os.environ.get("WEIR_DEBUG"):
                raise
            raise click.ClickException(f"{name} cannot be loaded: {error}; try `make setup`") from error
        if not isinstance(command, click.Command):
            raise click.ClickException(f"{name} cannot be loaded: {PARTS[name].location} is no command")
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, PARTS[name].summary) for name in sorted(PARTS)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="weir", message="weir %(version)s")
def weir() -> None:
    """Keep data-center switch queues short: SDTCP and SCCP on Ryu and Open vSwitch."""


def main() -> None:
    """Run `weir`. An error is one line on stderr and exit code 1; WEIR_DEBUG=1 shows where it arose."""
    try:
        weir.main(prog_name="weir")
    except Exception as error:
        if os.environ.get("WEIR_DEBUG"):
            raise
        click.echo(f"weir: {_in_a_line(error)}", err=True)
        sys.exit(1)


def _in_a_line(error: Exception) -> str:
    """The message alone for errors of ours; the type too for one that nobody foresaw."""
    ours = any(type(error).__module__.startswith(part.location.split(".")[0]) for part in PARTS.values())
    text = " ".join(str(error).split())
    return text if ours and text else f"{type(error).__name__}: {text}".removesuffix(": ")
