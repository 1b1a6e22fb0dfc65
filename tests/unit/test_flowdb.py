"""FlowDb: what reaches SQL, what a restart takes over, and a database that cannot be written."""

import logging
import os
import sqlite3
import time

import pytest
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from flowdb import store as store_module
from flowdb.config import FlowDbSettings, database_url
from flowdb.db import DatabaseUnavailable, FlowDb, SchemaMismatch
from flowdb.flow import FiveTuple, Flow, PortKey
from flowdb.models import AlarmRow, ClampRow, DecisionRow, FlowRow, HopRow, HostRow, RunRow, SwitchRow

BIG_DPID = 0xFFFF_0000_0000_0001


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/weir/flow.db"


@pytest.fixture
def open_db():
    opened = []

    def open_one(*args, **kwargs):
        opened.append(FlowDb(*args, **kwargs))
        return opened[-1]

    yield open_one
    for db in opened:
        db.close()


def rows(url, model):
    engine = create_engine(url, poolclass=NullPool)
    with Session(engine) as session:
        return list(session.scalars(select(model).order_by(*model.__table__.primary_key)))


def make_flow(db, src_port=1000, dpid=BIG_DPID):
    key = FiveTuple("10.0.0.1", "10.0.0.2", src_port, 80)
    return Flow(db.next_id(), key, dpid, 1, 2, time.time_ns(), 1448, 9)


def wait_for(condition, timeout_s=10):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)


def test_close_writes_everything(url, open_db):
    db = open_db(url)
    flows = [make_flow(db, 1000 + number) for number in range(500)]
    for flow in flows:
        db.flow_opened(flow)
    db.flow_closed(flows[0], 77, "fin")
    db.close()
    written = rows(url, FlowRow)
    assert [row.id for row in written] == [flow.id for flow in flows]
    assert (written[0].closed_ns, written[0].close_reason) == (77, "fin")
    assert written[1].closed_ns is None
    assert [(hop.dpid, hop.in_port, hop.out_port) for hop in rows(url, HopRow)] == [(BIG_DPID, 1, 2)] * 500
    assert rows(url, RunRow)[0].ended_ns is not None


def test_rows_arrive_without_close_and_parents_first(url, open_db):
    db = open_db(url)
    flow = make_flow(db)
    db.flow_opened(flow)
    alarm = db.insert(
        AlarmRow, dpid=flow.dpid, port_no=2, kind="alarm", queue_pkts=30, queue_bytes=45000,
        port_rate_bps=10**8, n_i=1, crossing_ns=1, received_ns=2, repeats=0,
    )  # fmt: skip
    decision = db.insert(
        DecisionRow, alarm_id=alarm, flow_id=flow.id, decided_ns=3, policy="longest-lived", candidates=1,
        equation=3, capacity_bps=10**8, rtt_us=1000, queue_bytes=45000, n=1, wc_bytes=57500, wr_bytes=None,
        mss_bytes=1448, alpha=5, window_bytes=28750,
    )  # fmt: skip
    clamp = db.insert(
        ClampRow, decision_id=decision, flow_id=flow.id, dpid=flow.dpid, port_no=2, window_bytes=28750,
        pushed_ns=4,
    )  # fmt: skip
    wait_for(lambda: db.counters.pending == 0)
    assert [row.id for row in rows(url, ClampRow)] == [clamp]
    db.update(ClampRow, clamp, lifted_ns=5, lift_reason="normal")
    db.close()
    assert [(row.lifted_ns, row.lift_reason) for row in rows(url, ClampRow)] == [(5, "normal")]
    assert db.counters.lost == 0


def test_merge_keeps_the_columns_not_given(url, open_db):
    db = open_db(url)
    db.merge(HostRow, mac="aa:aa:aa:aa:aa:aa", ipv4="10.0.0.1", dpid=1, port_no=1, last_seen_ns=1)
    wait_for(lambda: db.counters.pending == 0)
    db.merge(HostRow, mac="aa:aa:aa:aa:aa:aa", ipv6="fe80::1", dpid=1, port_no=2, last_seen_ns=2)
    db.close()
    (host,) = rows(url, HostRow)
    assert (host.ipv4, host.ipv6, host.port_no) == ("10.0.0.1", "fe80::1", 2)


def test_unknown_column_and_missing_key_are_refused_at_once(url, open_db):
    db = open_db(url)
    with pytest.raises(TypeError, match="switches has no column colour"):
        db.merge(SwitchRow, dpid=1, colour="red")
    with pytest.raises(TypeError, match="switches needs its key dpid"):
        db.merge(SwitchRow, connected=True)


