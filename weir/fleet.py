"""`weir fleet off` and `weir fleet on`: all switches of the controllers, by way of the flow database."""

from __future__ import annotations

import getpass
import os
import time

import click
from sqlalchemy import select, update
from sqlalchemy.engine import Engine

from flowdb import schema
from flowdb.commands import Kind, request_command
from flowdb.config import FlowDbSettings, database_url_of_argument
from flowdb.engine import open_engine, open_reader, reporting_errors
from flowdb.models import CommandRow
from weir_base.settings import VARIABLE, load

WAIT_S = 15.0
"""A controller looks for commands every half second, and its switches answer within three seconds."""
POLL_S = 0.2


@click.group()
def fleet() -> None:
    """Turn Weir off or on at all switches that are connected to the controllers.

    A switch that is not connected keeps its state. `weir off` on its host turns it off.
    """


@fleet.command(name="off")
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="The configuration file.")
@click.option("--db", help="The flow database: an SQLAlchemy URL or an SQLite file.")
def fleet_off(config: str | None, db: str | None) -> None:
    """Turn Weir off: no switch changes a packet, and all go on counting. Exit 1 unless all carried it out."""
    _ask("off", config, db)


@fleet.command(name="on")
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="The configuration file.")
@click.option("--db", help="The flow database: an SQLAlchemy URL or an SQLite file.")
def fleet_on(config: str | None, db: str | None) -> None:
    """Turn Weir on again. Exit 1 unless all switches carried it out."""
    _ask("on", config, db)


def _ask(kind: Kind, config: str | None, db: str | None) -> None:
    if config:
        os.environ[VARIABLE] = config
    url = database_url_of_argument(db) if db else load("flowdb", FlowDbSettings).database_url
    with reporting_errors(url, "read"), open_reader(url).connect() as connection:
        schema.require_newest(connection, url)  # opening it for writing would create it
    with reporting_errors(url):
        engine = open_engine(url)
        with engine.begin() as connection:
            command_id = request_command(connection, kind, {}, f"{getpass.getuser()} (weir fleet)")
        done = _await_outcome(engine, command_id) or _withdraw(engine, command_id)
    if done is None:
        raise click.ClickException(
            f"no controller answered within {WAIT_S:.0f} s: start one with this database,"
            f" or run `weir {kind}` on the host of each switch"
        )
    succeeded, outcome = done
    if not succeeded:
        raise click.ClickException(outcome)
    click.echo(outcome)


def _withdraw(engine: Engine, command_id: int) -> tuple[bool, str] | None:
    """Keep controllers from carrying out a command later; None if none had begun, otherwise an answer."""
    unclaimed = (CommandRow.id == command_id) & CommandRow.taken_ns.is_(None)
    ended = {"taken_ns": CommandRow.asked_ns, "done_ns": CommandRow.asked_ns}
    withdrawn = {**ended, "succeeded": False, "outcome": "withdrawn: no controller took it"}
    with engine.begin() as connection:
        if connection.execute(update(CommandRow).where(unclaimed).values(withdrawn)).rowcount:
            return None
    return False, "a controller took the command, and has not carried it out at all switches yet"


def _await_outcome(engine: Engine, command_id: int) -> tuple[bool, str] | None:
    """Whether a command succeeded, and its outcome; None if no controller carried it out in time."""
    wanted = select(CommandRow.done_ns, CommandRow.succeeded, CommandRow.outcome).where(
        CommandRow.id == command_id
    )
    until_s = time.monotonic() + WAIT_S
    while time.monotonic() < until_s:
        with engine.connect() as connection:
            row = connection.execute(wanted).one()
        if row.done_ns:
            return bool(row.succeeded), str(row.outcome)
        time.sleep(POLL_S)
    return None
