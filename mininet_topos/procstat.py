"""A process as /proc/PID/stat has it (proc(5)): when it started, what it took of the CPUs, in clock ticks."""

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


def _after_name(pid: int) -> list[str]:
    """The fields from the third on: the second is the name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
