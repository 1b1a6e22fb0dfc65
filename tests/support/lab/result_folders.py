"""Result folders for tests: the raw records that runs leave."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mininet_topos.experiments.experiment import Experiment, demo

THREE_SCHEMES = replace(demo(4), schemes=("plain", "sdtcp", "sccp"))
"""An experiment of three cases and three schemes, whose folder ``write_folder`` writes."""


def write_run(folder: Path, case: str, scheme: str, attempt: int, valid: bool, long_flows: bool) -> None:
    run = folder / "raw" / f"{case}-{scheme}-{attempt}"
    run.mkdir(parents=True)
    records = [
        {"event": "query", "start_ns": 2_000_000_000 + n * 200_000_000, "qct_ms": 60.0 + n}
        | {"switch_waited_ms": 0.5, "workers_ms": [40.0, 60.0 + n]}
        for n in range(4)
    ]
    if long_flows:
        goodput = {"host": "root", "event": "goodput"}
        records += [goodput | {"t_ns": n * 100_000_000, "bytes": n * 1_000_000} for n in range(60)]
    (run / "traffic.jsonl").write_text("\n".join(json.dumps(record) for record in records))
    tcp = {"RetransSegs": 5, "TCPTimeouts": 1, "TCPLossProbes": 2}
    port = {"alarms": 3, "clamped": 10, "marked": 0}
    record = {
        "case": case,
        "scheme": scheme,
        "attempt": attempt,
        "transports": {"long1": "reno", "long2": "reno"},
        "trace_start_ns": 1_900_000_000,
        "counters": {
            "tcp": tcp,
            "queue_drops": 4,
            "ovs_drops": 2,
            "ovs_receive_drops": 0,
            "other_queue_drops": 3,
        },
        "ports_before": [] if scheme == "plain" else [port, port],
        "ports_after": [] if scheme == "plain" else [port, {"alarms": 8, "clamped": 30, "marked": 6}],
        "stalls": [],
        "cpu": [{"t_ns": 2.5e9, "idle": 0.4, "ovs": 0.5}],
        "queue_max_pkts": 99,
        "queue_max_bytes": 149_000,
        "busy_rate_bps": 100e6,
        "valid": valid,
        "reasons": [] if valid else ["the machine was starved of CPU: 0% idle in the busiest second"],
    }
    (run / "run.json").write_text(json.dumps(record))
    trace = "\n".join(f"{ms},{ms % 100},{1500 * (ms % 100)},0,0" for ms in range(1500))
    (run / "queue.csv").write_text("time_ms,pkts_max,bytes_max,pkts_min,sent_bytes\n" + trace + "\n")


def write_folder(folder: Path, experiment: Experiment, **about: Any) -> None:
    """A folder as THREE_SCHEMES leaves it; SDTCP's case C was repeated and stayed void."""
    folder.mkdir(exist_ok=True)
    metadata = {
        "experiment": experiment.to_json(),
        "git": {"commit": "abc", "changed": []},
        "sysctl": {"tcp_rmem": ["1", "2", "3"]},
        "kernel": "<6.18>",
    }
    (folder / "metadata.json").write_text(json.dumps(metadata | about))
    for case in "ABC":
        for scheme in THREE_SCHEMES.schemes:
            write_run(folder, case, scheme, 1, (case, scheme) != ("C", "sdtcp"), case == "B")
    write_run(folder, "C", "sdtcp", 2, False, False)


def write_samples(run: Path, hosts: tuple[str, ...] = ("long1", "long2")) -> None:
    """Long flows' samples, and planned flows that ended, beside what a run has."""
    shared = {"peer": "10.0.0.1", "endless": True, "mss": 1448, "cwnd": 10, "rtt_us": 2500, "delivered_ce": 0}
    records = [
        shared
        | {"host": host, "event": "sample", "flow": 0}
        | {"t_ns": 1_900_000_000 + n * 10**8, "bytes_acked": n * 500_000}
        for host in hosts
        for n in range(12)
    ]
    ended = {"host": "worker1", "event": "flow", "t_ns": 2_500_000_000}
    records += [ended | {"flow": n, "fct_ms": 10.0 + n} for n in range(4)]
    (run / "traffic.jsonl").write_text("\n".join(json.dumps(record) for record in records))


def leave_out_the_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have no plots, because a report takes seconds to draw and another test is about them."""
    monkeypatch.setattr("mininet_topos.results.report.plot", lambda folder, rows: [])
