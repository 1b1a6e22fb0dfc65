"""FlowDb: the index in memory and the SQL behind it."""

from __future__ import annotations

import atexit
import itertools
from collections.abc import Callable
from typing import Any

from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from flowdb import schema
from flowdb.apart import StoreApart
from flowdb.changes import make_change
from flowdb.clock import Clock
from flowdb.commands import Command
from flowdb.engine import open_engine, said_plainly
from flowdb.flow import Flow, FlowState
from flowdb.flow_rows import FlowOpened, changed
from flowdb.index import FlowIndex
from flowdb.models import Base, CommandRow, FlowRow, RunRow, SettingRow
from flowdb.retention import Retention
from flowdb.run_store import RunSpec, RunStore
from flowdb.runs import RUN_SHIFT, Start, start_run
from flowdb.store import StoreCounters
from openflow_ext.settings import Section


class FlowDb:
    """The global flow database of one controller process.

    Reads on the hot path go to ``index``. Writes (``insert``, ``update``, ``merge``, ``delete``) return at
    once and reach SQL in the background; ``close`` writes what is left. Flows that a predecessor left open,
    alive at most ``adopt_within_s`` ago, are in the index from the start. All times come from ``clock``.
    ``retention``: what is older is deleted by and by; None: nothing is. ``store``: who writes, a thread of
    this process or, for those who answer alarms, a process of its own.

    An empty SQLite database gets its tables here. Raises FlowDbError when the database cannot be used.
    """

    def __init__(
        self,
        url: str,
        adopt_within_s: float = 60.0,
        max_pending: int = 250_000,
        retention: Retention | None = None,
        store: Callable[[RunSpec], RunStore | StoreApart] = RunStore,
    ) -> None:
        self.index = FlowIndex()
        self.clock = Clock()
        engine = open_engine(url)
        start = self._start(engine, url, adopt_within_s)
        self._run_id = start.run_id
        for flow in start.adopted:
            self.index.add(flow)
        self._counter = itertools.count(1)
        self._store = store(RunSpec(url, start.run_id, self.clock.boot_ns, retention, max_pending))
        self._closed = False
        atexit.register(self.close)

    @property
    def counters(self) -> StoreCounters:
        return self._store.counters

    def next_id(self) -> int:
        """A row id that no other row of the same table has or will have."""
        return self._run_id << RUN_SHIFT | next(self._counter)

    def insert(self, row: type[Base], **values: Any) -> int:
        """Have a row inserted; returns the id that it gets."""
        row_id = self.next_id()
        self._store.put([make_change(row, "insert", {"id": row_id} | values)])
        return row_id

    def update(self, row: type[Base], **values: Any) -> None:
        """Have columns of the row with the key given set. A row that is not there stays so."""
        self._store.put([make_change(row, "update", values)])

    def merge(self, row: type[Base], **values: Any) -> None:
        """Have a row inserted, or the columns given set where its key is there already.

        Every column that may not be NULL must be given, as for ``insert``.
        """
        self._store.put([make_change(row, "merge", values)])

    def delete(self, row: type[Base], **key: Any) -> None:
        """Have a row deleted. A row that is not there stays so."""
        self._store.put([make_change(row, "delete", key)])

    def note_settings(self, section: str, settings: Section) -> None:
        """Note what a section of the configuration says in this run, for those who look from outside."""
        chosen = settings.model_dump(mode="json")
        self.merge(SettingRow, run_id=self._run_id, section=section, chosen=chosen)

    def flow_opened(self, flow: Flow) -> None:
        """Put a flow into the index and the database."""
        self.index.add(flow)
        self._store.put([FlowOpened(flow)])

    def flow_changed(self, flow: Flow) -> None:
        """Put a live flow's new values (what was told of it, its path) in place of the old.

        A flow that is not in the index is left alone: it was closed in the meantime.
        """
        before = self.index.get(flow.id)
        if before is not None and self.index.change(flow):
            self._store.put(changed(before, flow))

    def flow_closed(self, flow: Flow, closed_ns: int, reason: str) -> None:
        """Take a flow out of the index and mark its row."""
        self.index.remove(flow.id)
        self.update(
            FlowRow, id=flow.id, closed_ns=closed_ns, close_reason=reason, state=FlowState.CLOSED.value
        )

    def take_commands(self) -> list[Command]:
        """The commands that came in since the last call; never waits.

        Before the first call none is taken from the database: a controller that obeys none leaves them.
        """
        return self._store.take_commands()

    def command_done(self, command: Command, succeeded: bool, outcome: str) -> None:
        """Have it noted what came of a command."""
        now_ns = self.clock.now_ns()
        self.update(CommandRow, id=command.id, done_ns=now_ns, succeeded=succeeded, outcome=outcome)

    def close(self) -> None:
        """Write what waits and stop; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        now_ns = self.clock.now_ns()
        self.update(RunRow, id=self._run_id, last_seen_ns=now_ns, ended_ns=now_ns)
        self._store.close()

    def _start(self, engine: Engine, url: str, adopt_within_s: float) -> Start:
        with said_plainly(url):
            schema.prepare(engine, url)
            with engine.begin() as connection, Session(connection) as session, session.begin():
                return start_run(session, self.clock, adopt_within_s)
