"""FlowDb: the index in memory and the SQL behind it."""

from __future__ import annotations

import atexit
import itertools
import logging
import os
from collections.abc import Callable, Collection
from typing import Any

from sqlalchemy.engine import Engine
from sqlalchemy.orm import sessionmaker

from flowdb import schema
from flowdb.clock import Clock
from flowdb.commands import KINDS, Command
from flowdb.engine import DatabaseDown, open_engine, reporting_errors
from flowdb.flow import Flow, FlowState
from flowdb.index import FlowIndex
from flowdb.models import Base, CommandRow, FlowRow, RunRow, SettingRow
from flowdb.retention import Retention
from flowdb.runs import RUN_SHIFT, Start, own_run_id, start_run
from flowdb.writing.changes import make_change
from flowdb.writing.flow_changes import FlowOpened, changes_of_flow
from flowdb.writing.process_store import ProcessStore
from flowdb.writing.run_store import RunSpec, RunStore, Unrecorded
from flowdb.writing.statements import Verb
from flowdb.writing.store import StoreCounters
from weir_base.settings import Section

LOG = logging.getLogger(__name__)


class FlowDb:
    """The global flow database of one controller process.

    The hot path reads ``index``. The writes ``insert``, ``update``, ``merge`` and ``delete`` return at once
    and reach SQL in the background; ``close`` writes the rest. If an earlier controller was alive at most
    ``adopt_within_s`` ago, its open flows are in the index from the start. All times come from ``clock``.
    Rows older than ``retention`` are deleted in the background; None keeps all. ``store`` is the writer: a
    thread of this process (RunStore) or, in a controller that answers alarms, a process (ProcessStore).

    Creates the tables of an empty SQLite database. Raises FlowDbError if the database cannot be used. With
    ``waits`` the run also starts while the database is down, then without earlier flows. The store writes its
    changes as soon as the database answers.
    """

    def __init__(
        self,
        url: str,
        adopt_within_s: float = 60.0,
        max_pending: int = 250_000,
        retention: Retention | None = None,
        store: Callable[[RunSpec], RunStore | ProcessStore] = RunStore,
        waits: bool = False,
    ) -> None:
        self.index = FlowIndex()
        self.clock = Clock()
        engine, unrecorded = open_engine(url), None
        try:
            start = self._start(engine, url, adopt_within_s)
        except DatabaseDown as error:
            if not waits:
                raise
            LOG.error("%s; the controller starts without it", error)
            start = Start(own_run_id(), ())
            unrecorded = Unrecorded(os.getpid(), self.clock.now_ns())
        self._run_id = start.run_id
        for flow in start.adopted:
            self.index.add(flow)
        self._counter = itertools.count(1)
        self._store = store(
            RunSpec(url, start.run_id, self.clock.boot_ns, retention, max_pending, unrecorded)
        )
        self._closed = False
        atexit.register(self.close)

    @property
    def counters(self) -> StoreCounters:
        return self._store.counters

    def next_id(self) -> int:
        """A row id that no other row of the same table has or will get."""
        return self._run_id << RUN_SHIFT | next(self._counter)

    def insert(self, row: type[Base], **values: Any) -> int:
        """Insert a row in the background; returns its id."""
        row_id = self.next_id()
        self._put(row, "insert", {"id": row_id} | values)
        return row_id

    def update(self, row: type[Base], **values: Any) -> None:
        """Set columns of the row with the given key. An unknown key is ignored."""
        self._put(row, "update", values)

    def merge(self, row: type[Base], **values: Any) -> None:
        """Insert a row, or set the given columns if a row with its key exists.

        Every column that may not be NULL must be given, as for ``insert``.
        """
        self._put(row, "merge", values)

    def delete(self, row: type[Base], **key: Any) -> None:
        """Delete a row. An unknown key is ignored."""
        self._put(row, "delete", key)

    def note_settings(self, section: str, settings: Section) -> None:
        """Record a section of this run's configuration, for the dashboard."""
        chosen = settings.model_dump(mode="json")
        self.merge(SettingRow, run_id=self._run_id, section=section, chosen=chosen)

    def flow_opened(self, flow: Flow, dpid: int | None = None) -> None:
        """Add a flow to the index and the database. ``dpid``: the switch that reported it."""
        self.index.add(flow)
        self._store.put([FlowOpened(flow, dpid)])

    def flow_changed(self, flow: Flow, dpid: int | None = None) -> None:
        """Replace the values and the path of a live flow. ``dpid``: the switch that reported them.

        If the flow is not in the index, nothing happens: it was closed in the meantime.
        """
        before = self.index.get(flow.id)
        if before is not None and self.index.change(flow):
            self._store.put(changes_of_flow(before, flow, dpid))

    def flow_closed(self, flow: Flow, closed_ns: int, reason: str, dpid: int | None = None) -> None:
        """Remove a flow from the index and mark its row as closed. ``dpid``: the switch that reported it."""
        self.index.remove(flow.id)
        end = {"closed_ns": closed_ns, "close_reason": reason, "state": FlowState.CLOSED.value}
        self._put(FlowRow, "update", {"id": flow.id, **end}, dpid)

    def take_commands(self, kinds: Collection[str] = KINDS) -> list[Command]:
        """The commands of some kinds that arrived since the last call; never waits.

        Before the first call with a kind no command of it is claimed: a controller leaves others the kinds
        that it does not take.
        """
        return self._store.commands.take(kinds)

    def command_done(self, command: Command, succeeded: bool, outcome: str) -> None:
        """Record the outcome of a command."""
        now_ns = self.clock.now_ns()
        self.update(CommandRow, id=command.id, done_ns=now_ns, succeeded=succeeded, outcome=outcome)

    def close(self) -> None:
        """Write the waiting changes, then stop. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        now_ns = self.clock.now_ns()
        self.update(RunRow, id=self._run_id, last_seen_ns=now_ns, ended_ns=now_ns)
        self._store.close()

    def _put(self, row: type[Base], verb: Verb, values: dict[str, Any], dpid: int | None = None) -> None:
        """A row waits in the places of the switch that it states, or else in the places of ``dpid``."""
        self._store.put([make_change(row, verb, values, values.get("dpid", dpid))])

    def _start(self, engine: Engine, url: str, adopt_within_s: float) -> Start:
        with reporting_errors(url):
            schema.prepare(engine, url)
            with sessionmaker(engine).begin() as session:
                return start_run(session, self.clock, adopt_within_s)
