"""Signals to wait for, whatever the main thread does when they come.

An Event that a handler sets does not suffice. Python runs handlers in the main thread. If that thread is in
``Event.wait`` and holds the event's lock, the handler waits for this lock for ever. A signal that the kernel
gives to another thread does not wake the main thread either.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator


class Awaited:
    """Whether one of some signals came. Made by ``awaited``."""

    def __init__(self, noted: int, numbers: frozenset[int]) -> None:
        self._noted, self._numbers, self._came = noted, numbers, False

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for one of the signals, at most ``timeout_s``; None: for ever. Returns whether one came."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._came:
            left_s = None if until_s is None else max(until_s - time.monotonic(), 0)
            if not select.select([self._noted], [], [], left_s)[0]:
                break
            self._came = not self._numbers.isdisjoint(os.read(self._noted, 4096))
        return self._came


@contextlib.contextmanager
def awaited(*numbers: signal.Signals) -> Iterator[Awaited]:
    """Let these signals end ``Awaited.wait`` instead of the program. For the main thread only."""
    noted, note = os.pipe()
    os.set_blocking(note, False)
    fd_before = signal.set_wakeup_fd(note, warn_on_full_buffer=False)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield Awaited(noted, frozenset(numbers))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(fd_before)
        os.close(note)
        os.close(noted)
