"""A Unix clock that neither jumps nor runs backwards while a controller runs."""

from __future__ import annotations

import time
from pathlib import Path

from flowdb.flow import NS_PER_S

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Which start of which machine this is."""
    return _BOOT_ID.read_text().strip()


class Clock:
    """Unix time as it was at the start, and from there on as the kernel counts since the machine's boot.

    Whoever sets the system's clock in between (NTP, a person) makes no flow older or younger. ``boot_ns`` is
    the Unix time of the boot by this clock: two clocks of one boot differ by the difference of theirs.
    Given one, it is the same clock as the one that has it.
    """

    def __init__(self, boot_ns: int | None = None) -> None:
        self.boot_ns = time.time_ns() - since_boot_ns() if boot_ns is None else boot_ns
        self._told_ns = 0

    def now_ns(self) -> int:
        """Unix time."""
        return self.boot_ns + since_boot_ns()

    def jump_ns(self) -> int:
        """What the system's clock was set by and no call has told yet; 0 where that is less than a second."""
        jump_ns = time.time_ns() - self.now_ns() - self._told_ns
        if abs(jump_ns) < NS_PER_S:
            return 0
        self._told_ns += jump_ns
        return jump_ns


def since_boot_ns() -> int:
    """What the kernel counts since the machine's boot, suspended time included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
