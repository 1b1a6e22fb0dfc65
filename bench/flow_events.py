"""Measure the flow database under load: what is lost, how far it lags, and what the load costs the caller.

    python -m bench.flow_events [--rate N] [--seconds N] [--hops N] [--database NAME] [--json]

Each event opens a flow over --hops switches, or closes one of 20,000 open flows in exchange. Events
arrive in batches of 100, as FLOW_REPORTs bring them. Meanwhile SDTCP's app gets an alarm every 5 ms, from
100 ports in turn. "alarm" is the time of its handler, which builds and serializes the FLOW_MOD, first
without the load and then under it. "none" is the same load without a database.

"lost" counts the rows that are missing after an orderly stop. "lag" is how long the oldest change waited.
CPU is in parts of one core: the controller's process ("own"), the writer's, and PostgreSQL's. PostgreSQL
is a private server on this machine, whose commits wait for the disk.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import click
from sqlalchemy import func, select

from bench.figures import cpu_s, present
from bench.temporary import temporary_folder
from fabric_app.events import EventFlowClosed
from flowdb import schema
from flowdb.context import FlowDbContext, favour_alarms
from flowdb.db import FlowDb
from flowdb.engine import open_engine, open_reader
from flowdb.flow import FiveTuple, Flow, Hop
from flowdb.models import FlowRow, HopRow
from flowdb.writing.changes import Change
from flowdb.writing.command_inbox import CommandInbox
from flowdb.writing.process_store import ProcessStore
from flowdb.writing.run_store import RunSpec
from flowdb.writing.store import StoreCounters
from mininet_topos.results.summary import percentile
from openflow_ext import wire
from sdtcp_app.app import SdtcpApp
from tests.support.database.postgres import Postgres
from tests.support.openflow.fake_datapath import FakeDatapath, event

BUNCH = 100
PORTS = 100
ALARM_EVERY_S = 0.005
LIVE = 20_000
NAMES = ("none", "sqlite", "postgres")
COLUMNS = (
    *("database", "events/s", "lost", "lag max ms", "lag p50 ms", "own CPU", "writer CPU", "server CPU"),
    *("alarm p50 us", "p50 loaded", "alarm p99 us", "p99 loaded"),
)


class Load:
    """A controller's day: flows that open and close at a rate, and alarms, all in one thread."""

    def __init__(self, db: FlowDb, hops: int) -> None:
        self.opened = self.closed = 0
        self.alarm_us: list[float] = []
        self.lags_ms: list[float] = []
        self._db = db
        self._hops = hops
        self._app = SdtcpApp(flowdb=cast(FlowDbContext, db))
        self._datapaths = [FakeDatapath(dpid + 1) for dpid in range(PORTS)]
        for datapath in self._datapaths:
            self._app.on_switch(event(datapath))
        self._alarmed = itertools.cycle(self._datapaths)
        self._chance = random.Random(1)  # noqa: S311 - flows, not secrets
        self._live: deque[Flow] = deque()

    def run(self, rate: int, seconds: float) -> None:
        """Put so many events a second, for so long; ``rate`` 0: alarms alone."""
        start_s = time.monotonic()
        bunches = alarms = 0
        while (passed_s := time.monotonic() - start_s) < seconds:
            if alarms * ALARM_EVERY_S <= passed_s:
                alarms += 1
                self._alarm()
            elif bunches * BUNCH < rate * passed_s:
                bunches += 1
                self._events()
            else:
                time.sleep(0.0005)

    def fill(self, flows: int) -> None:
        """Open so many flows, and wait until they are written."""
        for _ in range(flows):
            self._open(self._db.clock.now_ns())
        while self._db.counters.pending:
            time.sleep(0.01)

    def _events(self) -> None:
        now_ns = self._db.clock.now_ns()
        for _ in range(BUNCH // 2):
            self._open(now_ns)
            self._close(now_ns)

    def _open(self, now_ns: int) -> None:
        flow = self._flow(now_ns)
        self._live.append(flow)
        self._db.flow_opened(flow)
        self.opened += 1

    def _close(self, now_ns: int) -> None:
        """The flow that has lived longest ends."""
        flow = self._live.popleft()
        self._db.flow_closed(flow, now_ns, "fin")
        self._app.on_flow_closed(EventFlowClosed(flow, "fin", now_ns))
        self.closed += 1

    def _flow(self, now_ns: int) -> Flow:
        near, far, port = (self._chance.randrange(1, limit) for limit in (200, 200, 65_536))
        key = FiveTuple(f"10.0.{near}.{far}", f"10.1.{far}.{near}", port, 80)
        dpids = self._chance.sample(range(1, PORTS + 1), self._hops)
        return Flow(self._db.next_id(), key, tuple(Hop(dpid, 1, 2) for dpid in dpids), now_ns, 1460, 9)

    def _alarm(self) -> None:
        datapath = next(self._alarmed)
        fields = {"port_buf_pkts": 30, "port_buf_bytes": 45_000, "port_rate_bps": 10**8, "n_i": 20}
        alarm = event(
            datapath, port=wire.OfpPort(2), crossing_ns=5, non_tcp_percent=0, allowance_bytes=0, **fields
        )
        start_ns = time.perf_counter_ns()
        self._app.on_alarm(alarm)
        self.alarm_us.append((time.perf_counter_ns() - start_ns) / 1000)
        datapath.sent.clear()
        self.lags_ms.append(self._db.counters.lag_s * 1000)


class Nowhere:
    """A store that writes nothing."""

    counters = StoreCounters(0, 0, 0, 0, 0.0)

    def __init__(self, _spec: RunSpec) -> None:
        self.commands = CommandInbox()

    def put(self, changes: Iterable[Change]) -> None:
        pass

    def close(self) -> None:
        pass


def measure(
    name: str, url: str, rate: int, seconds: float, hops: int, server: Postgres | None
) -> dict[str, Any]:
    """One database under one load."""
    favour_alarms()
    store: Any = Nowhere if name == "none" else ProcessStore
    db = FlowDb(url, store=store)
    load = Load(db, hops)
    load.fill(LIVE)
    load.run(0, seconds / 2)
    idle_us, load.alarm_us = load.alarm_us, []
    load.lags_ms.clear()
    before, start_s = load.opened + load.closed, time.monotonic()
    groups = [[os.getpid()], _children(), server.processes() if server else []]
    used_s = [sum(map(cpu_s, pids)) for pids in groups]
    load.run(rate, seconds)
    passed_s = time.monotonic() - start_s
    own, writer, its = (
        round((sum(map(cpu_s, pids)) - s) / passed_s, 2) for pids, s in zip(groups, used_s, strict=True)
    )
    db.close()
    return {
        "database": name,
        "events/s": round((load.opened + load.closed - before) / passed_s),
        "lost": "-" if name == "none" else _missing(url, load, hops) + db.counters.lost,
        "lag max ms": round(max(load.lags_ms)),
        "lag p50 ms": round(percentile(load.lags_ms, 50)),
        "own CPU": own,
        "writer CPU": writer,
        "server CPU": its,
        "alarm p50 us": round(percentile(idle_us, 50)),
        "p50 loaded": round(percentile(load.alarm_us, 50)),
        "alarm p99 us": round(percentile(idle_us, 99)),
        "p99 loaded": round(percentile(load.alarm_us, 99)),
    }


def _missing(url: str, load: Load, hops: int) -> int:
    with open_reader(url).connect() as connection:
        flows = connection.execute(select(func.count()).select_from(FlowRow)).scalar_one()
        closed = connection.execute(select(func.count()).where(FlowRow.closed_ns.is_not(None))).scalar_one()
        crossed = connection.execute(select(func.count()).select_from(HopRow)).scalar_one()
    return load.opened - flows + load.closed - closed + load.opened * hops - crossed


def _children() -> list[int]:
    """The writer's process."""
    lists = (task.joinpath("children").read_text() for task in Path("/proc/self/task").iterdir())
    return [int(pid) for pids in lists for pid in pids.split()]


@contextmanager
def _database(name: str) -> Iterator[tuple[str, Postgres | None]]:
    if name != "postgres":
        with temporary_folder() as folder:
            yield f"sqlite:///{folder}/flow.db", None
    else:
        with Postgres(durable=True) as server:
            schema.upgrade(open_engine(server.url), server.url)
            yield server.url, server


@click.command(help=__doc__)
@click.option("--rate", default=20_000, show_default=True, help="Flow events per second.")
@click.option("--seconds", default=10.0, show_default=True, help="Duration.")
@click.option("--hops", default=3, show_default=True, help="Number of switches that a flow crosses.")
@click.option("--database", "names", type=click.Choice(NAMES), multiple=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(rate: int, seconds: float, hops: int, names: tuple[str, ...], as_json: bool) -> None:
    rows = []
    for name in names or NAMES:
        with _database(name) as (url, server):
            rows.append(measure(name, url, rate, seconds, hops, server))
    present(f"{rate:,} flow events a second for {seconds:g} s, {hops} hops", COLUMNS, rows, as_json)


if __name__ == "__main__":
    main()
