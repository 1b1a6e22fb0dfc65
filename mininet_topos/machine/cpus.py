"""A CPU for the switch alone, on machines with several CPUs.

A host receives a packet in the softirq of the CPU that sent the packet. Without a CPU for the switch, the
hosts' TCP would run inside the one forwarding thread of ovs-vswitchd, and the hosts' programs would take CPU
time from that thread. The load of the experiment itself would then slow the switch down.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from mininet_topos.machine.lab_state import LabState

WORD_BITS = 32


@contextmanager
def hosts_apart() -> Iterator[int | None]:
    """Keep this thread, and every program that it starts, off one CPU while the context lasts.

    Yields the number of that CPU; None if the machine has only one.
    """
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        yield None
        return
    free = max(allowed)
    os.sched_setaffinity(0, allowed - {free})
    try:
        yield free
    finally:
        os.sched_setaffinity(0, allowed)


def give_to_switch(cpu: int | None, pid: int, state: LabState) -> None:
    """Bind the main thread of ovs-vswitchd, which forwards, to a CPU until the lab's state is released.

    A thread that is already bound to one CPU keeps its binding. If a running lab has bound it, the last one
    of the labs that is released ends the binding.
    """
    if cpu is None:
        return
    allowed = os.sched_getaffinity(pid)
    if len(allowed) > 1:
        state.note_bound(pid, allowed)
        os.sched_setaffinity(pid, {cpu})
    elif before := state.bound_by_others(pid):
        state.note_bound(pid, before)


def lab_cpus(vswitchd_pid: int) -> list[int]:
    """Return the CPUs on which the lab runs: the switch's CPU and the CPUs of this thread."""
    return sorted(os.sched_getaffinity(0) | os.sched_getaffinity(vswitchd_pid))


def mask(cpus: Collection[int]) -> str:
    """Return CPUs in the format of `rps_cpus`: hexadecimal words of 32 bits, separated by commas."""
    bits = sum(1 << cpu for cpu in cpus)
    words: list[str] = []
    while bits or not words:
        words.append(f"{bits & (1 << WORD_BITS) - 1:08x}")
        bits >>= WORD_BITS
    return ",".join(reversed(words))
