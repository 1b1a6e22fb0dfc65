"""The store in a process of its own: the same rows, restarts after a kill, and no waiting callers."""

import logging
import os
import pickle
import signal
import sqlite3
import time
from dataclasses import replace

import pytest

from flowdb import commands
from flowdb.engine import open_engine
from flowdb.flow import FlowState, Hop
from flowdb.models import CommandRow, FlowRow, HopRow, RunRow, SwitchRow
from flowdb.writing.flow_changes import FlowOpened, changes_of_flow, unpacked
from flowdb.writing.process_store import ProcessStore
from flowdb.writing.sent_changes import MOST_WRITERS
from tests.support.database.rows import new_flow, rows, wait_written
from tests.support.waiting import wait_until

PATH = (Hop(1, 1, 2), Hop(2, 1, 2))


@pytest.fixture
def db(url, open_db):
    return open_db(url, store=ProcessStore)


def writer_of(db):
    """The process id of the store's writer, after its first write."""
    db.merge(SwitchRow, dpid=1, connected=True, last_seen_ns=1)
    wait_written(db)
    return db._store._writer._process.pid


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_flow_is_written_from_opening_to_close(db, url):
    flow = new_flow(db, 1, PATH)
    db.flow_opened(flow)
    moved = replace(flow, path=PATH[:1], sent_bytes=1000, state=FlowState.IDLE)
    db.flow_changed(moved)
    db.flow_opened(new_flow(db, 2, PATH))
    pid = writer_of(db)
    db.flow_closed(moved, db.clock.now_ns(), "fin")
    db.close()
    first, second = rows(url, FlowRow)
    assert (first.state, first.sent_bytes, first.close_reason) == ("closed", 1000, "fin")
    assert (second.state, second.closed_ns) == ("active", None)
    assert [(hop.flow_id, hop.dpid) for hop in rows(url, HopRow)] == [
        (first.id, 1),
        (second.id, 1),
        (second.id, 2),
    ]
    (run,) = rows(url, RunRow)
    assert run.ended_ns is not None
    assert (db.counters.pending, db.counters.lost) == (0, 0)
    assert not is_there(pid)


def test_an_unpacked_flow_equals_the_packed_one(open_db, sqlite_url):
    flow = replace(new_flow(open_db(sqlite_url), 1, PATH), handshake_rtt_us=7, state=FlowState.IDLE)
    again = unpacked(FlowOpened(flow).packed())
    assert [part.values for part in again.single_rows()] == [
        part.values for part in FlowOpened(flow).single_rows()
    ]
    assert again._flow == flow


def test_close_writes_the_last_changes(db, url):
    for number in range(1, 20_001):
        db.flow_opened(new_flow(db, number))
    db.close()
    assert len(rows(url, FlowRow)) == 20_000
    assert db.counters.lost == 0


def test_commands_reach_the_controller(db, url):
    assert db.take_commands() == []
    with open_engine(url).begin() as connection:
        commands.request_command(connection, "release", {"flow": "1"}, "somebody")
    found = []
    found += wait_until(db.take_commands, "the commands are in the database")
    db.command_done(found[0], True, "done so")
    db.close()
    (row,) = rows(url, CommandRow)
    assert (row.succeeded, row.outcome) == (True, "done so")


def test_a_controller_that_takes_no_commands_claims_none(db, url):
    with open_engine(url).begin() as connection:
        commands.request_command(connection, "release", {"flow": "1"}, "somebody")
    db.flow_opened(new_flow(db))
    db.close()
    assert [row.taken_ns for row in rows(url, CommandRow)] == [None]


def test_the_controller_logs_the_writers_notices(sqlite_url, open_db, caplog):
    db = open_db(sqlite_url, store=ProcessStore)
    db.flow_opened(new_flow(db, 1))
    writer_of(db)
    with caplog.at_level(logging.WARNING):
        db.flow_opened(new_flow(db, 2**70))
        wait_until(lambda: db.counters.lost, "rows are lost")
        db.close()
    assert "dropped" in caplog.text
    assert [flow.src_port for flow in rows(sqlite_url, FlowRow)] == [1]


def test_a_killed_writer_is_restarted(db, url, caplog):
    db.flow_opened(new_flow(db, 1))
    pid = writer_of(db)
    with caplog.at_level(logging.WARNING):
        os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: db._store._writer is not None and db._store._writer._process.pid != pid,
            "a new writer process",
        )
        db.flow_opened(new_flow(db, 2))
        db.close()
    assert "the writer process ended" in caplog.text
    assert [flow.src_port for flow in rows(url, FlowRow)] == [1, 2]
    assert db.counters.failures == 1


