"""The commands of `weir lab`."""

from __future__ import annotations

import click

from mininet_topos.cli.experiments import list_command, run_command, schemes_command
from mininet_topos.cli.incast import demo_command, incast_command
from mininet_topos.cli.network import clean_command, rehearse_command, topologies_command
from mininet_topos.cli.results import compare_command, plot_command, report_command, summarise_command

COMMANDS = (
    *(demo_command, incast_command, list_command, schemes_command, run_command),
    *(report_command, summarise_command, plot_command, compare_command),
    *(topologies_command, rehearse_command, clean_command),
)


@click.group()
def lab() -> None:
    """Run experiments in Mininet: a real switch, real controllers and real TCP."""


for _command in COMMANDS:
    lab.add_command(_command)
