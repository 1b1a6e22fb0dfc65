"""The traffic of one run: the order in which the traffic programs start, and the wait for their end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

from mininet_topos.errors import RunFailed
from mininet_topos.experiments.experiment import TIMESTAMPS_BYTES, Case, Experiment, udp_bps
from mininet_topos.machine.programs import Program
from mininet_topos.network.lab_network import Network
from mininet_topos.network.nodes import LabHost
from mininet_topos.network.ovs_buffers import vswitchd_pid
from mininet_topos.running.scheme_programs import RunningScheme
from mininet_topos.running.traffic_programs import PLAN_PORT, SINK_PORT, WORKER_PORT, Traffic
from mininet_topos.workloads.trace import write_trace

START_S = 30.0
QUERY_S = 35.0
"""Timeout of one query, a little more than that of the root (native/traffic/root.c)."""
FLOWS_S = 120.0
"""Timeout of the planned flows after the start of the last one."""
LEAD_S, LEAD_PER_SENDER_S = 0.2, 0.01
"""The plan starts this much later than its programs, so that each program is ready."""
ROOTS_LEAD_S, LEAD_PER_ROOT_S = 1.0, 0.2
"""The same for several roots, each of which first connects to its workers."""
POLL_S = 0.1
NS_PER_S = 1_000_000_000
US_PER_MS, US_PER_S = 1000, 1_000_000
OnQuery = Callable[[int], None]


def patience_s(experiment: Experiment, case: Case) -> float:
    """Return how long no query may end: a query, the pause before it, and the root's connections."""
    connecting_ms = case.workers * experiment.impairment.round_trip_ms
    return QUERY_S + (max(experiment.gap_ms, experiment.period_ms) + connecting_ms) / 1000


def worker_options(case: Case) -> list[str]:
    """Return the options of workers: the deadline of responses, and the largest MSS."""
    options = []
    if case.deadline_ms is not None:
        options += ["--deadline-us", str(round(case.deadline_ms * US_PER_MS))]
    if case.segment_bytes is not None:
        options += ["--mss", str(case.segment_bytes + TIMESTAMPS_BYTES)]
    return options


