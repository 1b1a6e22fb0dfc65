"""One run: one case under one scheme, from the first connection to the raw records on disk."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import cycle
from pathlib import Path
from typing import Any

from mininet_topos.errors import RunFailed
from mininet_topos.experiment import Case, Experiment
from mininet_topos.fidelity import judge
from mininet_topos.measure import CpuWatch, read_stalls, snapshot, watching_stalls
from mininet_topos.net import Network
from mininet_topos.ovs_buffers import vswitchd_pid
from mininet_topos.probe import QueueProbe, QueueTrace
from mininet_topos.process import Program, wait_until
from mininet_topos.programs import Running
from mininet_topos.records import read_records
from mininet_topos.traffic import SINK_PORT, WORKER_PORT, Traffic

START_S = 30.0
QUERY_S = 35.0
SETTLE_S = 0.5
OnQuery = Callable[[int], None]


class Runner:
    """Runs the cases of an experiment on one network."""

    def __init__(self, experiment: Experiment, net: Network, probe: QueueProbe) -> None:
        self._experiment = experiment
        self._net = net
        self._probe = probe

    def run(
        self, case: Case, scheme: Running, folder: Path, attempt: int, on_query: OnQuery
    ) -> dict[str, Any]:
        """Run a case once and write its raw records to `folder`. Returns the record of `run.json`.

        Raises RunFailed or ProgramFailed where the run came to no end.
        """
        folder.mkdir(parents=True)
        net = self._net
        net.check_shapes()
        before, ports_before = snapshot(net), scheme.ports()
        traffic = Traffic(folder / "traffic.jsonl", net.state, self._experiment.congestion_control)
        with (
            CpuWatch() as cpu,
            watching_stalls(folder / "stalls.jsonl", net.state),
            self._probe.watching(net.bottleneck_ifname) as trace,
        ):
            try:
                self._drive(case, scheme, traffic, on_query)
            finally:
                traffic.stop()
            self._await_quiet()
        record = {
            "case": case.name,
            "scheme": scheme.scheme.name,
            "attempt": attempt,
            "trace_start_ns": trace.start_ns,
            "counters": asdict(delta := snapshot(net).since(before)) | {"ovs_drops": delta.ovs_drops},
            "ports_before": ports_before,
            "ports_after": scheme.ports(),
            "cpu": cpu.samples,
            "stalls": read_stalls(folder / "stalls.jsonl"),
            **_queue_figures(trace),
        }
        net.check_shapes()
        records = list(read_records(folder / "traffic.jsonl"))
        record["reasons"] = judge(record, records, case, self._experiment)
        record["valid"] = not record["reasons"]
        trace.write(folder / "queue.csv")
        (folder / "run.json").write_text(json.dumps(record, indent=1))
        return record

    def _drive(self, case: Case, scheme: Running, traffic: Traffic, on_query: OnQuery) -> None:
        """Long flows first, for they are to be the longest-lived; then the queries; then the tail."""
        net, senders = self._net, self._net.senders[: case.background]
        workers, sinks = net.workers[: case.workers], net.sinks[: case.background]
        for worker in workers:
            traffic.start(worker, "worker", port=WORKER_PORT)
        for sink in sinks:
            traffic.start(sink, "sink", port=SINK_PORT)
        traffic.await_event("listening", len(workers) + len(sinks), START_S)
        for sender, sink in zip(senders, cycle(sinks), strict=False):
            traffic.start(sender, "source", "--to", sink.IP(), port=SINK_PORT)
        traffic.await_event("connected", len(senders), START_S)
        if senders:
            self._pass_time(self._experiment.warmup_s, traffic, scheme)
        root = self._start_root(case, traffic)
        self._await_queries(case, root, traffic, scheme, on_query)
        if senders:
            self._pass_time(self._experiment.tail_s, traffic, scheme)

    def _start_root(self, case: Case, traffic: Traffic) -> Program:
        workers = self._net.workers[: case.workers]
        random.Random(f"{self._experiment.seed} {case.name}").shuffle(workers)  # noqa: S311 - an order
        options = (
            *("--size", str(case.size_bytes), "--queries", str(case.queries)),
            *("--gap-ms", str(self._experiment.gap_ms)),
            *("--schedstat", f"/proc/{vswitchd_pid()}/schedstat"),
            *("--workers", " ".join(f"{worker.name}={worker.IP()}" for worker in workers)),
        )
        return traffic.start(self._net.root, "root", *options, port=WORKER_PORT)

    def _await_queries(
        self, case: Case, root: Program, traffic: Traffic, scheme: Running, on_query: OnQuery
    ) -> None:
        seen, last = 0, time.monotonic()
        while root.running:
            self._pass_time(0.1, traffic, scheme)
            now = traffic.records.read_text().count('"event":"query"')
            if now > seen:
                on_query(now)
                seen, last = now, time.monotonic()
            elif time.monotonic() - last > QUERY_S:
                raise RunFailed(f"no query ended within {QUERY_S:.0f} s, {seen} of {case.queries} done")
        traffic.check()
        on_query(case.queries)

    def _pass_time(self, seconds: float, traffic: Traffic, scheme: Running) -> None:
        """Let the traffic run for a time that is part of the experiment, and see to it that it does."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            traffic.check()
            scheme.check()
            time.sleep(min(left, 0.1))

    def _await_quiet(self) -> None:
        """Wait until no host sends any more, so that what was sent and what arrived can be compared."""
        seen = snapshot(self._net).tcp["OutSegs"]
        since = time.monotonic()

        def quiet() -> bool:
            nonlocal seen, since
            now = snapshot(self._net).tcp["OutSegs"]
            if now != seen:
                seen, since = now, time.monotonic()
            return time.monotonic() - since > SETTLE_S

        if not wait_until(quiet, START_S):
            raise RunFailed("the hosts went on sending after the traffic had ended")


def _queue_figures(trace: QueueTrace) -> dict[str, Any]:
    return {
        "queue_max_pkts": int(trace.pkts.max(initial=0)),
        "queue_max_bytes": int(trace.bytes.max(initial=0)),
        "busy_rate_bps": trace.busy_rate_bps(),
    }
