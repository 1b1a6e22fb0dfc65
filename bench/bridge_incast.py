"""Compare incast over a Linux bridge under SCCP, as published and as it is here, with plain TCP.

    python -m bench.bridge_incast [--workers 20,60,100] [--size-kb 10] [--queries 20] [--rounds N]
                                  [--mbps 1000] [--queue-kb 178] [--floor-segments BYTES,...] [--json]

By default this is the set-up of the SCCP paper's figure 9 at its own rate: one root, 1 Gbit/s, a queue of
178 KB. The lab's switch is Open vSwitch's userspace datapath, whose one thread does not carry that. So a
Linux bridge forwards here, with the programs at its ports that Weir also has beside Open vSwitch's kernel
datapath. No controller runs. The bench installs the entries and port settings of sccp_app. Schemes:

\b
plain        no programs
rto5         no programs; the workers' minimum RTO is 5 ms
sccp-paper   SCCP as published, with the common RTT of the paper's testbed, 600 us
sccp-auto    SCCP with the corrected allowance, the default

A row counts every query of every round. Rounds run the schemes in turn, every other round backwards.
"x ideal" divides by the time that all response bytes with their headers need at the port's rate. A loss probe
(RFC 8985) of a lone segment waits as long as a timeout, 200 ms. With --floor-segments, one worker sends the
bytes of all too, in the same rounds, in segments of so many bytes for each case.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench import sandbox
from bench.data_plane import sccp_rules
from bench.figures import Spread, busy_cpus, idle_s, present
from mininet_topos.experiments.experiment import Case
from mininet_topos.measurement.counters import parse_proc_net
from mininet_topos.measurement.queue_probe import QueueProbe
from mininet_topos.network.shaping import OFFLOADS_OFF, Bottleneck, read_queue, shape
from mininet_topos.results.summary import percentile
from mininet_topos.running.case_traffic import worker_options
from openflow_ext.switch.dataplane.interface import HostSettings, NoShare, PortSettings, SweepTimes
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from sccp_app import lab_schemes
from sccp_app.config import SccpSettings
from sccp_app.messages import omissions
from weir_base.paths import artifact

WORKER_PORT = 5001
ROOT, WORKER, PORT, SWITCH = "root", "w{}", "p{}", "sw"
ADDRESS = "10.0.{}.{}"
BRIDGE = 1
LINK_BPS = 10_000_000_000
"""The rate of the ports to the workers, which have no queue: the kernel's value for a veth."""
SWEEP_S = 1.0
QUERY_TIMEOUT_S = 60.0
SCHEMES: Mapping[str, Mapping[str, Any] | None] = {
    "plain": None,
    "rto5": None,
    "sccp-paper": lab_schemes.PAPER,
    "sccp-auto": lab_schemes.AUTO,
}
MIN_RTO_MS = {"rto5": 5}


@dataclass(frozen=True, slots=True)
class Star:
    """A root and workers at a Linux bridge. ``bottleneck``: the port to the root."""

    workers: int
    bottleneck: Bottleneck
    super_packets: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """One scheme's queries in one round."""

    queries_ms: Sequence[float]
    drops: int
    timeouts: int
    probes: int
    queue_max_bytes: int
    cpus: float


