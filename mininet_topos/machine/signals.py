"""Work that SIGINT, SIGTERM and SIGHUP must not interrupt."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Delay SIGINT, SIGTERM and SIGHUP until the context ends. For the main thread only.

    A signal that is ignored, such as SIGHUP under nohup, stays ignored. For the others it installs handlers.
    A signal mask or SIG_IGN would be inherited by programs that start meanwhile.
    """
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    heard = [number for number in _NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
    before = [(number, signal.signal(number, note)) for number in heard]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[-1])
