"""Measure an alarm's answer beside a dashboard, with viewers and without.

    python -m bench.web_viewers [--viewers 50] [--rounds 7] [--flows 20000] [--engine ryu|os-ken]
                                [--postgres] [--no-yields] [--near] [--json]

A real controller (fabric_app, sdtcp_app) answers the alarms of a scripted switch, one at a time. A
dashboard on the same machine reads its database. Rounds without viewers and with viewers take turns. Each
viewer follows the stream of a live page and requests its chart after a change, as the page's script does.
Every alarm is written, so every page changes at every poll.

The viewers stand for browsers on other machines: they run only when nothing else needs the CPUs, unless
--near is given. The dashboard does the same, unless --no-yields is given. "ratio" compares each round
with viewers to the round before it. The goal is at most 1.1 at the median and at p95.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from bench.decision_latency import Switch, calm, controller, remember
from bench.figures import Spread, present
from bench.temporary import temporary_folder
from bench.web_fill import know_tables
from flowdb import schema
from flowdb.engine import open_engine
from mininet_topos.results.summary import percentile
from tests.support.dashboard.browser import dashboard
from tests.support.database.postgres import Postgres
from webui.server import yield_processors
from weir_base.settings import VARIABLE

GOAL = 1.1
SETTLE_S = 4.0
"""Longer than the limit of a clamp, so that each round begins without clamps."""
PORT = "/ports/0000000000000001/1"


@dataclass(frozen=True, slots=True)
class Page:
    """A live page, the address of its chart's figures, and their shortest interval (``charts.js``)."""

    address: str
    chart: str | None = None
    every_s: float = 1.0


def opened(url: str) -> Any:
    """An answer of the dashboard, as a stream."""
    return urllib.request.urlopen(url)  # noqa: S310 - always http


def let_one_client_have(viewers: int, folder: Path) -> None:
    """Let the dashboard that starts next accept so many viewers from this machine."""
    settings = folder / "weir.toml"
    settings.write_text(f"[web]\nmost_viewers = {viewers}\nmost_viewers_per_client = {viewers}\n")
    os.environ[VARIABLE] = str(settings)


def pages(root: str) -> list[Page]:
    """The pages of the viewers: half of them have the overview open."""
    with opened(f"{root}/api/v1/flows?state=live&limit=1") as answer:
        flow = json.load(answer)["items"][0]["id"]
    overview = Page("/", "/api/v1/busiest?span_s=3600&points=300", every_s=5.0)
    others = [
        Page(PORT, f"/api/v1{PORT}/series?span_s=3600"),
        Page(f"/flows/{flow}", f"/api/v1/flows/{flow}"),
        Page("/topology"),
        Page("/flows?state=punished"),
        Page("/ports"),
    ]
    return [page for other in others for page in (overview, other)]


def look(root: str, page: Page, changes: Synchronized[int]) -> None:
    """Run one viewer until the process ends."""
    drawn_s = 0.0
    while True:
        with opened(f"{root}/live?page={quote(page.address)}") as stream:
            for line in stream:
                if not line.startswith(b"event: change"):
                    continue
                with changes.get_lock():
                    changes.value += 1
                if page.chart and time.monotonic() - drawn_s > page.every_s:
                    drawn_s = time.monotonic()
                    with opened(root + page.chart) as chart:
                        chart.read()


def crowd(root: str, chosen: Sequence[Page], viewers: int, near: bool, changes: Synchronized[int]) -> None:
    """Run all viewers in this process."""
    if not near:
        yield_processors()
    for number in range(viewers):
        page = chosen[number % len(chosen)]
        threading.Thread(target=look, args=(root, page, changes), daemon=True).start()
    threading.Event().wait()


@contextlib.contextmanager
def watched(root: str, viewers: int, near: bool) -> Iterator[Synchronized[int]]:
    """Run so many viewers during this context; gives the number of changes that they received."""
    context = multiprocessing.get_context("spawn")
    changes: Synchronized[int] = context.Value("Q", 0)
    arguments = (root, pages(root), viewers, near, changes)
    process = context.Process(target=crowd, args=arguments, daemon=True)
    process.start()
    try:
        deadline = time.monotonic() + 30
        while changes.value < viewers:
            if time.monotonic() > deadline:
                raise click.ClickException(f"only {changes.value} of {viewers} pages arrived")
            time.sleep(0.1)
        yield changes
    finally:
        process.terminate()
        process.join()


@contextlib.contextmanager
def database(postgres: bool, folder: Path) -> Iterator[str]:
    """The URL of a database with Weir's tables."""
    with Postgres(durable=True) if postgres else contextlib.nullcontext() as server:
        url = server.url if server else f"sqlite:///{folder}/weir.db"
        schema.upgrade(open_engine(url), url)
        yield url


def one_round(switch: Switch) -> dict[str, float]:
    """The times from alarms to their answers, in ms."""
    taken = calm(switch)
    switch.serve(time.perf_counter() + SETTLE_S)
    return {f"p{part}_ms": percentile(taken, part) for part in (50, 95, 99)}


def row(name: str, rounds: Sequence[dict[str, float]], **more: Any) -> dict[str, Any]:
    return {"viewers": name} | {key: Spread.of([one[key] for one in rounds]) for key in rounds[0]} | more


@click.command(help=__doc__)
@click.option("--viewers", default=50, show_default=True, help="Number of open live pages.")
@click.option("--rounds", default=7, show_default=True, help="Number of rounds of each kind.")
@click.option("--flows", default=20_000, show_default=True, help="Number of known flows.")
@click.option("--engine", type=click.Choice(["ryu", "os-ken"]), default="ryu", show_default=True)
@click.option("--postgres", is_flag=True, help="Use a private PostgreSQL server instead of SQLite.")
@click.option(
    "--yields/--no-yields",
    default=True,
    help="Whether the dashboard yields the CPU, as an option of `weir web`.",
)
@click.option("--near", is_flag=True, help="Run the viewers at normal priority.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(
    viewers: int,
    rounds: int,
    flows: int,
    engine: str,
    postgres: bool,
    yields: bool,
    near: bool,
    as_json: bool,
) -> None:
    without, beside, told = [], [], 0
    with temporary_folder() as folder, database(postgres, folder) as url:
        remember(url, flows)
        if postgres:
            know_tables(open_engine(url))
        let_one_client_have(viewers, folder)
        how = "--yields" if yields else "--no-yields"
        with controller(engine, folder, url) as (_, switch), dashboard(url, folder, how) as root:
            switch.serve(time.perf_counter() + 3)
            one_round(switch)
            for _ in range(rounds):
                without.append(one_round(switch))
                with watched(root, viewers, near) as changes:
                    switch.serve(time.perf_counter() + 1)
                    before = changes.value
                    beside.append(one_round(switch))
                    told += changes.value - before
    rows = [row("none", without), row(str(viewers), beside, changes_told=told)]
    pairs = list(zip(without, beside, strict=True))
    rows.append(row("ratio", [{key: two[key] / one[key] for key in one} for one, two in pairs]))
    columns = ["viewers", "p50_ms", "p95_ms", "p99_ms", "changes_told"]
    present(f"alarm to FLOW_MOD beside a dashboard, {engine}, {flows:,} flows", columns, rows, as_json)
    if max(rows[2][key].median for key in ("p50_ms", "p95_ms")) > GOAL:
        sys.exit(1)


if __name__ == "__main__":
    main()
