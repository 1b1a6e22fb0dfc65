"""Counts that an app prints on its standard output, and a reader of them."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import IO

from ryu.lib import hub

EVERY_S = 0.1


class Tally:
    """Counts, and prints the counts every tenth of a second while they change."""

    def __init__(self) -> None:
        self._counted = self._lost = 0

    def begin(self) -> None:
        """Print that counting has begun."""
        self._say()
        hub.spawn(self._go_on)

    def add(self, counted: int, lost: int) -> None:
        self._counted += counted
        self._lost += lost

    def _go_on(self) -> None:
        said = 0
        while True:
            hub.sleep(EVERY_S)
            if said != self._counted + self._lost:
                said = self._counted + self._lost
                self._say()

    def _say(self) -> None:
        sys.stdout.write(json.dumps({"counted": self._counted, "lost": self._lost}) + "\n")
        sys.stdout.flush()


class Reader(threading.Thread):
    """Reads the lines of a Tally; ``changed`` is when the last one arrived (monotonic seconds)."""

    def __init__(self, lines: IO[str]) -> None:
        super().__init__(daemon=True)
        self._lines = lines
        self.begun = threading.Event()
        self.counted = self.lost = 0
        self.changed = 0.0
        self.start()

    def run(self) -> None:
        for line in self._lines:
            if not line.startswith('{"counted"'):
                continue  # a line of the framework's log
            values = json.loads(line)
            self.counted, self.lost = values["counted"], values["lost"]
            self.changed = time.monotonic()
            self.begun.set()
