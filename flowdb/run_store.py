"""The store of one controller's run, which also keeps the run's own rows in order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sqlalchemy import update
from sqlalchemy.engine import Connection

from flowdb.clock import Clock
from flowdb.commands import Command, take
from flowdb.engine import open_engine
from flowdb.flow import NS_PER_S
from flowdb.models import RunRow
from flowdb.retention import Retention, prune
from flowdb.store import Chore, Store

_HEARTBEAT_S, _COMMANDS_S, _PRUNE_S = 5.0, 0.5, 60.0
_PRUNE_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What a run's store is told: where it writes and for whom. ``boot_ns``: of the run's clock."""

    url: str
    run_id: int
    boot_ns: int
    retention: Retention | None
    max_pending: int


class RunStore(Store):
    """Writes, says that the run lives, takes on its commands and deletes what is too old.

    Raises FlowDbError when the database cannot be used.
    """

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._clock = Clock(spec.boot_ns)
        self._commands: deque[Command] = deque()
        self._obeys = False
        chores = [Chore(_HEARTBEAT_S, self._say_alive), Chore(_COMMANDS_S, self._take_commands)]
        if spec.retention:
            chores.append(Chore(_PRUNE_S, self._prune))
        super().__init__(open_engine(spec.url), chores, spec.max_pending)

    def take_commands(self) -> list[Command]:
        """The commands that came in since the last call; never waits.

        Before the first call none is taken from the database: a controller that obeys none leaves them.
        """
        self._obeys = True
        return [self._commands.popleft() for _ in range(len(self._commands))]

    def _say_alive(self, connection: Connection) -> bool:
        if jump_ns := self._clock.jump_ns():
            self.warn(f"the system's clock was set by {jump_ns / NS_PER_S:+.1f} s; times go on as before")
        mine = update(RunRow).where(RunRow.id == self._spec.run_id)
        connection.execute(mine.values(last_seen_ns=self._clock.now_ns()))
        return False

    def _take_commands(self, connection: Connection) -> bool:
        if self._obeys:
            self._commands.extend(take(connection, self._spec.run_id, self._clock.now_ns()))
        return False

    def _prune(self, connection: Connection) -> bool:
        assert self._spec.retention is not None  # noqa: S101 - else this is no chore
        pruned = prune(connection, self._spec.retention, self._clock.now_ns(), _PRUNE_AT_ONCE)
        return max(pruned.values()) == _PRUNE_AT_ONCE
