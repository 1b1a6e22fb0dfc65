"""A lab network with a running scheme, and its state: rules, database rows, packets, sockets."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from mininet_topos.experiments.schemes import Settings, schemes
from mininet_topos.machine.programs import Program
from mininet_topos.network.lab_network import Network
from mininet_topos.network.nodes import LabHost, inside
from mininet_topos.records.raw_records import Record, read_records
from mininet_topos.running.scheme_programs import RunningScheme, free_port, is_listening, running
from mininet_topos.running.traffic_programs import SINK_PORT, WORKER_PORT, Traffic
from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from openflow_ext.switch.dataplane.rules import Rule, WindowOp
from tests.support.agent.switch_bench import run
from tests.support.database.rows import Row, rows
from tests.support.waiting import DEADLINE_S, wait_until

BRIDGE = 1
ROOT_PORT = 1


@dataclass(frozen=True)
class Socket:
    """A TCP socket as `ss -tin` shows it.

    ``advmss``, for ``mss`` is at most half of the largest window that Linux has seen, so a clamp lowers it.
    """

    snd_wnd: int
    advmss: int
    peer_wscale: int
    rwnd_limited: float


@dataclass(frozen=True)
class Packets:
    """Output of `tcpdump -vv`: the verdict on each TCP checksum, and windows of incoming packets."""

    checksums: list[str]
    windows_in: list[int]


@dataclass
class Stage:
    """Long flows and queries over one network, under one scheme."""

    net: Network
    running: RunningScheme
    folder: Path
    port: int
    traffic: Traffic = field(init=False)

    def __post_init__(self) -> None:
        self.traffic = Traffic(self.folder / "traffic.jsonl", self.net.state)
        for worker in self.net.workers:
            self.traffic.start(worker, "worker", port=WORKER_PORT)
        self.sinks = [self.traffic.start(host, "sink", port=SINK_PORT) for host in self.net.sinks]
        self.traffic.await_event("listening", len(self.net.workers) + len(self.sinks), DEADLINE_S)

    def start(self) -> tuple[list[Program], Program]:
        """Start long flows, and then the burst's connections with queries on them.

        The sinks do not read before all flows are open, so that the first lasting alarm finds all of them.
        """
        with self.sinks_stopped():
            flows = [self.start_long_flow(sender) for sender in self.net.senders]
            self.traffic.await_event("connected", len(flows), DEADLINE_S)
            return flows, self.start_queries()

    @contextlib.contextmanager
    def sinks_stopped(self) -> Iterator[None]:
        """Stop the long flows' receivers during this context."""
        for sink in self.sinks:
            os.kill(sink.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for sink in self.sinks:
                os.kill(sink.pid, signal.SIGCONT)

    def start_long_flow(self, sender: LabHost) -> Program:
        """Start a long flow to the first sink."""
        return self.traffic.start(sender, "source", "--to", self.net.sinks[0].IP(), port=SINK_PORT)

    def start_queries(self, size_bytes: int = 4000, gap_ms: int = 50) -> Program:
        """Start a root that queries all workers until it is stopped, and wait for its first query."""
        before = self.count("query")
        workers = " ".join(f"{host.name}={host.IP()}" for host in self.net.workers)
        options = ("--size", str(size_bytes), "--queries", "100000", "--gap-ms", str(gap_ms))
        root = self.traffic.start(self.net.root, "root", *options, "--workers", workers, port=WORKER_PORT)
        self.await_queries(before + 1)
        return root

    def records(self, event: str) -> list[Record]:
        return [record for record in read_records(self.traffic.records) if record["event"] == event]

    def count(self, event: str) -> int:
        return len(self.records(event))

    def await_queries(self, count: int) -> None:
        self.traffic.await_event("query", count, DEADLINE_S)

    @cached_property
    def controller(self) -> Program:
        return self.running.programs[0]

    def kill_controller(self) -> list[str]:
        """Kill the controller with SIGKILL, and return its command line."""
        argv = Path(f"/proc/{self.controller.pid}/cmdline").read_text().split("\0")[:-1]
        os.kill(self.controller.pid, signal.SIGKILL)
        wait_until(lambda: not self.controller.running, "the controller is gone")
        return argv

    @contextlib.contextmanager
    def successor(self, argv: list[str]) -> Iterator[int]:
        """Run the killed controller's command again; gives the time of its start."""
        started_ns = time.time_ns()
        env = {"WEIR_CONFIG": str((self.folder / "scheme" / "weir.toml").resolve())}
        program = Program("successor", argv, self.folder / "successor.log", self.net.state, env)
        try:
            program.wait_ready(lambda: is_listening(self.port), f"nobody listens on port {self.port}")
            yield started_ns
        finally:
            program.stop()

    def rows(self, model: type[Row]) -> list[Row]:
        return rows(self.folder / "scheme" / "flowdb.sqlite", model)

    def lose_database(self) -> None:
        """Delete the database. No controller may be running."""
        for file in (self.folder / "scheme").glob("flowdb.sqlite*"):
            file.unlink()

    def rules(self) -> list[Rule]:
        with contextlib.closing(PinnedMaps(self.running.dataplane)) as maps:
            return [rule for rule, _ in maps.rules(BRIDGE)]

    def punished(self) -> set[tuple[str, int]]:
        """The senders whose ACKs match a MOD_WINDOW entry, as (address, port)."""
        acks = [rule.match for rule in self.rules() if rule.window_op is WindowOp.MOD_WINDOW]
        return {(str(match.dst.network_address), match.dst_port) for match in acks}  # type: ignore[union-attr]

    def root_share_bytes(self) -> int:
        """The fair share at the port to the root, read from the data plane within a millisecond.

        With short responses the share of a burst lasts for a few milliseconds; `weir ports` is a process, and
        on a busy machine it samples the share less than once a second.
        """
        with contextlib.closing(PinnedMaps(self.running.dataplane)) as maps:
            return maps.counters(socket.if_nametoindex(self.root_ifname)).fair_share_bytes

    @property
    def root_ifname(self) -> str:
        """The interface of the port to the root."""
        return self.net.ifname(next(port for port in self.net.layout.ports if port.number == ROOT_PORT))

    def root_port(self) -> dict[str, Any]:
        """The counters of the port to the root, as `weir ports` prints them."""
        return next(port for port in self.running.ports() if port["ofport"] == ROOT_PORT)

    def entries(self, table: int, switch: int = 0) -> list[str]:
        """A table of a switch as ovs-ofctl shows it."""
        argv = ("ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "dump-flows", self.net.switches[switch].name)
        lines = run(*argv, f"table={table}").splitlines()
        return [line.strip() for line in lines if "reply" not in line]


@contextlib.contextmanager
def stage(net: Network, folder: Path, scheme: str, settings: Settings | None = None) -> Iterator[Stage]:
    """A scheme's controller and agent on ``net``, with workers and a sink that listen."""
    port = free_port()
    standard = schemes()[scheme]
    chosen = standard if settings is None else replace(standard, settings=settings)
    with running(chosen, net, folder / "scheme", port) as now:
        made = Stage(net, now, folder, port)
        try:
            yield made
        finally:
            made.traffic.stop()


def sockets(host: LabHost, peer_port: int) -> list[Socket]:
    """A host's established connections to, or from, a port."""
    found = []
    filters = ("state", "established", f"( dport = :{peer_port} or sport = :{peer_port} )")
    for line in in_host(host, "ss", "-tinHO", *filters).splitlines():
        given = dict(re.findall(r"\b(snd_wnd|advmss|wscale):(\d+)", line))  # ss does not print a window of 0
        window, advmss, wscale = (int(given.get(name, 0)) for name in ("snd_wnd", "advmss", "wscale"))
        limited = re.findall(r"\brwnd_limited:\w+\(([\d.]+)%\)", line)
        found.append(Socket(window, advmss, wscale, float(limited[0]) / 100 if limited else 0.0))
    return found


def capture(host: LabHost, port: int, count: int) -> Packets:
    """The next ``count`` TCP packets of a port at a host."""
    argv = ("tcpdump", "-nn", "-vv", "-i", f"{host.name}-eth0", "-c", str(count), f"tcp port {port}")
    text = in_host(host, *argv)
    lines = [line for line in text.splitlines() if "Flags [" in line]
    assert len(lines) == count
    checksums = re.findall(r"cksum 0x[0-9a-f]+ \((\w+)", text)
    incoming = [line for line in lines if re.search(rf"> {re.escape(host.IP())}\.\d+: ", line)]
    windows = [int(found[1]) for line in incoming if (found := re.search(r"\bwin (\d+)", line))]
    return Packets(checksums, windows)


def in_host(host: LabHost, *argv: str) -> str:
    """What a command prints in a host's namespace."""
    return run(*inside(host, *argv))
