"""The commands that wait in memory for a controller."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from flowdb.commands import Command


class CommandInbox:
    """Commands from people, between the thread that claims them and the controller that carries them out.

    A store claims commands of a kind from the database only after the controller's first ``take`` of that
    kind. A controller leaves the other kinds to others. Appending and taking is safe in any thread.
    """

    def __init__(self) -> None:
        self._waiting: deque[Command] = deque()
        self.kinds: frozenset[str] = frozenset()
        """The kinds of commands that the controller takes."""

    def put(self, commands: Iterable[Command]) -> None:
        """Add commands that were claimed for this controller."""
        self._waiting.extend(commands)

    def take(self, kinds: Collection[str]) -> list[Command]:
        """The commands of these kinds that arrived since the last call; never waits."""
        self.kinds |= frozenset(kinds)
        if not self._waiting:
            return []
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        self._waiting.extend(command for command in waiting if command.kind not in kinds)
        return [command for command in waiting if command.kind in kinds]
