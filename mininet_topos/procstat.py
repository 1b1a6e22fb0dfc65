"""A process as /proc/PID/stat has it (proc(5)): when it started, what it took of the CPUs, in clock ticks."""

from __future__ import annotations

from pathlib import Path


def started_ticks(pid: int) -> int | None:
    """When a process started, since boot; None if there is none. With the pid it is the process' identity."""
    try:
        return int(_after_name(pid)[19])
    except OSError:
        return None


def cpu_ticks(pid: int) -> int:
    """The CPU time that a process has taken, in user and kernel mode. Raises OSError where there is none."""
    fields = _after_name(pid)
    return int(fields[11]) + int(fields[12])


def _after_name(pid: int) -> list[str]:
    """The fields from the third on: the second is the name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
