"""`weir db`: create, upgrade, measure, export and prune the flow database."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from flowdb import schema
from flowdb.clock import Clock
from flowdb.config import FlowDbSettings, database_url_of_argument
from flowdb.database_url import without_password
from flowdb.engine import FlowDbError, open_engine, open_reader, reporting_errors
from flowdb.flow import NS_PER_S
from flowdb.maintenance.stats import Stats, stats
from flowdb.models import Base
from flowdb.retention import Retention, prune
from weir_base import tables
from weir_base.parameters import FiniteRange
from weir_base.settings import SettingsError, load

_PRUNE_ROWS = 20_000
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class _Errors(click.Group):
    """Reports an error of the database or the settings in one line, with exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (FlowDbError, SettingsError) as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Errors)
@click.option(
    "--db", "place", help="The database: a URL or an SQLite file. Default: $WEIR_DB, then [flowdb] url."
)
@click.pass_context
def db(ctx: click.Context, place: str | None) -> None:
    """Create, upgrade, measure, export and prune the flow database."""
    ctx.obj = database_url_of_argument(place) if place else load("flowdb", FlowDbSettings).database_url


@db.command()
@_JSON
@click.pass_obj
def init(url: str, as_json: bool) -> None:
    """Create the tables of an empty database. A database that has them is not changed."""
    _bring_up(url, as_json, only_empty=True)


@db.command()
@_JSON
@click.pass_obj
def upgrade(url: str, as_json: bool) -> None:
    """Upgrade the tables to this version of Weir.

    The rows are kept. Stop the controllers first.
    """
    _bring_up(url, as_json, only_empty=False)


def _bring_up(url: str, as_json: bool, only_empty: bool) -> None:
    engine = open_engine(url)
    with reporting_errors(url):
        if only_empty:
            with engine.begin() as connection:
                if schema.version(connection) is not None:
                    schema.require_newest(connection, url)
        before, after = schema.upgrade(engine, url)
    if as_json:
        click.echo(json.dumps({"database": without_password(url), "before": before, "after": after}))
    elif before == after:
        click.echo(f"{without_password(url)}: version {after}, nothing to do")
    else:
        change = f"upgraded from version {before} to" if before else "tables created, version"
        click.echo(f"{without_password(url)}: {change} {after}")


@db.command(name="stats")
@_JSON
@click.pass_obj
def stats_command(url: str, as_json: bool) -> None:
    """Show the size of each table and the running controllers."""
    engine = open_reader(url)
    with reporting_errors(url, "read"), engine.connect() as connection:
        schema.require_newest(connection, url)
        found = stats(connection, Clock())
    if as_json:
        click.echo(json.dumps({"database": without_password(url), **found.as_dict()}))
    else:
        _show(url, found)


@db.command()
@click.argument("table", type=click.Choice(sorted(Base.metadata.tables)))
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--format", "kind", type=click.Choice(["csv", "parquet"]), help="Default: by the ending of FILE."
)
@click.option("--since", type=click.DateTime(), help="Only rows from this local time on.")
@click.option("--until", type=click.DateTime(), help="Only rows before this local time.")
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
    """Write TABLE to FILE, as CSV or Parquet.

    JSON columns become text. Times are Unix times in nanoseconds.
    """
    from flowdb.maintenance import export as exporting  # pyarrow takes a while to load

    kind = kind or file.suffix.removeprefix(".")
    if kind not in get_args(exporting.Format):
        raise click.UsageError(f"{file} does not end with .csv or .parquet; give --format")
    engine = open_reader(url)
    with reporting_errors(url, "read"), _working(f"exporting {table}", as_json):
        with engine.connect() as connection:
            schema.require_newest(connection, url)
        rows = exporting.export(engine, table, file, kind, _ns(since), _ns(until))
    if as_json:
        click.echo(json.dumps({"table": table, "file": str(file), "format": kind, "rows": rows}))
    else:
        click.echo(f"{file}: {rows:,} rows of {table}")


@db.command(name="prune")
@click.option(
    "--flows-days",
    type=FiniteRange(min=0),
    help="Age limit of closed flows, alarms and decisions. Default: [flowdb] keep_flows_days.",
)
@click.option(
    "--samples-days",
    type=FiniteRange(min=0),
    help="Age limit of samples of port counters. Default: [flowdb] keep_samples_days.",
)
@click.option(
    "--gb",
    type=FiniteRange(min=0, min_open=True),
    help="Limit of the rows in GB; the oldest are deleted. Default: [flowdb] keep_gb.",
)
@_JSON
@click.pass_obj
def prune_command(
    url: str, flows_days: float | None, samples_days: float | None, gb: float | None, as_json: bool
) -> None:
    """Delete old rows.

    Old rows are closed flows, alarms, decisions and clamps, and samples of port counters. Open flows are
    kept. Controllers may run at the same time. An SQLite file keeps its size; new rows use the free space.
    """
    kept = load("flowdb", FlowDbSettings).retention
    retention = Retention(
        kept.flows_days if flows_days is None else flows_days,
        kept.samples_days if samples_days is None else samples_days,
        kept.most_bytes if gb is None else round(gb * 1e9),
    )
    with reporting_errors(url, "prune"), _working("pruning", as_json):
        pruned = _prune_all(url, retention)
    if as_json:
        click.echo(json.dumps({"database": without_password(url), "deleted": pruned}))
    else:
        click.echo(
            f"{without_password(url)}: deleted "
            + ", ".join(f"{rows:,} {table}" for table, rows in pruned.items())
        )


def _prune_all(url: str, retention: Retention) -> dict[str, int]:
    engine, clock = open_engine(url), Clock()
    with engine.begin() as connection:
        schema.require_newest(connection, url)
    total: dict[str, int] = {}
    while True:
        with engine.begin() as connection:
            pruned = prune(connection, retention, clock, _PRUNE_ROWS)
        total = {table: total.get(table, 0) + rows for table, rows in pruned.items()}
        if sum(pruned.values()) < _PRUNE_ROWS:
            return total


def _ns(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp()) * NS_PER_S


def _working(what: str, as_json: bool) -> Progress:
    """Shows a spinner while the command works, if the output is a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    progress = Progress(*columns, console=console, transient=True, disable=as_json or not console.is_terminal)
    progress.add_task(what, total=None)
    return progress


def _show(url: str, found: Stats) -> None:
    title = f"{without_password(url)}, {found.size_bytes / 1e6:.1f} MB"
    rows = [
        {"table": one.name, "rows": one.rows, "first": one.first_ns, "last": one.last_ns}
        for one in found.tables
    ]
    tables.show(_STATS_COLUMNS, rows, title=title)
    for run in found.running:
        click.echo(f"controller on {run.host}, process {run.pid}, seen {run.seen_s_ago:.0f} s ago")


def _local_time(at_ns: int | None) -> str:
    return "" if at_ns is None else datetime.fromtimestamp(at_ns / NS_PER_S).isoformat(" ", "seconds")


_STATS_COLUMNS = (
    tables.Column("table", align="left"),
    tables.Column("rows", text=lambda row: f"{row['rows']:,}"),
    tables.Column("first", align="left", text=lambda row: _local_time(row["first"])),
    tables.Column("last", align="left", text=lambda row: _local_time(row["last"])),
)
