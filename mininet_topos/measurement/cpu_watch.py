"""CPU time during a run: idle, taken by the hypervisor, and used by each process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple, Self

from mininet_topos.machine.proc_stat import cpu_ticks, machine_ticks

SAMPLE_INTERVAL_S = 1.0
IDLE, IOWAIT, STEAL = 3, 4, 7
"""Positions in the values of machine_ticks()."""


class _Ticks(NamedTuple):
    """Clock ticks since boot.

    ``hosts_idle`` and ``hosts_all``: of the hosts' CPUs, which exclude the switch's. ``stolen`` and ``all``:
    of all CPUs. ``processes``: of each process.
    """

    time_s: float
    hosts_idle: int
    hosts_all: int
    stolen: int
    all: int
    processes: dict[str, int]


class CpuWatch(threading.Thread):
    """Samples of the CPU time, one for each second while the context lasts.

    A sample has `t_ns`, `idle` (the idle share of the hosts' CPUs), `stolen` (the share of all CPUs that the
    hypervisor took) and, for each process in `pids`, its share of one CPU under the process's name.
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
        """Take samples until the context ends."""
        ticks_a_second = os.sysconf("SC_CLK_TCK")
        before = self._read()
        while not self._done.wait(SAMPLE_INTERVAL_S):
            now = self._read()
            of_hosts, of_all = now.hosts_all - before.hosts_all, now.all - before.all
            interval_s = now.time_s - before.time_s
            grown = {name: max(0, ticks - before.processes[name]) for name, ticks in now.processes.items()}
            self.samples.append(
                {
                    "t_ns": now.time_s * 1e9,
                    "idle": (now.hosts_idle - before.hosts_idle) / of_hosts if of_hosts else 1.0,
                    "stolen": (now.stolen - before.stolen) / of_all if of_all else 0.0,
                }
                | {name: ticks / ticks_a_second / interval_s for name, ticks in grown.items()}
            )
            before = now

    def _read(self) -> _Ticks:
        ticks = machine_ticks()
        hosts, every = [ticks[cpu] for cpu in self._cpus], ticks["cpu"]
        idle = sum(cpu[IDLE] + cpu[IOWAIT] for cpu in hosts)
        processes = {name: _ticks_of(pid) for name, pid in self._pids.items()}
        return _Ticks(time.monotonic(), idle, sum(map(sum, hosts)), every[STEAL], sum(every), processes)


def _ticks_of(pid: int) -> int:
    """Return the CPU time of a process; 0 if it has ended, which the runner detects elsewhere."""
    try:
        return cpu_ticks(pid)
    except OSError:
        return 0
