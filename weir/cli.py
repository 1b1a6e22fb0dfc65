"""The `weir` command: imports each subcommand from its own package when the subcommand is called.

A package that cannot be imported disables its own subcommand only, so `weir doctor` still works.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import NamedTuple

import click


class Part(NamedTuple):
    """Where a subcommand is defined (module:attribute), and its line in `weir --help`."""

    location: str
    summary: str


PARTS = {
    "accounts": Part("webui.cli:accounts", "Manage the accounts that may log in to the dashboard."),
    "config": Part("weir.config:config", "Check the configuration file."),
    "controller": Part("weir.controller:controller", "Run the controller apps on Ryu or os-ken."),
    "db": Part("flowdb.maintenance.cli:db", "Create, upgrade, measure, export and prune the flow database."),
    "dcudp": Part("dcudp.cli:dcudp", "Send and receive files over DCUDP, and measure it."),
    "doctor": Part("weir.doctor:doctor", "Check this machine, and print how to add what is missing."),
    "fleet": Part("weir.fleet:fleet", "Turn Weir off or on at all switches of the controllers."),
    "flows": Part(
        "openflow_ext.switch.show_cli:flows", "Show the flow entries or tracked flows of an extended switch."
    ),
    "lab": Part("mininet_topos.cli:lab", "Run experiments in Mininet."),
    "off": Part("openflow_ext.switch.off_cli:off", "Turn Weir off at all ports of this host, at once."),
    "on": Part("openflow_ext.switch.off_cli:on", "Turn Weir on again at all ports of this host."),
    "ports": Part("openflow_ext.switch.show_cli:ports", "Show the ports of an extended switch."),
    "support": Part("weir.support:support", "Write a bundle for a bug report, without secrets."),
    "switch": Part("openflow_ext.switch.cli:switch", "Extend Open vSwitch bridges: run the agent."),
    "transports": Part("transports.cli:transports", "List, load and unload congestion controls for hosts."),
    "web": Part("webui.cli:web", "Serve the dashboard."),
    "why": Part("weir.why:why", "Explain why a flow was slowed down, and what followed."),
}


class LazyGroup(click.Group):
    """A group that imports a subcommand when it is called, and lists all without importing any."""

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
            raise click.ClickException(f"{name} cannot be loaded: {error}; run `make setup`") from error
        if not isinstance(command, click.Command):
            raise click.ClickException(
                f"{name} cannot be loaded: {PARTS[name].location} is not a click command"
            )
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, PARTS[name].summary) for name in sorted(PARTS)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="weir", message="weir %(version)s")
def weir() -> None:
    """Keep data-center switch queues short: SDTCP and SCCP on Ryu and Open vSwitch."""


def main() -> None:
    """Run `weir`. An error is one line on stderr and exit code 1; WEIR_DEBUG=1 shows its traceback."""
    try:
        weir.main(prog_name="weir")
    except Exception as error:
        if os.environ.get("WEIR_DEBUG"):
            raise
        click.echo(f"weir: {_one_line(error)}", err=True)
        sys.exit(1)


def _one_line(error: Exception) -> str:
    """The message of an error; for an error that is not one of Weir's own, its type as well."""
    ours = any(type(error).__module__.startswith(part.location.split(".")[0]) for part in PARTS.values())
    text = " ".join(str(error).split())
    return text if ours and text else f"{type(error).__name__}: {text}".removesuffix(": ")