class CaseTraffic:
    """The traffic of a case on a network under a scheme."""

    def __init__(
        self,
        experiment: Experiment,
        case: Case,
        net: Network,
        scheme: RunningScheme,
        traffic: Traffic,
        on_query: OnQuery,
    ) -> None:
        self._experiment, self._case, self._net = experiment, case, net
        self._scheme, self._traffic, self._on_query = scheme, traffic, on_query
        self._incasts = experiment.incasts(case)
        self._senders = net.senders[: case.background]
        self._plan = experiment.plan(case)

    @property
    def planned_flows(self) -> int:
        """The number of flows in the plan."""
        return len(self._plan)

    def go(self, folder: Path) -> None:
        """Start the long flows first, so that they are the oldest; then the plan and the queries.

        `folder` gets the plan. Raises RunFailed, ProgramFailed.
        """
        case, experiment = self._case, self._experiment
        self._listen()
        self._start_senders()
        if self._senders:
            self._pass_time(experiment.warmup_s)
        flows = self._start_plan(folder)
        if case.queries:
            self._await_queries(self._start_roots())
        self._pass_time(case.duration_s)
        if not case.duration_s:
            self._await_end(flows)
        if self._senders and (case.queries or flows):
            self._pass_time(experiment.tail_s)

    def _listen(self) -> None:
        """Start workers and sinks, and wait until each of them listens."""
        scheme, traffic = self._scheme, self._traffic
        named = (name for incast in self._incasts for name in incast.workers)
        workers = [self._host(name) for name in dict.fromkeys(named)] if self._case.queries else []
        options = worker_options(self._case)
        for worker in workers:
            traffic.start(worker, "worker", *options, port=WORKER_PORT, cc=scheme.cc_of(worker))
        sampled = self._experiment.sample_ms
        sinks = [(host.name, SINK_PORT, sampled) for host in self._net.sinks[: self._case.background]]
        sinks += [(name, PLAN_PORT, 0) for name in sorted({flow.dst for flow in self._plan})]
        for name, port, every_ms in sinks:
            for index in range(len(scheme.transports)):
                self._start_over(index, self._host(name), "sink", port, every_ms)
        traffic.await_event("listening", len(workers) + len(sinks) * len(scheme.transports), START_S)

    def _host(self, name: str) -> LabHost:
        return next(host for host in self._net.hosts if host.name == name)

    def _start_sending(self, host: LabHost, role: str, port: int, *options: str) -> Program:
        """Start a sending role with its host's transport."""
        index = self._scheme.dealt[host.name]
        return self._start_over(index, host, role, port, self._experiment.sample_ms, *options)

    def _start_over(
        self, index: int, host: LabHost, role: str, port: int, every_ms: int, *options: str
    ) -> Program:
        """Start a role of flows over a transport. A receiver has a sink, and a port, for each transport.

        `port`: of the first transport. Flows, or the sink's bytes, are recorded `every_ms`.
        """
        transport = self._scheme.transports[index]
        more = ("--sample-ms", str(every_ms), *(() if transport.congestion_control else self._rates()))
        cc, program = transport.congestion_control, transport.program
        return self._traffic.start(host, role, *options, *more, port=port + index, cc=cc, program=program)

    def _rates(self) -> tuple[str, ...]:
        """Return the options of a transport over UDP: its key, the bottleneck's rate, and the flow's rate."""
        experiment, key = self._experiment, self._scheme.key_file
        rates = {"link": experiment.bandwidth_mbps, "rate": experiment.offered_mbps}
        options = [word for name, mbps in rates.items() for word in (f"--{name}-bps", str(udp_bps(mbps)))]
        return (*options, *(("--key-file", str(key)) if key else ()))

    def _start_senders(self) -> None:
        for sender, sink in zip(self._senders, cycle(self._net.sinks), strict=False):
            self._start_sending(sender, "source", SINK_PORT, "--to", sink.IP())
        self._traffic.await_event("connected", len(self._senders), START_S)

    def _start_plan(self, folder: Path) -> list[Program]:
        """Write the plan, as a trace and for the traffic programs, and start every host that sends."""
        if not self._plan:
            return []
        write_trace(folder / "plan.csv", self._plan)
        lines = (
            f"{flow.src} {flow.start_us} {self._host(flow.dst).IP()} {flow.size_bytes} "
            f"{flow.deadline_us or 0}\n"
            for flow in self._plan
        )
        path = folder / "plan.txt"
        path.write_text("".join(lines))
        names = dict.fromkeys(flow.src for flow in self._plan)
        options = ("--plan", str(path), *_starts_in(LEAD_S + LEAD_PER_SENDER_S * len(names)))
        return [self._start_sending(self._host(name), "flows", PLAN_PORT, *options) for name in names]

    def _start_roots(self) -> list[Program]:
        """Start every root. Several roots send their first query at the same time."""
        case, experiment = self._case, self._experiment
        chance = random.Random(f"{experiment.seed} {case.name}")  # noqa: S311 - an order
        options = (
            *("--size", str(case.size_bytes), "--queries", str(case.queries)),
            *("--gap-ms", str(experiment.gap_ms), "--period-ms", str(experiment.period_ms)),
            *("--schedstat", f"/proc/{vswitchd_pid()}/schedstat"),
            *(("--fresh",) if case.fresh else ()),
            *(_starts_in(ROOTS_LEAD_S + LEAD_PER_ROOT_S * case.roots) if case.roots > 1 else ()),
        )
        roots = []
        for incast in self._incasts:
            workers = [self._host(name) for name in incast.workers]
            chance.shuffle(workers)
            named = (f"{worker.name}={worker.IP()}/{self._scheme.cc_of(worker)}" for worker in workers)
            whom = ("--workers", " ".join(named))
            root = self._host(incast.root)
            roots.append(self._traffic.start(root, "root", *options, *whom, port=WORKER_PORT))
        return roots

    def _await_queries(self, roots: list[Program]) -> None:
        done, last = 0, time.monotonic()
        limit_s = patience_s(self._experiment, self._case)
        while any(root.running for root in roots):
            self._pass_time(POLL_S)
            now = self._traffic.records.read_text().count('"event":"query"')
            if now > done:
                self._on_query(now)
                done, last = now, time.monotonic()
            elif time.monotonic() - last > limit_s:
                missing = f"{done} of {self._case.all_queries} done"
                raise RunFailed(f"no query ended within {limit_s:.0f} s; {missing}")
        self._traffic.check()
        self._on_query(self._case.all_queries)

    def _await_end(self, flows: list[Program]) -> None:
        """Wait until all planned flows have ended."""
        limit_s = FLOWS_S + max((flow.start_us for flow in self._plan), default=0) / US_PER_S
        until = time.monotonic() + limit_s
        while any(program.running for program in flows):
            self._pass_time(POLL_S)
            if time.monotonic() > until:
                raise RunFailed(f"planned flows still run after {limit_s:.0f} s")
        self._traffic.check()

    def _pass_time(self, seconds: float) -> None:
        """Let the traffic run for a time, and check all programs meanwhile."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._traffic.check()
            self._scheme.check()
            time.sleep(min(left, POLL_S))


def _starts_in(seconds: float) -> tuple[str, str]:
    """Return the option of a traffic program that starts so much later."""
    return "--start-ns", str(time.monotonic_ns() + round(seconds * NS_PER_S))
