"""CPU time in clock ticks, as /proc has it (proc(5)): of a process, and of the whole machine."""

from __future__ import annotations

from pathlib import Path

ENDED = ("Z", "X")
"""States of a process that has ended, though its parent has not asked how."""


def started_ticks(pid: int) -> int | None:
    """When a process started, since boot; None if none lives. With the pid it is the process' identity."""
    try:
        fields = _after_name(pid)
    except OSError:
        return None
    return None if fields[0] in ENDED else int(fields[19])


def cpu_ticks(pid: int) -> int:
    """The CPU time that a process has taken, in user and kernel mode. Raises OSError where there is none."""
    fields = _after_name(pid)
    return int(fields[11]) + int(fields[12])


def machine_ticks() -> dict[str, list[int]]:
    """What the CPUs did since boot (/proc/stat): user, nice, system, idle, iowait, irq, softirq, steal.

    Of all together under "cpu", of each under "cpu0" and so on.
    """
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    return {line[0]: [int(word) for word in line[1:9]] for line in lines if line[0].startswith("cpu")}


def _after_name(pid: int) -> list[str]:
    """The fields from the third on: the second is the name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
