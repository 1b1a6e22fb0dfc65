"""A controller starts while its database is down, and writes everything when the database answers."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import time
from collections.abc import Callable

import pytest

from flowdb.db import FlowDb
from flowdb.engine import DatabaseDown, DatabaseUnavailable
from flowdb.models import FlowRow, RunRow, SettingRow
from flowdb.runs import RUN_SHIFT
from flowdb.writing.process_store import ProcessStore
from flowdb.writing.run_store import RunStore
from tests.support.database.rows import new_flow, rows, wait_written
from tests.support.waiting import wait_until
from weir_base.settings import Section

STORES = pytest.mark.parametrize("store", [RunStore, ProcessStore])


class Locked:
    """An SQLite database that another program has locked."""

    def __init__(self, url: str) -> None:
        self._holder = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        self._holder.execute("BEGIN EXCLUSIVE")

    def end(self) -> None:
        self._holder.execute("ROLLBACK")
        self._holder.close()


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowdb.engine._LOCKED_S", 0.05)


@STORES
def test_a_run_that_started_without_its_database_is_recorded_later(
    sqlite_url: str,
    open_db: Callable[..., FlowDb],
    caplog: pytest.LogCaptureFixture,
    store: type[RunStore | ProcessStore],
) -> None:
    earlier = open_db(sqlite_url)
    earlier.flow_opened(new_flow(earlier, 1))
    earlier.close()
    locked, before_ns = Locked(sqlite_url), time.time_ns()
    with pytest.raises(DatabaseDown):
        FlowDb(sqlite_url)
    db = open_db(sqlite_url, store=store, waits=True)
    assert "database is locked" in caplog.text
    assert "the controller starts without it" in caplog.text
    assert list(db.index.flows()) == []
    db.note_settings("any", Section())
    for number in range(2, 100):
        db.flow_opened(new_flow(db, number))
    assert db.counters.pending >= 98
    locked.end()
    wait_written(db)
    db.close()
    first, run = rows(sqlite_url, RunRow)
    assert (run.id > first.id, run.pid) == (True, os.getpid())
    assert abs(run.started_ns - before_ns) < 60 * 10**9
    assert run.ended_ns is not None
    assert [row.run_id for row in rows(sqlite_url, SettingRow)] == [run.id]
    old, *new = rows(sqlite_url, FlowRow)
    assert (old.close_reason, old.closed_ns) == ("lost", run.started_ns)
    assert [(row.src_port, row.id >> RUN_SHIFT) for row in new] == [(n, run.id) for n in range(2, 100)]
    assert [row.close_reason for row in new] == [None] * 98
    assert all(row.id < 2**53 for row in new), "JSON numbers hold the ids exactly"
    assert db.counters.lost == 0
    later = open_db(sqlite_url)
    assert len(list(later.index.flows())) == 98, "the next run adopts its flows"


def test_a_writer_that_is_killed_does_not_end_the_run_s_own_flows(
    sqlite_url: str, open_db: Callable[..., FlowDb], caplog: pytest.LogCaptureFixture
) -> None:
    open_db(sqlite_url).close()
    locked = Locked(sqlite_url)
    db = open_db(sqlite_url, store=ProcessStore, waits=True)
    locked.end()
    db.flow_opened(new_flow(db, 1))
    wait_written(db)
    with caplog.at_level(logging.ERROR):
        os.kill(db._store._writer._process.pid, signal.SIGKILL)
        wait_until(lambda: db.counters.failures, "the writer's end is noticed")
        db.flow_opened(new_flow(db, 2))
        wait_written(db)
    db.close()
    assert [(row.src_port, row.closed_ns) for row in rows(sqlite_url, FlowRow)] == [(1, None), (2, None)]
    assert len(rows(sqlite_url, RunRow)) == 2


def test_what_waiting_cannot_mend_stops_the_start() -> None:
    for url in ("nonsense", "sqlite:////proc/weir.db", "sqlite:////etc/hostname"):
        with pytest.raises(DatabaseUnavailable) as raised:
            FlowDb(url, waits=True)
        assert not isinstance(raised.value, DatabaseDown)
