"""Measure what it costs a controller to sample the counters of a switch's ports.

    python -m bench.port_samples [--ports N] [--seconds N] [--engine ryu|os-ken] [--json]

A real controller (fabric_app, sdtcp_app) with one scripted switch runs without sampling, with a sample
each second, and with ten a second. "cpu" is the part of one core that the controller uses while nothing
else happens. "a sample" is the part of it for each sample: the answer of all ports is decoded, passed to
the apps, and written to SQLite. Then the switch sends a thousand alarms, one at a time, and measures the
ms to each FLOW_MOD. "row_bytes" is the size of one port's sample in the SQLite file, with an hour of
samples.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click

from bench.decision_latency import calm, controller, remember, row
from bench.figures import cpu_s, present
from bench.temporary import temporary_folder
from flowdb.db import FlowDb
from flowdb.flow import NS_PER_S, PortKey
from openflow_ext.wire import PortCountersRecord
from telemetry_app.core import PortSample
from telemetry_app.record import record
from weir_base.settings import VARIABLE

EVERY_S = (0.0, 1.0, 0.1)
FLOWS = 10_000
HOUR_S = 3600


def measure(engine: str, ports: int, every_s: float, seconds: float, folder: Path) -> dict[str, Any]:
    """One run of a controller."""
    config, url = folder / f"{every_s}.toml", f"sqlite:///{folder}/{every_s}.db"
    config.write_text(f"[telemetry]\nsample_s = {every_s}\n")
    os.environ[VARIABLE] = str(config)
    remember(url, FLOWS, ports)
    with controller(engine, folder, url, ports) as (process, switch):
        switch.serve(time.perf_counter() + 3)
        before_s, sampled, began_s = cpu_s(process.pid), switch.sampled, time.perf_counter()
        switch.serve(began_s + seconds)
        took_s, lasted_s = cpu_s(process.pid) - before_s, time.perf_counter() - began_s
        samples = switch.sampled - sampled
        cpu = {"cpu": took_s / lasted_s, "samples": samples}
        return {"every_s": every_s or "never"} | cpu | row("", calm(switch, ports))


def row_bytes(ports: int, folder: Path) -> float:
    """The size of a row in the file, with its indexes."""
    file = folder / "hour.db"
    db = FlowDb(f"sqlite:///{file}")
    empty, began_ns = file.stat().st_size, db.clock.now_ns()
    for second in range(HOUR_S):
        at_ns = began_ns + second * NS_PER_S
        told = (PortCountersRecord(n, 9, 1500, capacity_bps=10**9, acks_seen=second) for n in range(ports))
        record(db, [PortSample(PortKey(1, one.port_no), "p", at_ns, one) for one in told])
        while db.counters.pending > 100_000:
            time.sleep(0.01)
    db.close()
    return (file.stat().st_size - empty) / (HOUR_S * ports)


@click.command(help=__doc__)
@click.option(
    "--ports", type=click.IntRange(1, 255), default=70, show_default=True, help="Ports of the switch."
)
@click.option("--seconds", default=20.0, show_default=True, help="How long each CPU measurement takes.")
@click.option("--engine", type=click.Choice(["ryu", "os-ken"]), default="ryu", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(ports: int, seconds: float, engine: str, as_json: bool) -> None:
    with temporary_folder() as folder:
        rows = [measure(engine, ports, every_s, seconds, folder) for every_s in EVERY_S]
        bytes_a_row = row_bytes(ports, folder)
    for one in rows:
        beyond_s = (one["cpu"] - rows[0]["cpu"]) * seconds
        one["a sample"] = f"{beyond_s / one['samples'] * 1000:.1f} ms" if one["samples"] else ""
    shown = [one | {"cpu": f"{one['cpu']:.2%}", "row_bytes": f"{bytes_a_row:.0f}"} for one in rows]
    columns = ["every_s", "cpu", "samples", "a sample", "p50_ms", "p95_ms", "p99_ms", "max_ms", "row_bytes"]
    present(f"sampling {ports} ports, {engine}", columns, shown, as_json)


if __name__ == "__main__":
    main()
