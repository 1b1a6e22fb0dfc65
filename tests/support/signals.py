"""Signals whose handling the tests inherit, for example from nohup."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def handling(number: signal.Signals, how: signal.Handlers) -> Iterator[None]:
    """Ignore a signal (SIG_IGN) or let it end the process (SIG_DFL); child processes inherit that."""
    before = signal.signal(number, how)
    try:
        yield
    finally:
        signal.signal(number, before)