def address(number: int) -> str:
    """The address of the root (0) or of a worker (1, 2, ...)."""
    return ADDRESS.format(number // 250, number % 250 + 1)


def host(number: int) -> str:
    """The network namespace of the root (0) or of a worker (1, 2, ...)."""
    return WORKER.format(number) if number else ROOT


@contextlib.contextmanager
def built(star: Star) -> Iterator[None]:
    """The network of a star, which is removed at the end."""
    sandbox.run("ip", "link", "add", SWITCH, "type", "bridge")
    sandbox.run("ip", "link", "set", SWITCH, "up")
    try:
        for number in range(star.workers + 1):
            name, port = host(number), PORT.format(number)
            sandbox.run("ip", "netns", "add", name)
            sandbox.run(*f"ip link add {port} type veth peer name eth0 netns {name}".split())
            sandbox.run("ip", "link", "set", port, "master", SWITCH, "up")
            inside = (
                f"ip link set eth0 up; ip addr add {address(number)}/16 dev eth0; ip link set lo up; "
                "sysctl -q -w net.ipv6.conf.all.disable_ipv6=1 net.ipv4.tcp_no_metrics_save=1"
            )
            if not star.super_packets:
                inside += f"; ethtool -K eth0 {OFFLOADS_OFF}"
                sandbox.run("ethtool", "-K", port, *OFFLOADS_OFF.split())
            sandbox.run("ip", "netns", "exec", name, "sh", "-ec", inside)
        shape(PORT.format(0), star.bottleneck)
        yield
    finally:
        for number in range(star.workers + 1):
            sandbox.run("ip", "netns", "del", host(number))
        sandbox.run("ip", "link", "del", SWITCH)


def set_min_rto(workers: int, rto_ms: int) -> None:
    """Set the minimum RTO of the workers; 0: the kernel's."""
    attribute = f"rto_min {rto_ms}ms" if rto_ms else ""
    for number in range(1, workers + 1):
        route = f"ip -n {host(number)} route change 10.0.0.0/16 dev eth0 src {address(number)} {attribute}"
        sandbox.run(*route.split())


def port_settings(scheme: Mapping[str, Any]) -> tuple[PortSettings, SccpSettings, bool]:
    """The settings that sccp_app would send, its own settings, and whether N_i is the paper's plain count."""
    settings = SccpSettings(**scheme["settings"]["sccp"])
    policy = settings.policy
    port = PortSettings(
        common_rtt_us=policy.common_rtt_us,
        least_window_bytes=policy.least_window_bytes,
        corrects_allowance=policy.corrects_allowance,
        omits=int(omissions(policy)),
    )
    return port, settings, scheme["settings"].get("switch", {}).get("count") == "simple"


@contextlib.contextmanager
def data_plane(scheme: Mapping[str, Any] | None, star: Star) -> Iterator[KernelDataPlane | None]:
    """The programs of a scheme at every port of the bridge."""
    if scheme is None:
        yield None
        return
    port, settings, simple_count = port_settings(scheme)
    plane = KernelDataPlane("weir-bench")
    try:
        plane.configure_host(HostSettings(simple_count=simple_count))
        root = (star.bottleneck.rate_bps, star.bottleneck.queue_bytes or 0, NoShare.NONE)
        for number in range(star.workers + 1):
            name = PORT.format(number)
            ifindex = socket.if_nametoindex(name)
            plane.attach(ifindex, name, BRIDGE, number + 1, kernel_datapath=True)
            plane.configure(ifindex, port, *((LINK_BPS, 0, NoShare.QUEUE) if number else root))
        for rule in sccp_rules(settings.rows):
            plane.put(BRIDGE, rule)
        yield plane
    finally:
        plane.destroy()


class Programs:
    """The traffic programs of a turn."""

    def __init__(self, folder: Path) -> None:
        self.records = folder / "records"
        self._started: list[subprocess.Popen[bytes]] = []
        self.records.touch()

    def start(self, number: int, role: str, *options: str) -> subprocess.Popen[bytes]:
        """Start a role in a host."""
        command = ("ip", "netns", "exec", host(number), str(artifact("weir-traffic")), role)
        with open(self.records, "ab") as out:
            started = subprocess.Popen(
                (*command, "--host", host(number), "--port", str(WORKER_PORT), "--cc", "reno", *options),
                stdout=out,
            )
        self._started.append(started)
        return started

    def await_event(self, event: str, count: int) -> None:
        """Wait until an event is recorded so often. Raises ClickException."""
        until = time.monotonic() + QUERY_TIMEOUT_S
        while self.records.read_text().count(f'"event":"{event}"') < count:
            if time.monotonic() > until:
                raise click.ClickException(f"fewer than {count} traffic programs have {event}")
            time.sleep(0.02)

    def queries_ms(self) -> list[float]:
        """The completion times of the recorded queries."""
        records = map(json.loads, self.records.read_text().splitlines())
        return [max(record["workers_ms"]) for record in records if record["event"] == "query"]

    def close(self) -> None:
        """End the programs, the last one first, and wait for their ends."""
        for program in reversed(self._started):
            program.terminate()
        for program in self._started:
            program.wait()


def retransmissions(workers: int) -> Counter[str]:
    """The timeouts and loss probes of all workers since the star was built."""
    totals: Counter[str] = Counter(TCPTimeouts=0, TCPLossProbes=0)
    for number in range(1, workers + 1):
        counters = parse_proc_net(
            sandbox.run("ip", "netns", "exec", host(number), "cat", "/proc/net/netstat")
        )
        for name in totals:
            totals[name] += counters[name]
    return totals


def turn(name: str, case: Case, gap_ms: int, star: Star, probe: QueueProbe) -> Turn:
    """Let the root ask the first workers under a scheme."""
    workers, queries = case.workers, case.queries
    set_min_rto(workers, MIN_RTO_MS.get(name, 0))
    port = PORT.format(0)
    with (
        tempfile.TemporaryDirectory() as folder,
        data_plane(SCHEMES[name], star) as plane,
        contextlib.closing(Programs(Path(folder))) as programs,
    ):
        for number in range(1, workers + 1):
            programs.start(number, "worker", *worker_options(case))
        programs.await_event("listening", workers)
        drops, before = read_queue(port).drops, retransmissions(workers)
        begun, idle = time.monotonic(), idle_s()
        whom = " ".join(f"{host(number)}={address(number)}/reno" for number in range(1, workers + 1))
        asked = ("--size", str(case.size_bytes), "--queries", str(queries), "--gap-ms", str(gap_ms))
        with probe.watching(port) as trace:
            root = programs.start(0, "root", *asked, "--period-ms", "0", "--workers", whom)
            until = time.monotonic() + QUERY_TIMEOUT_S + queries
            while root.poll() is None:
                if time.monotonic() > until:
                    raise click.ClickException(f"{name}: the queries do not end")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    root.wait(SWEEP_S)
                if plane:
                    plane.sweep(SweepTimes(idle_s=SWEEP_S))
        cpus = busy_cpus(begun, idle)
        took = programs.queries_ms()
        if root.returncode or len(took) != queries:
            raise click.ClickException(f"{name}: {len(took)} of {queries} queries ended")
        lost = read_queue(port).drops - drops
        again = retransmissions(workers)
        again.subtract(before)
        longest = int(trace.bytes.max(initial=0))
        return Turn(took, lost, again["TCPTimeouts"], again["TCPLossProbes"], longest, cpus)


def row(name: str, case: Case, rate_bps: int, turns: Sequence[Turn]) -> dict[str, Any]:
    """A table's row: all queries of a scheme in a case."""
    ideal_ms = case.ideal_ms(rate_bps / 1e6)
    took = [query for one in turns for query in one.queries_ms]
    medians = [percentile(one.queries_ms, 50) / ideal_ms for one in turns]
    return {
        "case": case.title,
        "scheme": name,
        "queries": len(took),
        "ideal ms": round(ideal_ms, 2),
        "x ideal": Spread.of(medians),
        "p99 x ideal": round(percentile(took, 99) / ideal_ms, 2),
        "worst ms": round(max(took), 1),
        "drops": sum(one.drops for one in turns),
        "timeouts": sum(one.timeouts for one in turns),
        "probes": sum(one.probes for one in turns),
        "longest queue, KB": max(one.queue_max_bytes for one in turns) // 1000,
        "cpus": Spread.of([one.cpus for one in turns]),
    }


def measure(
    cases: Sequence[Case], names: Sequence[str], rounds: int, gap_ms: int, star: Star
) -> list[dict[str, Any]]:
    """The rows of some cases, which take turns on one network."""
    kinds = [(case, name) for case in cases for name in names]
    turns: dict[tuple[str, str], list[Turn]] = {(case.name, name): [] for case, name in kinds}
    with QueueProbe() as probe, built(star):
        for number in range(rounds):
            for case, name in kinds[:: -1 if number % 2 else 1]:
                turns[case.name, name].append(turn(name, case, gap_ms, star, probe))
    rate_bps = star.bottleneck.rate_bps
    return [row(name, case, rate_bps, turns[case.name, name]) for case, name in kinds]


def cases_of(count: int, size_kb: int, queries: int, floor_segment_bytes: int | None) -> list[Case]:
    """A number of workers, and with a size of segments one worker with the bytes of all."""
    cases = [Case(f"{count}", f"{count} x {size_kb} KB", count, size_kb * 1000, 0, queries)]
    if floor_segment_bytes is not None:
        title = f"1 x {count * size_kb} KB, {floor_segment_bytes}"
        floor = Case("floor", title, 1, count * size_kb * 1000, 0, queries, segment_bytes=floor_segment_bytes)
        cases.append(floor)
    for case in cases:
        case.check()
    return cases


@click.command(help=__doc__)
@click.option("--workers", default="20,60,100", show_default=True, help="Numbers of workers, one case each.")
@click.option("--size-kb", default=10, show_default=True, help="The response of each worker.")
@click.option("--schemes", default=",".join(SCHEMES), show_default=True, help="The schemes, in turn.")
@click.option("--queries", default=20, show_default=True, help="Queries of a scheme in a round.")
@click.option(
    "--gap-ms", default=100, show_default=True, help="Time from the end of a query to the next one."
)
@click.option("--rounds", default=6, show_default=True, help="Rounds of all schemes.")
@click.option("--mbps", default=1000, show_default=True, help="The rate of the port to the root.")
@click.option("--queue-kb", default=178, show_default=True, help="The queue of that port.")
@click.option("--floor-segments", help="The bytes of one worker's segments, for each number of workers.")
@click.option("--super-packets", is_flag=True, help="Hosts and ports keep their offloads (TSO, GSO, GRO).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(
    workers: str,
    size_kb: int,
    schemes: str,
    queries: int,
    gap_ms: int,
    rounds: int,
    mbps: int,
    queue_kb: int,
    floor_segments: str | None,
    super_packets: bool,
    as_json: bool,
) -> None:
    names, counts = schemes.split(","), list(map(int, workers.split(",")))
    if unknown := sorted(set(names) - set(SCHEMES)):
        raise click.ClickException(f"unknown schemes {', '.join(unknown)}; there are {', '.join(SCHEMES)}")
    floors: list[int | None] = [None] * len(counts)
    if floor_segments is not None:
        floors = [int(segment_bytes) for segment_bytes in floor_segments.split(",")]
    if len(floors) != len(counts):
        raise click.ClickException(f"--floor-segments has {len(floors)} values; want {len(counts)}")
    bottleneck = Bottleneck(mbps * 1_000_000, queue_kb * 1000)
    sandbox.enter()
    rows = []
    for count, floor in zip(counts, floors, strict=True):
        cases = cases_of(count, size_kb, queries, floor)
        rows += measure(cases, names, rounds, gap_ms, Star(count, bottleneck, super_packets))
    load = "super-packets" if super_packets else "packets"
    present(f"Incast at {mbps} Mbit/s over a Linux bridge, {load}", tuple(rows[0]), rows, as_json)


if __name__ == "__main__":
    main()
