"""A database that is locked, full, read-only, deleted or not a database; killed controllers."""

import logging
import os
import signal
import sqlite3
import subprocess
import sys

import pytest
from sqlalchemy import event, text
from sqlalchemy.engine import Engine

from flowdb import commands
from flowdb import engine as engine_module
from flowdb.db import FlowDb
from flowdb.engine import DatabaseUnavailable, SchemaMismatch, open_engine
from flowdb.models import FlowRow, HopRow, HostRow, SwitchRow
from flowdb.writing import run_store
from flowdb.writing import store as store_module
from tests.support.database.postgres import Postgres
from tests.support.database.rows import new_flow, rows, wait_written
from tests.support.waiting import DEADLINE_S, wait_until
from weir_base.paths import PROJECT


def lock(sqlite_url):
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    return connection


def test_a_lock_is_retried_and_logged_once(sqlite_url, open_db, caplog, monkeypatch):
    monkeypatch.setattr("flowdb.engine._LOCKED_S", 0.05)
    db = open_db(sqlite_url, max_pending=1000)
    with caplog.at_level(logging.WARNING):
        holder = lock(sqlite_url)
        flows = [new_flow(db, number) for number in range(1, 1501)]
        db.flow_opened(flows[0])
        wait_until(lambda: db.counters.failures, "two writes have failed", lambda count: count >= 2)
        for flow in flows[1:]:
            db.flow_opened(flow)
        counters = db.counters
        assert counters.pending <= 1000
        assert counters.lost > 0
        holder.execute("ROLLBACK")
        holder.close()
        wait_written(db)
        db.close()
    assert len(rows(sqlite_url, FlowRow)) == 1000
    assert caplog.text.count("cannot be written, trying again") == 1
    assert caplog.text.count("further ones are refused") == 1
    assert "can be written again" in caplog.text


def test_one_switch_cannot_fill_the_places_of_changes_that_wait(sqlite_url, open_db, caplog, monkeypatch):
    monkeypatch.setattr("flowdb.engine._LOCKED_S", 0.05)
    db = open_db(sqlite_url, max_pending=100)
    with caplog.at_level(logging.WARNING):
        holder = lock(sqlite_url)
        for number in range(1, 501):
            db.flow_opened(new_flow(db, number), dpid=0xBAD)
        for number in range(600, 616):
            db.flow_opened(new_flow(db, number), dpid=0x2)
        for number in range(8):
            place = {"dpid": 0xBAD, "port_no": number, "ipv4": None, "ipv6": None, "last_seen_ns": 1}
            db.merge(HostRow, mac=f"02:00:00:00:00:{number:02x}", **place)
        db.flow_opened(new_flow(db, 700))
        assert (db.counters.pending, db.counters.lost) == (97, 428)
        holder.execute("ROLLBACK")
        holder.close()
        wait_written(db)
        db.close()
    opened = {row.src_port for row in rows(sqlite_url, FlowRow)}
    assert set(range(600, 616)) | {700} <= opened
    assert len(opened) == 97
    assert not rows(sqlite_url, HostRow)
    assert caplog.text.count("too many changes by switch 0000000000000bad wait") == 1


def test_close_gives_up_on_a_lock_and_logs_the_loss(sqlite_url, open_db, caplog, monkeypatch):
    monkeypatch.setattr("flowdb.engine._LOCKED_S", 0.05)
    db = open_db(sqlite_url)
    holder = lock(sqlite_url)
    db.flow_opened(new_flow(db))
    close = store_module.Store.close
    monkeypatch.setattr(store_module.Store, "close", lambda self: close(self, timeout_s=0.5))
    db.close()
    assert "2 changes could not be written and are lost" in caplog.text
    holder.execute("ROLLBACK")
    holder.close()
    db._store._thread.join(10)


def test_a_lock_at_the_start_is_an_error(sqlite_url, open_db, monkeypatch):
    monkeypatch.setattr("flowdb.engine._LOCKED_S", 0.05)
    open_db(sqlite_url).close()
    holder = lock(sqlite_url)
    with pytest.raises(DatabaseUnavailable, match=r"database is locked; try again when .*WEIR_DB"):
        FlowDb(sqlite_url)
    holder.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "is not a usable database"),
        ("oracle9://x/y", "is not a usable database"),
        ("sqlite://", "cannot be shared"),
        ("sqlite:////proc/weir.db", "cannot write the flow database /proc/weir.db.*WEIR_DB"),
        ("sqlite:////etc/hostname", "cannot open the flow database.*not a database"),
    ],
)
def test_an_unusable_url_is_refused(url, message):
    with pytest.raises(DatabaseUnavailable, match=message):
        FlowDb(url)


