"""Stretches of work that SIGINT and SIGTERM do not break off."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def undisturbed() -> Iterator[None]:
    """SIGINT and SIGTERM wait until the context ends. For the main thread only.

    Handlers are used, not a mask or SIG_IGN, because programs that are started meanwhile inherit those.
    """
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = [(number, signal.signal(number, note)) for number in _NUMBERS]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[-1])
