"""The store of one controller's run, which also maintains the run's own rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import update
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from flowdb import schema
from flowdb.clock import Clock
from flowdb.commands import Command, claim_commands
from flowdb.engine import open_engine
from flowdb.flow import NS_PER_S
from flowdb.models import RunRow
from flowdb.retention import Retention, prune
from flowdb.runs import HEARTBEAT_S, record_own_run
from flowdb.writing.command_inbox import CommandInbox
from flowdb.writing.store import PeriodicTask, Store

_COMMANDS_S, _PRUNE_S = 0.5, 60.0
_PRUNE_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """A run that the database does not know: the controller's process, and when it started."""

    pid: int
    started_ns: int


@dataclass(frozen=True, slots=True)
class RunSpec:
    """The database and the run that a store writes for. ``boot_ns`` is that of the run's clock.

    ``unrecorded``: the database was down when the run started, so the store has to record the run first.
    """

    url: str
    run_id: int
    boot_ns: int
    retention: Retention | None
    max_pending: int
    unrecorded: Unrecorded | None = None


class RunStore(Store):
    """Writes changes, records that the run is alive, claims its commands and deletes old rows.

    Raises FlowDbError if the database cannot be used.
    """

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._clock = Clock(spec.boot_ns)
        self.commands = CommandInbox()
        self._claimed: list[Command] = []
        self._unrecorded = spec.unrecorded
        self._looked: tuple[frozenset[str], int] | None = None
        tasks = [
            PeriodicTask(HEARTBEAT_S, self._heartbeat),
            PeriodicTask(_COMMANDS_S, self._claim_commands, self._may_have_commands, self._hand_over_claimed),
        ]
        if spec.retention:
            tasks.append(PeriodicTask(_PRUNE_S, self._prune))
        super().__init__(open_engine(spec.url), tasks, spec.max_pending)

    def _use(self, connection: Connection) -> None:
        self._looked = None
        if self._unrecorded is not None:
            schema.prepare(self._engine, self._spec.url)
            run = self._unrecorded
            with Session(connection) as session, session.begin():
                record_own_run(session, self._clock, self._spec.run_id, run.pid, run.started_ns)
            self._unrecorded = None

    def _heartbeat(self, connection: Connection) -> bool:
        if jump_ns := self._clock.jump_ns():
            self.warn(
                f"the system's clock was set by {jump_ns / NS_PER_S:+.1f} s; recorded times are not affected"
            )
        run = update(RunRow).where(RunRow.id == self._spec.run_id)
        connection.execute(run.values(last_seen_ns=self._clock.now_ns()))
        return False

    def _may_have_commands(self, connection: Connection) -> bool:
        """SQLite states at little cost whether another process has written since the last look.

        A look for more kinds of commands may find some that waited already.
        """
        kinds = self.commands.kinds
        if not kinds or connection.dialect.name != "sqlite":
            return bool(kinds)
        driver: Any = connection.connection.driver_connection
        (data_version,) = driver.execute("PRAGMA data_version").fetchone()
        before, self._looked = self._looked, (kinds, data_version)
        return before != self._looked

    def _claim_commands(self, connection: Connection) -> bool:
        kinds = self.commands.kinds
        self._claimed = claim_commands(connection, self._spec.run_id, self._clock.now_ns(), kinds)
        return False

    def _hand_over_claimed(self) -> None:
        """After the commit of the claims: a command whose claim was undone is claimed again."""
        self.commands.put(self._claimed)
        self._claimed = []

    def _prune(self, connection: Connection) -> bool:
        assert self._spec.retention is not None  # noqa: S101 - the task exists only with a retention
        deleted = prune(connection, self._spec.retention, self._clock, _PRUNE_ROWS)
        return sum(deleted.values()) >= _PRUNE_ROWS