def test_tables_without_a_version_are_refused(sqlite_url, tmp_path):
    os.mkdir(tmp_path / "weir")
    with sqlite3.connect(tmp_path / "weir" / "flow.db") as connection:
        connection.execute("CREATE TABLE switches (dpid TEXT PRIMARY KEY)")
    connection.close()
    with pytest.raises(SchemaMismatch, match=r"has none of Weir's tables.*weir db init"):
        FlowDb(sqlite_url)


def test_the_file_is_not_world_readable(sqlite_url, tmp_path, open_db):
    open_db(sqlite_url)
    assert (tmp_path / "weir" / "flow.db").stat().st_mode & 0o007 == 0


@pytest.mark.parametrize(
    ("pragma", "message"),
    [
        ("max_page_count=1", "database or disk is full"),
        ("query_only=ON", "attempt to write a readonly database"),
    ],
)
def test_a_full_or_read_only_database_is_retried(sqlite_url, open_db, monkeypatch, caplog, pragma, message):
    db = open_db(sqlite_url)
    db.flow_opened(new_flow(db, 1))
    wait_written(db)
    written = len(rows(sqlite_url, FlowRow))
    right = engine_module._PRAGMAS
    monkeypatch.setattr(engine_module, "_PRAGMAS", (*right, pragma))
    connection, db._store._connection = db._store._connection, None  # the next connection has the new setting
    with caplog.at_level(logging.WARNING):
        for number in range(2, 500):
            db.flow_opened(new_flow(db, number))
        wait_until(lambda: db.counters.failures, "two writes have failed", lambda count: count >= 2)
        assert len(rows(sqlite_url, FlowRow)) == written
        assert db.counters.lag_s > 0
        monkeypatch.setattr(engine_module, "_PRAGMAS", right)
        db.close()
    connection.close()
    assert len(rows(sqlite_url, FlowRow)) == 499
    assert (db.counters.lost, db.counters.pending, db.counters.lag_s) == (0, 0, 0)
    assert message in caplog.text
    assert "can be written again" in caplog.text


def test_a_deleted_file_is_reported_and_retried(sqlite_url, open_db, caplog, tmp_path):
    db = open_db(sqlite_url)
    db.flow_opened(new_flow(db, 1))
    wait_written(db)
    folder = (tmp_path / "weir").rename(tmp_path / "away")
    with caplog.at_level(logging.WARNING):
        db.flow_opened(new_flow(db, 2))
        wait_until(lambda: db.counters.failures, "two writes have failed", lambda count: count >= 2)
        assert not (tmp_path / "weir").exists()
        folder.rename(tmp_path / "weir")
        wait_written(db)
        db.close()
    assert [flow.src_port for flow in rows(sqlite_url, FlowRow)] == [1, 2]
    assert "flow.db was deleted or replaced; put it back" in caplog.text
    assert "can be written again" in caplog.text


@pytest.mark.postgres
def test_a_restarted_postgresql_loses_no_rows(open_db, caplog):
    with Postgres() as cluster, caplog.at_level(logging.WARNING):
        with pytest.raises(SchemaMismatch, match=r"none of Weir's tables.*`weir db init`"):
            FlowDb(cluster.url)
        make_tables(cluster.url)
        db = open_db(cluster.url)
        db.flow_opened(new_flow(db, 1))
        wait_written(db)
        cluster.stop()
        for number in range(2, 500):
            db.flow_opened(new_flow(db, number))
        wait_until(lambda: db.counters.failures, "two writes have failed", lambda count: count >= 2)
        with pytest.raises(DatabaseUnavailable, match=r"cannot open the flow database.*start the server"):
            FlowDb(cluster.url)
        cluster.start()
        wait_written(db)
        db.close()
        assert [flow.src_port for flow in rows(cluster.url, FlowRow)] == list(range(1, 500))
        assert db.counters.lost == 0
    assert caplog.text.count("cannot be written, trying again") == 1
    assert "can be written again" in caplog.text


def make_tables(url):
    from flowdb import schema

    schema.upgrade(open_engine(url), url)


def test_one_bad_row_costs_few_statements(url, open_db):
    db = open_db(url)
    statements = []

    def note(_connection, _cursor, statement, *_args):
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        with db._store._lock:  # so that all flows are in one batch
            flows = [new_flow(db, number) for number in range(1, 2001)]
        flows[1234] = new_flow(db, 2**70)
        for flow in flows:
            db.flow_opened(flow)
        db.close()
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert (len(rows(url, FlowRow)), len(rows(url, HopRow))) == (1999, 1999)
    assert db.counters.lost == 1
    assert len(statements) < 200


