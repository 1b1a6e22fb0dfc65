"""Work that a process of its own does when it is told to, so that it is in nobody's way."""

from __future__ import annotations

import os
from collections.abc import Callable

_WORK, _END = b"!", b"."


class OnCall:
    """Calling it has the work done once more, soon. ``prepare``: what makes the work, in the new process."""

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
