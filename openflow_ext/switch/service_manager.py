"""What the agent reports to a service manager: sd_notify(3) and the watchdog of sd_watchdog_enabled(3)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

READY, ALIVE = "READY=1", "WATCHDOG=1"


def notify(state: str) -> None:
    """Send a state, if a service manager listens. Raises nothing, and waits for nobody."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.setblocking(False)
            manager.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
            manager.send(state.encode())


def watchdog_s() -> float | None:
    """The time after which the service manager kills this process if it hears nothing; None: never."""
    of_pid = os.environ.get("WATCHDOG_PID", str(os.getpid()))
    limit_us = os.environ.get("WATCHDOG_USEC", "")
    is_set = limit_us.isdecimal() and int(limit_us) > 0 and of_pid == str(os.getpid())
    return int(limit_us) / 1e6 if is_set else None


async def report_alive() -> None:
    """Report at each third of the watchdog's time that the event loop runs. A loop that hangs does not."""
    limit_s = watchdog_s()
    while limit_s is not None:
        notify(ALIVE)
        await asyncio.sleep(limit_s / 3)
