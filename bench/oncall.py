"""Work that a separate process does on request, so that it does not disturb the caller's measurement."""

from __future__ import annotations

import os
from collections.abc import Callable

_WORK, _END = b"!", b"."


class OnCall:
    """Calling it starts the work once in the other process. ``prepare`` makes the work in that process."""

    def __init__(self, prepare: Callable[[], Callable[[], None]]) -> None:
        asked, self._ask = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            work = prepare()
            while os.read(asked, 1) == _WORK:
                work()
            os._exit(0)
        os.close(asked)

    def __call__(self) -> None:
        os.write(self._ask, _WORK)

    def close(self) -> None:
        os.write(self._ask, _END)
        os.close(self._ask)
        os.waitpid(self._pid, 0)