def test_a_row_that_sql_refuses_holds_nothing_up(url, open_db, caplog):
    db = open_db(url)
    db.merge(SwitchRow, dpid=1, connected=True, last_seen_ns=2**70)
    db.merge(SwitchRow, dpid=2, connected=True, last_seen_ns=1)
    db.insert(ClampRow, decision_id=1, flow_id=1, dpid=1, port_no=1, window_bytes=1, pushed_ns=1)
    with caplog.at_level(logging.ERROR):
        db.close()
    assert [row.dpid for row in rows(url, SwitchRow)] == [2]
    assert db.counters.lost == 2
    assert "of switches dropped" in caplog.text
    assert "of clamps dropped" in caplog.text


def test_a_successor_adopts_open_flows_and_ends_clamps(url, open_db):
    first = open_db(url)
    kept, gone = make_flow(first, 1), make_flow(first, 2)
    first.flow_opened(kept)
    first.flow_opened(gone)
    first.flow_closed(gone, 9, "rst")
    first.close()
    second = open_db(url)
    assert second.index.flows() == [kept]
    assert second.index.oldest(PortKey(BIG_DPID, 2)) == kept
    assert second.next_id() > first.next_id()


def test_a_late_successor_closes_them_as_lost(url, open_db):
    first = open_db(url)
    first.flow_opened(make_flow(first))
    first.close()
    second = open_db(url, adopt_within_s=0)
    assert len(second.index) == 0
    second.close()
    assert [row.close_reason for row in rows(url, FlowRow)] == ["lost"]


def lock(url):
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    return connection


def test_locked_in_mid_run_is_tried_again_and_said_once(url, open_db, caplog, monkeypatch):
    monkeypatch.setattr("flowdb.db._LOCKED_S", 0.05)
    db = open_db(url, max_pending=1000)
    with caplog.at_level(logging.WARNING):
        holder = lock(url)
        flows = [make_flow(db, number) for number in range(1, 1501)]
        db.flow_opened(flows[0])
        wait_for(lambda: db.counters.failures >= 2)
        for flow in flows[1:]:
            db.flow_opened(flow)
        counters = db.counters
        assert counters.pending <= 1000
        assert counters.lost > 0
        holder.execute("ROLLBACK")
        holder.close()
        wait_for(lambda: db.counters.pending == 0)
        db.close()
    assert len(rows(url, FlowRow)) == 500
    assert caplog.text.count("cannot be written, trying again") == 1
    assert caplog.text.count("further ones are refused") == 1
    assert "can be written again" in caplog.text


def test_close_gives_up_on_a_lock_and_says_what_is_lost(url, open_db, caplog, monkeypatch):
    monkeypatch.setattr("flowdb.db._LOCKED_S", 0.05)
    db = open_db(url)
    holder = lock(url)
    db.flow_opened(make_flow(db))
    close = store_module.Store.close
    monkeypatch.setattr(store_module.Store, "close", lambda self: close(self, timeout_s=0.5))
    db.close()
    assert "3 rows could not be written and are lost" in caplog.text
    holder.execute("ROLLBACK")
    holder.close()
    db._store._thread.join(10)


def test_locked_at_start_is_one_clear_error(url, open_db, monkeypatch):
    monkeypatch.setattr("flowdb.db._LOCKED_S", 0.05)
    open_db(url).close()
    holder = lock(url)
    with pytest.raises(DatabaseUnavailable, match=r"database is locked.*WEIR_DB"):
        FlowDb(url)
    holder.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "no database that can be used"),
        ("oracle9://x/y", "no database that can be used"),
        ("sqlite://", "cannot be shared"),
        ("sqlite:////proc/weir.db", "cannot write the flow database /proc/weir.db.*WEIR_DB"),
        ("sqlite:////etc/hostname", "cannot open the flow database.*not a database"),
    ],
)
def test_what_cannot_be_opened(url, message):
    with pytest.raises(DatabaseUnavailable, match=message):
        FlowDb(url)


def test_tables_of_another_version(url, tmp_path):
    os.mkdir(tmp_path / "weir")
    with sqlite3.connect(tmp_path / "weir" / "flow.db") as connection:
        connection.execute("CREATE TABLE switches (dpid TEXT PRIMARY KEY)")
    connection.close()
    with pytest.raises(SchemaMismatch, match="switches lacks connected"):
        FlowDb(url)


def test_the_file_is_not_for_everybody(url, tmp_path, open_db):
    open_db(url)
    assert (tmp_path / "weir" / "flow.db").stat().st_mode & 0o007 == 0


def test_settings(monkeypatch, tmp_path):
    monkeypatch.delenv("WEIR_DB", raising=False)
    assert FlowDbSettings().database_url == "sqlite:////var/lib/weir/weir.db"
    monkeypatch.setenv("WEIR_DB", str(tmp_path / "x.db"))
    assert FlowDbSettings().database_url == f"sqlite:///{tmp_path}/x.db"
    assert database_url("postgresql://h/d") == "postgresql://h/d"
