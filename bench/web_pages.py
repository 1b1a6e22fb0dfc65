"""Measure the server time of the dashboard's pages over a large database: p50, p95 and worst, in ms.

    python -m bench.web_pages [--db URL | --postgres] [--flows N] [--samples N] [--runs 30] [--json]

Without --db, the benchmark fills an SQLite file in a temporary folder, or a private PostgreSQL server. It
fills an empty database first and uses one with flows as it is. Flask's test client requests each page in
turn, so the time is the server's whole work without network and browser. The goal is a p95 of at most 150
ms for each page.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from sqlalchemy import select
from sqlalchemy.orm import Session

from bench import web_fill
from bench.figures import present
from bench.temporary import temporary_folder
from flowdb.config import database_url
from flowdb.engine import open_engine
from flowdb.flow import NS_PER_S
from flowdb.models import ClampRow, FlowRow
from mininet_topos.results.summary import percentile
from tests.support.database.postgres import Postgres
from webui.app import create_app
from webui.config import WebSettings
from webui.queries.paging import Cursor

GOAL_MS = 150
POLL_S = 0.05
"""Charts are made again after each poll; the pause between two requests is longer."""


def pages(flow_id: int, busy: str, deep: Cursor) -> dict[str, str]:
    """The addresses to request; ``deep`` is a page in the middle of all flows."""
    return {
        "overview": "/",
        "overview's chart": "/api/v1/busiest?span_s=3600&points=300",
        "topology": "/topology",
        "ports": "/ports",
        "port": busy,
        "port's chart, 1 h": f"/api/v1{busy}/series?span_s=3600",
        "flows": "/flows",
        "flows, in the middle": f"/flows?cursor={deep}",
        "flows of an address": f"/flows?q={web_fill.address(7)}",
        "flows from > to": f"/flows?q={web_fill.address(7)}>{web_fill.address(9)}",
        "flows of a TCP port": "/flows?q=:40000",
        "flows through a switch": "/flows?switch=s1",
        "flows through a port": "/flows?switch=s5&switch_port=1",
        "live flows": "/flows?state=live",
        "live flows of an address": f"/flows?state=live&q={web_fill.address(7)}",
        "live flows through a port": "/flows?switch=s5&switch_port=1&state=live",
        "flows by rate": "/flows?sort=rate",
        "punished flows": "/flows?state=punished",
        "ever punished flows": "/flows?state=slowed",
        "by policy": "/flows?policy=longest-lived-active",
        "flow": f"/flows/{flow_id}",
        "flow's chart": f"/api/v1/flows/{flow_id}",
        "actions": "/commands",
        "settings": "/settings",
        "metrics": "/metrics",
    }


@click.command(help=__doc__)
@click.option("--db", help="The URL or file of a database, which is filled if it has no flows.")
@click.option("--postgres", is_flag=True, help="Fill a private PostgreSQL server.")
@click.option("--flows", default=1_000_000, show_default=True)
@click.option("--samples", default=10_000_000, show_default=True)
@click.option("--runs", default=30, show_default=True, help="Number of requests of each page.")
@click.option("--json", "as_json", is_flag=True)
def main(db: str | None, postgres: bool, flows: int, samples: int, runs: int, as_json: bool) -> None:
    with temporary_folder() as folder, _database(db, postgres, folder) as url:
        begun = time.monotonic()
        if _newest_clamp(url) is None:
            web_fill.fill(url, flows, samples, lambda text: click.echo(text, err=True))
            click.echo(f"filled in {time.monotonic() - begun:.0f} s", err=True)
        clamp = _newest_clamp(url)
        if clamp is None:
            raise click.ClickException(
                f"{url} holds flows, but no clamp; give a database of this benchmark's"
            )
        settings = WebSettings(
            accounts=folder / "accounts.json", results=folder, query_limit_s=60, poll_s=POLL_S
        )
        client = create_app(settings, url).test_client()
        gc.freeze()  # as the server does when it starts
        rows: list[dict[str, Any]] = []
        middle = Cursor(time.time_ns() - 15 * 86_400 * NS_PER_S, 1 << 32)
        busy = f"/ports/{clamp.dpid:016x}/{clamp.port_no}"
        for name, address in pages(clamp.flow_id, busy, middle).items():
            times = []
            for _ in range(runs + 1):
                time.sleep(1.2 * POLL_S)
                start = time.perf_counter()
                answer = client.get(address)
                times.append((time.perf_counter() - start) * 1000)
                if answer.status_code != 200:
                    raise click.ClickException(f"{address}: {answer.status_code}: {answer.text[:500]}")
            kept = times[1:]
            figures = {"p50 ms": percentile(kept, 50), "p95 ms": percentile(kept, 95), "max ms": max(kept)}
            rows.append({"page": name} | {key: round(value, 1) for key, value in figures.items()})
    title = f"The dashboard's pages, {url.partition(':')[0]}, {flows:,} flows, {samples:,} samples"
    present(title, list(rows[0]), rows, as_json)
    if slow := [row["page"] for row in rows if row["p95 ms"] > GOAL_MS]:
        click.echo(f"over {GOAL_MS} ms: {', '.join(map(str, slow))}", err=True)
        sys.exit(1)


@contextmanager
def _database(db: str | None, postgres: bool, folder: Path) -> Iterator[str]:
    """The URL of the database."""
    if db is None and postgres:
        with Postgres() as server:
            yield server.url
    else:
        yield database_url(db or f"{folder}/weir.db")


def _newest_clamp(url: str) -> ClampRow | None:
    """A clamp that is in force; None in a database without flows."""
    engine = open_engine(url)
    with Session(engine) as session:
        if not engine.dialect.has_table(session.connection(), FlowRow.__tablename__):
            return None
        return session.scalars(select(ClampRow).order_by(ClampRow.pushed_ns.desc()).limit(1)).first()


if __name__ == "__main__":
    main()
