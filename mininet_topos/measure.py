"""What is read from the machine around a run: TCP counters, OVS's own drops, its CPUs' idle time, stalls."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from mininet_topos.cpus import lab_cpus
from mininet_topos.links import read_queue
from mininet_topos.net import Network
from mininet_topos.netem import lost_pkts
from mininet_topos.node import LabHost
from mininet_topos.ovs_buffers import packet_sockets, vswitchd_pid
from mininet_topos.process import Program, built
from mininet_topos.procstat import cpu_ticks, machine_ticks
from mininet_topos.results.records import Record, read_records
from mininet_topos.state import LabState

CPU_SAMPLE_S = 1.0
LEAST_STALL_US = 1000
TCP_COUNTERS = (
    "OutSegs",
    "InSegs",
    "RetransSegs",
    "TCPTimeouts",
    "TCPLossProbes",
    "TCPFastRetrans",
    "TCPSlowStartRetrans",
    "TCPSpuriousRTOs",
    "TCPDSACKRecv",
)


def parse_proc_net(text: str) -> dict[str, int]:
    """The counters of /proc/net/snmp or netstat: pairs of lines, names above values."""
    lines = text.splitlines()
    counters = {}
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        pairs = zip(names.split()[1:], values.split()[1:], strict=True)
        counters.update({name: int(value) for name, value in pairs})
    return counters


def tcp_counters(host: LabHost) -> dict[str, int]:
    """A host's TCP counters, read from outside its namespace."""
    counters: dict[str, int] = {}
    for name in ("snmp", "netstat"):
        counters |= parse_proc_net(Path(f"/proc/{host.pid}/net/{name}").read_text())
    return {name: counters.get(name, 0) for name in TCP_COUNTERS}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters at one moment, or, as a difference, of one run.

    ``tcp`` sums over all hosts. ``ovs_receive_drops`` are packets that OVS's receive sockets had no room
    for; ``queue_drops`` those that the bottleneck's queue refused, ``other_queue_drops`` those that another
    shaped port's did; ``link_losses`` those that netem lost.
    """

    tcp: dict[str, int]
    queue_drops: int
    queue_sent_bytes: int
    ovs_receive_drops: int
    other_queue_drops: int = 0
    link_losses: int = 0

    @property
    def ovs_drops(self) -> int:
        """TCP segments that left a host, arrived at none, and were not refused by a queue.

        Exact when nothing is in flight. OVS itself does not count them: it sends in batches, and when
        the queue refuses a packet, it drops the rest of the batch (of the same microseconds, which a
        full queue would have refused too).
        """
        sent = self.tcp["OutSegs"] + self.tcp["RetransSegs"]  # Linux counts retransmissions apart
        accounted = self.tcp["InSegs"] + self.queue_drops + self.other_queue_drops + self.link_losses
        return max(0, sent - accounted)

    def since(self, before: Snapshot) -> Snapshot:
        """What has been added since `before`."""
        return Snapshot(
            {name: value - before.tcp[name] for name, value in self.tcp.items()},
            self.queue_drops - before.queue_drops,
            self.queue_sent_bytes - before.queue_sent_bytes,
            self.ovs_receive_drops - before.ovs_receive_drops,
            self.other_queue_drops - before.other_queue_drops,
            self.link_losses - before.link_losses,
        )


def snapshot(net: Network) -> Snapshot:
    """Read all counters of a network."""
    tcp = dict.fromkeys(TCP_COUNTERS, 0)
    for host in net.hosts:
        for name, value in tcp_counters(host).items():
            tcp[name] += value
    queue = read_queue(net.bottleneck_ifname)
    ports = set(net.state.interfaces)
    receive_drops = sum(socket.receive_drops for socket in packet_sockets() if socket.ifname in ports)
    others = (read_queue(ifname).drops for ifname in net.shapes if ifname != net.bottleneck_ifname)
    losses = sum(lost_pkts(host) for host in net.impaired)
    return Snapshot(tcp, queue.drops, queue.sent_bytes, receive_drops, sum(others), losses)


class _Ticks(NamedTuple):
    """Since boot: `idle` of the ticks `beside` the switch's CPU, `stolen` of `every` CPU's; a process's."""

    time_s: float
    idle: int
    beside: int
    stolen: int
    every: int
    taken: dict[str, int]


class CpuWatch(threading.Thread):
    """Every second: the part that was idle of the CPUs beside the switch's, that a hypervisor took of all
    (`stolen`), and what each process took of one.

    `pids`: the processes, by the names under which samples have them.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        super().__init__(daemon=True)
        self.samples: list[dict[str, float]] = []
        self._done = threading.Event()
        self._cpus = [f"cpu{cpu}" for cpu in os.sched_getaffinity(0)]
        self._pids = pids

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()

    def run(self) -> None:
        """Sample until the context ends."""
        tick = os.sysconf("SC_CLK_TCK")
        before = self._read()
        while not self._done.wait(CPU_SAMPLE_S):
            now = self._read()
            total, of_all = now.beside - before.beside, now.every - before.every
            taken = {name: max(0, ticks - before.taken[name]) for name, ticks in now.taken.items()}
            self.samples.append(
                {
                    "t_ns": now.time_s * 1e9,
                    "idle": (now.idle - before.idle) / total if total else 1.0,
                    "stolen": (now.stolen - before.stolen) / of_all if of_all else 0.0,
                }
                | {name: ticks / tick / (now.time_s - before.time_s) for name, ticks in taken.items()}
            )
            before = now

    def _read(self) -> _Ticks:
        ticks = machine_ticks()
        beside, every = [ticks[cpu] for cpu in self._cpus], ticks["cpu"]
        idle = sum(cpu[3] + cpu[4] for cpu in beside)
        taken = {name: _ticks_of(pid) for name, pid in self._pids.items()}
        return _Ticks(time.monotonic(), idle, sum(map(sum, beside)), every[7], sum(every), taken)


def _ticks_of(pid: int) -> int:
    """The CPU time that a process has taken; 0 where it is gone, which is not this watch's affair."""
    try:
        return cpu_ticks(pid)
    except OSError:
        return 0


@contextmanager
def watching_stalls(records: Path, state: LabState) -> Iterator[None]:
    """Meanwhile the times at which a CPU stood still (stalls.c) are written to ``records``."""
    argv = (str(built("weir-stalls")), str(LEAST_STALL_US), *map(str, lab_cpus(vswitchd_pid())))
    program = Program("stall watch", argv, records.with_suffix(".log"), state, records=records)
    try:
        yield
        program.check()
    finally:
        program.stop()


def read_stalls(records: Path) -> list[Record]:
    """What ``watching_stalls`` has written, oldest first."""
    return sorted(read_records(records), key=lambda stall: stall["start_ns"])