def test_the_next_writer_gets_what_a_killed_one_had_not_written(sqlite_url, open_db, caplog):
    db = open_db(sqlite_url, store=ProcessStore)
    pid = writer_of(db)
    holder = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    for number in range(1, 11):
        db.flow_opened(new_flow(db, number))
    recorded_s = time.monotonic()
    wait_until(lambda: db._store._replied.pending, "ten rows wait", lambda count: count == 10)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: db.counters.failures, "a write has failed")
    waited_s = time.monotonic() - recorded_s
    assert db.counters.lag_s >= waited_s
    holder.execute("ROLLBACK")
    holder.close()
    db.flow_opened(new_flow(db, 11))
    db.close()
    assert (db.counters.lost, db.counters.pending) == (0, 0)
    assert [flow.src_port for flow in rows(sqlite_url, FlowRow)] == list(range(1, 12))
    assert "another one gets 10 changes, 0 are lost" in caplog.text


def test_changes_that_were_written_before_the_kill_are_written_once(db, url):
    """The writer ends after a commit of which the controller does not know yet."""
    flow = new_flow(db, 1, PATH)
    moved = replace(flow, path=PATH[:1], sent_bytes=1000)
    db.flow_opened(flow)
    db.flow_changed(moved)
    pid = writer_of(db)
    again = [FlowOpened(flow), *changes_of_flow(flow, moved)]
    db._store._waiting[:0] = [pickle.dumps(change.packed()) for change in again]
    os.kill(pid, signal.SIGKILL)
    db.flow_opened(new_flow(db, 2, PATH))
    db.close()
    first, second = rows(url, FlowRow)
    assert (first.src_port, first.sent_bytes, second.src_port) == (1, 1000, 2)
    assert [(hop.flow_id, hop.dpid) for hop in rows(url, HopRow)] == [
        (first.id, 1),
        (second.id, 1),
        (second.id, 2),
    ]
    assert db.counters.lost == 0


class Poison:
    """A change that the writer cannot read."""

    def packed(self):
        return "no such table", "insert", {}


def test_a_change_that_ends_each_writer_is_dropped(sqlite_url, open_db, caplog):
    db = open_db(sqlite_url, store=ProcessStore)
    writer_of(db)
    db._store.put([Poison()])
    wait_until(lambda: db.counters.lost, "the change is lost")
    db.flow_opened(new_flow(db, 1))
    db.close()
    assert (db.counters.lost, db.counters.failures) == (1, MOST_WRITERS)
    assert [flow.src_port for flow in rows(sqlite_url, FlowRow)] == [1]


def test_writers_that_cannot_open_their_store_lose_no_change(
    sqlite_url, open_db, caplog, monkeypatch, tmp_path
):
    monkeypatch.setattr("flowdb.writing.process_store._RESTART_S", 0.01)
    db = open_db(sqlite_url, store=ProcessStore)
    pid = writer_of(db)
    folder = (tmp_path / "weir").rename(tmp_path / "away")
    (tmp_path / "weir").write_text("a file in place of the folder")
    os.kill(pid, signal.SIGKILL)
    db.flow_opened(new_flow(db, 1))
    wait_until(lambda: db.counters.failures, "writers do not start", lambda count: count > 2 * MOST_WRITERS)
    (tmp_path / "weir").unlink()
    folder.rename(tmp_path / "weir")
    db.flow_opened(new_flow(db, 2))
    db.close()
    assert [flow.src_port for flow in rows(sqlite_url, FlowRow)] == [1, 2]
    assert (db.counters.lost, db.counters.pending) == (0, 0)
    assert f"cannot write the flow database {tmp_path}/weir/flow.db" in caplog.text


def test_a_writer_ignores_sigint_and_sigterm(db, url):
    pid = writer_of(db)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
    db.flow_opened(new_flow(db, 1))
    assert writer_of(db) == pid
    db.close()
    assert len(rows(url, FlowRow)) == 1


def test_a_stopped_writer_delays_no_caller(sqlite_url, open_db, caplog):
    db = open_db(sqlite_url, max_pending=1000, store=ProcessStore)
    pid = writer_of(db)
    os.kill(pid, signal.SIGSTOP)
    try:
        for number in range(1, 2001):
            db.flow_opened(new_flow(db, number))
        assert db.counters.pending <= 1001
        assert db.counters.lost >= 999
        assert db.counters.lag_s > 0
    finally:
        os.kill(pid, signal.SIGCONT)
    db.close()
    assert caplog.text.count("further ones are refused") == 1
    there = rows(sqlite_url, FlowRow)
    assert [flow.src_port for flow in there] == list(range(1, len(there) + 1))
    assert len(there) + db.counters.lost >= 2000
