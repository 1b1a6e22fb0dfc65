"""The switch has a CPU to itself, where there are several.

Packets reach a host in the softirq of the CPU that sent them. Left alone, the hosts' TCP runs within
ovs-vswitchd's one forwarding thread, and their programs take its CPU: a switch which the experiment's own
load makes slow.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from mininet_topos.state import LabState

WORD_BITS = 32


@contextmanager
def hosts_apart() -> Iterator[int | None]:
    """Meanwhile this thread, and every program that it starts, leaves one CPU free.

    Yields the number of that CPU; None where there is but one.
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
    """Bind the forwarding thread of ovs-vswitchd (its main one) to a CPU until the lab's state is released.

    A thread that is bound to one CPU already (by another lab or its owner) is left alone.
    """
    allowed = os.sched_getaffinity(pid)
    if cpu is not None and len(allowed) > 1:
        state.note_bound(pid, allowed)
        os.sched_setaffinity(pid, {cpu})


def lab_cpus(vswitchd_pid: int) -> list[int]:
    """The CPUs on which the lab runs: the switch's and those of this thread."""
    return sorted(os.sched_getaffinity(0) | os.sched_getaffinity(vswitchd_pid))


def mask(cpus: Collection[int]) -> str:
    """CPUs as the kernel writes them in `rps_cpus`: hexadecimal, words of 32 bits parted by commas."""
    bits = sum(1 << cpu for cpu in cpus)
    words: list[str] = []
    while bits or not words:
        words.append(f"{bits & (1 << WORD_BITS) - 1:08x}")
        bits >>= WORD_BITS
    return ",".join(reversed(words))
