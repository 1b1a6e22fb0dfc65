"""The commands that wait in memory for a controller."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from flowdb.commands import Command


class CommandInbox:
    """Commands from people, between the thread that claims them and the controller that carries them out.

    A store claims commands from the database only after the controller's first ``take``. A controller that
    takes no commands, such as SCCP's, leaves them to others. Appending and taking is safe in any thread.
    """

    def __init__(self) -> None:
        self._waiting: deque[Command] = deque()
        self.is_read = False
        """Whether the controller takes commands."""

    def put(self, commands: Iterable[Command]) -> None:
        """Add commands that were claimed for this controller."""
        self._waiting.extend(commands)

    def take(self) -> list[Command]:
        """The commands that arrived since the last call; never waits."""
        self.is_read = True
        return [self._waiting.popleft() for _ in range(len(self._waiting))]
