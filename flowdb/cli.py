"""`weir db`: the flow database, made, looked at, thinned out and taken away."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from flowdb import schema
from flowdb.clock import Clock
from flowdb.config import FlowDbSettings, database_url
from flowdb.engine import FlowDbError, open_engine, open_reader, said_plainly, shown
from flowdb.flow import NS_PER_S
from flowdb.models import Base
from flowdb.retention import Retention, prune
from flowdb.stats import Stats, stats
from openflow_ext.settings import SettingsError, load

_PRUNE_AT_ONCE = 20_000
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


class _Errors(click.Group):
    """Whatever is wrong with the database or the settings is one line, and exit 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (FlowDbError, SettingsError) as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Errors)
@click.option("--db", "place", help="A URL, or an SQLite file. Default: $WEIR_DB or [flowdb] url.")
@click.pass_context
def db(ctx: click.Context, place: str | None) -> None:
    """Make, upgrade, measure, export and prune the flow database."""
    ctx.obj = database_url(place) if place else load("flowdb", FlowDbSettings).database_url


@db.command()
@_JSON
@click.pass_obj
def init(url: str, as_json: bool) -> None:
    """Make the tables of an empty database; one that has them is left as it is."""
    _bring_up(url, as_json, only_empty=True)


@db.command()
@_JSON
@click.pass_obj
def upgrade(url: str, as_json: bool) -> None:
    """Bring the tables to this version's, with all that is in them; stop the controllers first."""
    _bring_up(url, as_json, only_empty=False)


def _bring_up(url: str, as_json: bool, only_empty: bool) -> None:
    engine = open_engine(url)
    with said_plainly(url):
        if only_empty:
            with engine.begin() as connection:
                if schema.version(connection) is not None:
                    schema.require_newest(connection, url)
        before, after = schema.upgrade(engine, url)
    if as_json:
        click.echo(json.dumps({"database": shown(url), "before": before, "after": after}))
    elif before == after:
        click.echo(f"{shown(url)}: version {after}, nothing to do")
    else:
        click.echo(f"{shown(url)}: {f'version {before} is now' if before else 'made, version'} {after}")


@db.command(name="stats")
@_JSON
@click.pass_obj
def stats_command(url: str, as_json: bool) -> None:
    """Say how many rows each table has, of what time, and which controllers write."""
    engine = open_reader(url)
    with said_plainly(url, "read"), engine.connect() as connection:
        schema.require_newest(connection, url)
        found = stats(connection, Clock())
    if as_json:
        click.echo(json.dumps({"database": shown(url), **found.as_dict()}))
    else:
        _show(url, found)


@db.command()
@click.argument("table", type=click.Choice(sorted(Base.metadata.tables)))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--format", "kind", type=click.Choice(["csv", "parquet"]), help="Default: by FILE's ending.")
@click.option("--since", type=click.DateTime(), help="Rows from this time on (local time).")
@click.option("--until", type=click.DateTime(), help="Rows before this time.")
@_JSON
@click.pass_obj
def export(
    url: str,
    table: str,
    file: Path,
    kind: Any,
    since: datetime | None,
    until: datetime | None,
    as_json: bool,
) -> None:
    """Write TABLE to FILE, as CSV or Parquet; JSON columns as text, times in Unix nanoseconds."""
    from flowdb import export as exporting  # pyarrow takes a while to load

    kind = kind or file.suffix.removeprefix(".")
    if kind not in get_args(exporting.Format):
        raise click.UsageError(f"{file} ends with neither .csv nor .parquet; give --format")
    engine = open_reader(url)
    with said_plainly(url, "read"), _working(f"exporting {table}", as_json):
        with engine.connect() as connection:
            schema.require_newest(connection, url)
        rows = exporting.export(engine, table, file, kind, _ns(since), _ns(until))
    if as_json:
        click.echo(json.dumps({"table": table, "file": str(file), "format": kind, "rows": rows}))
    else:
        click.echo(f"{file}: {rows:,} rows of {table}")


@db.command(name="prune")
@click.option("--flows-days", type=click.FloatRange(min=0), help="Default: [flowdb] keep_flows_days.")
@click.option("--samples-days", type=click.FloatRange(min=0), help="Default: [flowdb] keep_samples_days.")
@_JSON
@click.pass_obj
def prune_command(url: str, flows_days: float | None, samples_days: float | None, as_json: bool) -> None:
    """Delete what is older than so many days: closed flows, alarms and decisions; samples of ports.

    Controllers may run meanwhile. Open flows stay. SQLite's file keeps its size and fills it anew.
    """
    kept = load("flowdb", FlowDbSettings).retention
    retention = Retention(
        kept.flows_days if flows_days is None else flows_days,
        kept.samples_days if samples_days is None else samples_days,
    )
    with said_plainly(url, "prune"), _working("pruning", as_json):
        pruned = _prune_all(url, retention)
    if as_json:
        click.echo(json.dumps({"database": shown(url), "deleted": pruned}))
    else:
        click.echo(f"{shown(url)}: " + ", ".join(f"{rows:,} {table}" for table, rows in pruned.items()))


def _prune_all(url: str, retention: Retention) -> dict[str, int]:
    engine, now_ns = open_engine(url), Clock().now_ns()
    with engine.begin() as connection:
        schema.require_newest(connection, url)
    total: dict[str, int] = {}
    while True:
        with engine.begin() as connection:
            pruned = prune(connection, retention, now_ns, _PRUNE_AT_ONCE)
        total = {table: total.get(table, 0) + rows for table, rows in pruned.items()}
        if max(pruned.values()) < _PRUNE_AT_ONCE:
            return total


def _ns(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp()) * NS_PER_S


def _working(what: str, as_json: bool) -> Progress:
    """Shows that something goes on, where somebody looks."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    progress = Progress(*columns, console=console, transient=True, disable=as_json or not console.is_terminal)
    progress.add_task(what, total=None)
    return progress


def _show(url: str, found: Stats) -> None:
    console = Console()
    table = Table("table", "rows", "from", "to", title=f"{shown(url)}, {found.size_bytes / 1e6:.1f} MB")
    for one in found.tables:
        table.add_row(one.name, f"{one.rows:,}", _text(one.first_ns), _text(one.last_ns))
    console.print(table)
    for run in found.running:
        console.print(f"controller on {run.host}, process {run.pid}, seen {run.seen_s_ago:.0f} s ago")


def _text(at_ns: int | None) -> str:
    return "" if at_ns is None else datetime.fromtimestamp(at_ns / NS_PER_S).isoformat(" ", "seconds")
