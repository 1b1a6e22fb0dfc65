"""Work that SIGINT and SIGTERM must not interrupt."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Delay SIGINT and SIGTERM until the context ends. For the main thread only.

    It installs handlers. A signal mask or SIG_IGN would be inherited by programs that start meanwhile.
    """
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    before = [(number, signal.signal(number, note)) for number in _NUMBERS]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[-1])
