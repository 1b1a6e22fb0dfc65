"""A temporary folder that is removed even if somebody ends the benchmark."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that ends with this context, also if SIGTERM or SIGHUP ends the program.

    For the main thread.
    """

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    numbers = [signal.SIGTERM, signal.SIGHUP]
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in heard}
    try:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
