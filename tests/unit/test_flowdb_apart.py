"""The store in a process of its own: the same rows, whatever is killed, and nobody waits for it."""

import logging
import os
import signal
import sqlite3
from dataclasses import replace

import pytest

from flowdb import commands
from flowdb.apart import StoreApart
from flowdb.engine import open_engine
from flowdb.flow import FlowState, Hop
from flowdb.flow_rows import FlowOpened, unpacked
from flowdb.models import CommandRow, FlowRow, HopRow, RunRow, SwitchRow
from tests.unit.database import new_flow, rows, wait_for

PATH = (Hop(1, 1, 2), Hop(2, 1, 2))


@pytest.fixture
def db(url, open_db):
    return open_db(url, store=StoreApart)


def writer_of(db):
    """The process id of its writer, once it has written."""
    db.merge(SwitchRow, dpid=1, connected=True, last_seen_ns=1)
    wait_for(lambda: db.counters.pending == 0)
    return db._store._writer._process.pid


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_flow_from_its_opening_to_its_end(db, url):
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


def test_a_flow_is_unpacked_as_it_was(open_db, sqlite_url):
    flow = replace(new_flow(open_db(sqlite_url), 1, PATH), handshake_rtt_us=7, state=FlowState.IDLE)
    again = unpacked(FlowOpened(flow).packed())
    assert [part.values for part in again.parts()] == [part.values for part in FlowOpened(flow).parts()]
    assert again._flow == flow


def test_an_orderly_end_loses_none_of_what_was_just_put(db, url):
    for number in range(1, 20_001):
        db.flow_opened(new_flow(db, number))
    db.close()
    assert len(rows(url, FlowRow)) == 20_000
    assert db.counters.lost == 0


def test_commands_reach_the_controller(db, url):
    assert db.take_commands() == []
    with open_engine(url).begin() as connection:
        commands.ask(connection, "release", {"flow": "1"}, "somebody")
    found = []
    wait_for(lambda: found.extend(db.take_commands()) or found)
    db.command_done(found[0], True, "done so")
    db.close()
    (row,) = rows(url, CommandRow)
    assert (row.succeeded, row.outcome) == (True, "done so")


def test_a_controller_that_obeys_none_leaves_them(db, url):
    with open_engine(url).begin() as connection:
        commands.ask(connection, "release", {"flow": "1"}, "somebody")
    db.flow_opened(new_flow(db))
    db.close()
    assert [row.taken_ns for row in rows(url, CommandRow)] == [None]


def test_what_the_writer_has_to_say_is_logged_here(sqlite_url, open_db, caplog):
    db = open_db(sqlite_url, store=StoreApart)
    db.flow_opened(new_flow(db, 1))
    writer_of(db)
    with caplog.at_level(logging.WARNING):
        db.flow_opened(new_flow(db, 2**70))
        wait_for(lambda: db.counters.lost)
        db.close()
    assert "dropped" in caplog.text
    assert [flow.src_port for flow in rows(sqlite_url, FlowRow)] == [1]


def test_a_writer_that_is_killed_is_started_anew(db, url, caplog):
    db.flow_opened(new_flow(db, 1))
    pid = writer_of(db)
    with caplog.at_level(logging.WARNING):
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: db._store._writer is not None and db._store._writer._process.pid != pid)
        db.flow_opened(new_flow(db, 2))
        db.close()
    assert "the writer's process ended" in caplog.text
    assert [flow.src_port for flow in rows(url, FlowRow)] == [1, 2]
    assert db.counters.failures == 1


def test_what_a_killed_writer_held_is_counted_as_lost(sqlite_url, open_db, caplog):
    db = open_db(sqlite_url, store=StoreApart)
    pid = writer_of(db)
    holder = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    for number in range(1, 11):
        db.flow_opened(new_flow(db, number))
    wait_for(lambda: db._store._answered.pending == 10)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: db.counters.failures)
    holder.execute("ROLLBACK")
    holder.close()
    db.flow_opened(new_flow(db, 11))
    db.close()
    assert db.counters.lost == 10
    assert [flow.src_port for flow in rows(sqlite_url, FlowRow)] == [11]
    assert "10 changes are lost" in caplog.text


def test_a_writer_outlives_the_signals_of_a_terminal_and_of_a_service_manager(db, url):
    pid = writer_of(db)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
    db.flow_opened(new_flow(db, 1))
    assert writer_of(db) == pid
    db.close()
    assert len(rows(url, FlowRow)) == 1


def test_a_writer_that_stands_still_holds_nobody_up(sqlite_url, open_db, caplog):
    db = open_db(sqlite_url, max_pending=1000, store=StoreApart)
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