def test_a_batch_whose_commit_failed_is_written_once(url, open_db, monkeypatch):
    db = open_db(url)
    write, faults = store_module._write_acceptable, [OSError("no answer")]

    def write_unanswered(connection, changes):
        dropped = write(connection, changes)
        if faults:
            raise faults.pop()
        return dropped

    monkeypatch.setattr(store_module, "_write_acceptable", write_unanswered)
    for number in range(1, 50):
        db.flow_opened(new_flow(db, number))
    db.close()
    assert (db.counters.failures, db.counters.lost) == (1, 0)
    assert [flow.src_port for flow in rows(url, FlowRow)] == list(range(1, 50))


def test_a_missing_table_drops_no_rows(url, open_db, caplog):
    """While a table is missing, nothing is dropped; everything is written when the table is back."""
    db = open_db(url)
    with open_engine(url).begin() as connection:
        connection.execute(text("ALTER TABLE switches RENAME TO elsewhere"))
    db.merge(SwitchRow, dpid=1, connected=True, last_seen_ns=1)
    wait_until(lambda: db.counters.failures, "a write has failed")
    assert db.counters.lost == 0
    with open_engine(url).begin() as connection:
        connection.execute(text("ALTER TABLE elsewhere RENAME TO switches"))
    db.close()
    assert [row.dpid for row in rows(url, SwitchRow)] == [1]


def test_a_command_whose_claim_was_not_committed_is_carried_out_once(url, open_db, monkeypatch):
    faults = [OSError("the disk is full")]
    claimed, taken = [], []

    def claim_and_note(*args):
        claimed.append(commands.claim_commands(*args))
        return claimed[-1]

    def fail_once(_connection):
        if claimed and claimed[-1] and faults:
            raise faults.pop()

    monkeypatch.setattr(run_store, "claim_commands", claim_and_note)
    with open_engine(url).begin() as connection:
        asked = commands.request_command(connection, "release", {"flow": 7}, "ann")
    event.listen(Engine, "commit", fail_once)
    try:
        db = open_db(url)
        wait_until(
            lambda: taken.extend(db.take_commands()) or (not faults and taken), "the command is claimed again"
        )
        db.close()
        taken += db.take_commands()
    finally:
        event.remove(Engine, "commit", fail_once)
    assert [command.id for command in taken] == [asked]
    assert [[command.id for command in some] for some in claimed if some] == [[asked], [asked]]


WRITER = """
import sys, time
from flowdb.writing.process_store import ProcessStore
from flowdb.writing.run_store import RunStore
from flowdb.db import FlowDb
from tests.support.database.rows import new_flow
stores = {"thread": RunStore, "process": ProcessStore}
db = FlowDb(sys.argv[1], store=stores[sys.argv[2]])
number = 0
while True:
    number += 1
    db.flow_opened(new_flow(db, number))
    if number % 100 == 0:
        at_s, lag_s = time.monotonic(), db.counters.lag_s
        print(number, at_s, at_s - lag_s, flush=True)
        time.sleep(0.01)
"""


@pytest.mark.parametrize("store", ["thread", "process"])
def test_kill_9_loses_at_most_the_reported_lag(url, tmp_path, store):
    """All flows that were recorded before the oldest unwritten change of the last report are there."""
    log = tmp_path / "log"
    with log.open("wb") as out:
        command = [sys.executable, "-c", WRITER, url, store]
        writer = subprocess.Popen(command, cwd=PROJECT, stdout=out, stderr=subprocess.PIPE)
    try:
        wait_until(
            lambda: log.read_bytes().count(b"\n"), "20,000 flows are recorded", lambda lines: lines > 200
        )
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.communicate(timeout=DEADLINE_S)  # the writer process holds this pipe too
    reported = [line.split() for line in log.read_text().splitlines()[:-1]]
    written_until_s = max(float(oldest_s) for _, _, oldest_s in reported)
    due = max(int(number) for number, at_s, _ in reported if float(at_s) < written_until_s)
    there = [flow.src_port for flow in rows(url, FlowRow)]
    assert there == list(range(1, len(there) + 1))
    assert len(there) >= due > 1000
    assert len(rows(url, HopRow)) == len(there)
    successor = FlowDb(url)
    assert len(successor.index) == len(there)
    successor.close()
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
