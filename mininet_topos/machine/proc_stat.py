"""CPU time in clock ticks from /proc (proc(5)): of a process, and of the whole machine."""

from __future__ import annotations

from pathlib import Path

ENDED = ("Z", "X")
"""States of a process that has ended but whose parent has not waited for it."""


def started_ticks(pid: int) -> int | None:
    """Return the start time of a process in ticks since boot; None if it does not live.

    The pid and the start time together identify a process.
    """
    try:
        fields = _fields_after_name(pid)
    except OSError:
        return None
    return None if fields[0] in ENDED else int(fields[19])


def cpu_ticks(pid: int) -> int:
    """Return the CPU time of a process in user and kernel mode. Raises OSError if there is no process."""
    fields = _fields_after_name(pid)
    return int(fields[11]) + int(fields[12])


def machine_ticks() -> dict[str, list[int]]:
    """Return the CPU time since boot by kind (/proc/stat).

    The kinds are user, nice, system, idle, iowait, irq, softirq and steal. The key "cpu" has the sum over all
    CPUs; "cpu0" and so on have one CPU each.
    """
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    return {line[0]: [int(word) for word in line[1:9]] for line in lines if line[0].startswith("cpu")}


def _fields_after_name(pid: int) -> list[str]:
    """Return the fields from the third on. The second is the name, which may contain spaces and brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
