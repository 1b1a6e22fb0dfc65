"""FlowDb: the index in memory and the SQL behind it."""

from __future__ import annotations

import atexit
import itertools
from typing import Any

from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from flowdb import schema
from flowdb.changes import Change, make_change
from flowdb.clock import Clock
from flowdb.engine import open_engine, said_plainly
from flowdb.flow import Flow, FlowState
from flowdb.index import FlowIndex
from flowdb.models import Base, FlowRow, HopRow, RunRow
from flowdb.runs import RUN_SHIFT, Start, start_run
from flowdb.store import Store, StoreCounters


class FlowDb:
    """The global flow database of one controller process.

    Reads on the hot path go to ``index``. Writes (``insert``, ``update``, ``merge``, ``delete``) return at
    once and reach SQL in the background; ``close`` writes what is left. Flows that a predecessor left open,
    alive at most ``adopt_within_s`` ago, are in the index from the start. All times come from ``clock``.

    An empty SQLite database gets its tables here. Raises FlowDbError when the database cannot be used.
    """

    def __init__(self, url: str, adopt_within_s: float = 60.0, max_pending: int = 100_000) -> None:
        self.index = FlowIndex()
        self.clock = Clock()
        engine = open_engine(url)
        start = self._start(engine, url, adopt_within_s)
        self._run_id = start.run_id
        for flow in start.adopted:
            self.index.add(flow)
        self._counter = itertools.count(1)
        self._store = Store(engine, self._heartbeat, max_pending)
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

    def flow_opened(self, flow: Flow) -> None:
        """Put a flow into the index and the database."""
        self.index.add(flow)
        values = {
            "id": flow.id,
            "src": flow.key.src,
            "dst": flow.key.dst,
            "src_port": flow.key.src_port,
            "dst_port": flow.key.dst_port,
            "opened_ns": flow.opened_ns,
            "mss_bytes": flow.mss_bytes,
        }
        hops = [make_change(HopRow, "insert", values) for values in _hops(flow)]
        self._store.put([make_change(FlowRow, "insert", values | _told(flow)), *hops])

    def flow_changed(self, flow: Flow) -> None:
        """Put a live flow's new values (what was told of it, its path) in place of the old.

        A flow that is not in the index is left alone: it was closed in the meantime.
        """
        before = self.index.get(flow.id)
        if before is None or not self.index.change(flow):
            return
        changes = [make_change(FlowRow, "update", {"id": flow.id} | _told(flow))]
        if flow.path != before.path:
            changes += _rerouted(before, flow)
        self._store.put(changes)

    def flow_closed(self, flow: Flow, closed_ns: int, reason: str) -> None:
        """Take a flow out of the index and mark its row."""
        self.index.remove(flow.id)
        self.update(FlowRow, id=flow.id, closed_ns=closed_ns, close_reason=reason, state=FlowState.CLOSED)

    def close(self) -> None:
        """Write what waits and stop; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        now_ns = self.clock.now_ns()
        self.update(RunRow, id=self._run_id, last_seen_ns=now_ns, ended_ns=now_ns)
        self._store.close()

    def _heartbeat(self) -> Change:
        return make_change(RunRow, "update", {"id": self._run_id, "last_seen_ns": self.clock.now_ns()})

    def _start(self, engine: Engine, url: str, adopt_within_s: float) -> Start:
        with said_plainly(url):
            schema.prepare(engine, url)
            with engine.begin() as connection, Session(connection) as session, session.begin():
                return start_run(session, self.clock, adopt_within_s)


def _told(flow: Flow) -> dict[str, Any]:
    """The columns that may change while a flow lives."""
    return {
        "receiver_wscale": flow.receiver_wscale,
        "sender_wscale": flow.sender_wscale,
        "handshake_rtt_us": flow.handshake_rtt_us,
        "sent_bytes": flow.sent_bytes,
        "rate_bps": flow.rate_bps,
        "last_active_ns": flow.last_active_ns,
        "state": flow.state,
    }


def _hops(flow: Flow) -> list[dict[str, Any]]:
    return [
        {
            "flow_id": flow.id,
            "position": position,
            "dpid": hop.dpid,
            "in_port": hop.in_port,
            "out_port": hop.out_port,
        }
        for position, hop in enumerate(flow.path)
    ]


def _rerouted(before: Flow, flow: Flow) -> list[Change]:
    beyond = range(len(flow.path), len(before.path))
    return [
        *(make_change(HopRow, "merge", values) for values in _hops(flow)),
        *(make_change(HopRow, "delete", {"flow_id": flow.id, "position": place}) for place in beyond),
    ]
