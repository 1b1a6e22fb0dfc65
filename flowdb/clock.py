"""A Unix clock that neither jumps nor runs backwards while a controller runs."""

from __future__ import annotations

import time
from pathlib import Path

from flowdb.flow import NS_PER_S

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Identifies this boot of this machine."""
    return _BOOT_ID.read_text().strip()


class Clock:
    """Unix time as it was when the clock was created, advanced by the kernel's time since boot.

    If NTP or a person sets the system's clock later, no flow becomes older or younger. ``boot_ns`` is the
    Unix time of the boot by this clock. Two clocks of the same boot differ by the difference of their
    ``boot_ns``; a clock that is created with another clock's ``boot_ns`` shows the same time.
    """

    def __init__(self, boot_ns: int | None = None) -> None:
        self.boot_ns = time.time_ns() - since_boot_ns() if boot_ns is None else boot_ns
        self._reported_jump_ns = 0

    def now_ns(self) -> int:
        """Unix time in nanoseconds."""
        return self.boot_ns + since_boot_ns()

    def jump_ns(self) -> int:
        """How far the system's clock was set since the last call; 0 if that is less than a second."""
        jump_ns = time.time_ns() - self.now_ns() - self._reported_jump_ns
        if abs(jump_ns) < NS_PER_S:
            return 0
        self._reported_jump_ns += jump_ns
        return jump_ns


def since_boot_ns() -> int:
    """The kernel's time since the machine's boot, including suspended time."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
