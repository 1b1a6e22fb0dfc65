"""FlowDb: the rows that reach SQL, and the flows that a new controller adopts."""

import logging
import threading
import time
from dataclasses import replace

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from flowdb.config import FlowDbSettings, database_url
from flowdb.flow import FlowState, Hop, PortKey
from flowdb.models import (
    AlarmRow,
    ClampRow,
    DecisionRow,
    FlowRow,
    HopRow,
    HostRow,
    LinkRow,
    PortRow,
    RunRow,
    SwitchRow,
)
from flowdb.writing import store as store_module
from flowdb.writing.changes import make_change
from flowdb.writing.flow_changes import FlowOpened
from tests.support.database.rows import BIG_DPID, new_flow, put_run_ahead, rows, wait_written
from tests.support.waiting import wait_until


def test_close_writes_everything(url, open_db):
    db = open_db(url)
    flows = [new_flow(db, 1000 + number) for number in range(500)]
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


PORT = {"dpid": BIG_DPID, "port_no": 2}
ALARM = {
    **PORT, "kind": "alarm", "queue_pkts": 30, "queue_bytes": 45000, "port_rate_bps": 10**8, "n_i": 1,
    "crossing_ns": 1, "received_ns": 2, "repeats": 0, "non_tcp_percent": 0,
}  # fmt: skip
DECISION = {
    **PORT, "ranking": [], "entry": {}, "decided_ns": 3, "policy": "longest-lived", "candidates": 1,
    "equation": 3, "capacity_bps": 10**8, "rtt_us": 1000, "queue_bytes": 45000, "n": 1, "wc_bytes": 57500,
    "allowance_bytes": 0, "wr_bytes": None, "mss_bytes": 1448, "alpha": 5, "window_bytes": 28750,
}  # fmt: skip
CLAMP = {**PORT, "window_bytes": 28750, "pushed_ns": 4}


def test_rows_are_written_without_close_parents_first(url, open_db):
    db = open_db(url)
    flow = new_flow(db)
    db.flow_opened(flow)
    alarm = db.insert(AlarmRow, **ALARM)
    decision = db.insert(DecisionRow, **DECISION, alarm_id=alarm, flow_id=flow.id, origin="alarm")
    clamp = db.insert(ClampRow, **CLAMP, decision_id=decision, flow_id=flow.id)
    wait_written(db)
    assert [row.id for row in rows(url, ClampRow)] == [clamp]
    db.update(ClampRow, id=clamp, lifted_ns=5, lift_reason="normal")
    db.close()
    assert [(row.lifted_ns, row.lift_reason) for row in rows(url, ClampRow)] == [(5, "normal")]
    assert db.counters.lost == 0


def test_a_row_whose_parent_came_later_is_written_with_it(url, open_db, monkeypatch):
    """A reflex is recorded before its alarm. The first batch ends between the two."""
    monkeypatch.setattr(store_module, "MAX_BATCH", 2)
    db = open_db(url)
    flow, alarm, decision, clamp = new_flow(db), db.next_id(), db.next_id(), db.next_id()
    reflex = {**DECISION, "id": decision, "alarm_id": None, "flow_id": flow.id, "origin": "reflex"}
    changes = [
        FlowOpened(flow),
        make_change(DecisionRow, "insert", reflex),
        make_change(ClampRow, "insert", {**CLAMP, "id": clamp, "decision_id": decision, "flow_id": flow.id}),
        make_change(AlarmRow, "insert", {**ALARM, "id": alarm}),
        make_change(DecisionRow, "update", {"id": decision, "alarm_id": alarm}),
    ]
    db._store.put(changes)
    db.close()
    assert [(row.id, row.alarm_id) for row in rows(url, DecisionRow)] == [(decision, alarm)]
    assert [row.id for row in rows(url, ClampRow)] == [clamp]
    assert db.counters.lost == 0


def test_merge_keeps_the_other_columns(url, open_db):
    db = open_db(url)
    db.merge(HostRow, mac="aa:aa:aa:aa:aa:aa", ipv4="10.0.0.1", dpid=1, port_no=1, last_seen_ns=1)
    wait_written(db)
    db.merge(HostRow, mac="aa:aa:aa:aa:aa:aa", ipv6="fe80::1", dpid=1, port_no=2, last_seen_ns=2)
    db.close()
    (host,) = rows(url, HostRow)
    assert (host.ipv4, host.ipv6, host.port_no) == ("10.0.0.1", "fe80::1", 2)


def test_an_unknown_column_or_a_missing_key_is_refused(url, open_db):
    db = open_db(url)
    with pytest.raises(TypeError, match="switches has no column colour"):
        db.merge(SwitchRow, dpid=1, colour="red")
    with pytest.raises(TypeError, match="switches needs dpid, last_seen_ns"):
        db.merge(SwitchRow, connected=True)


def test_a_refused_row_does_not_block_others(url, open_db, caplog):
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
    kept, gone = new_flow(first, 1), new_flow(first, 2)
    first.flow_opened(kept)
    first.flow_opened(gone)
    first.flow_closed(gone, 9, "rst")
    first.close()
    second = open_db(url)
    (adopted,) = second.index.flows()
    assert replace(adopted, opened_ns=kept.opened_ns) == kept
    assert abs(adopted.opened_ns - kept.opened_ns) < 1_000_000_000
    assert second.index.oldest(PortKey(BIG_DPID, 2)) == adopted
    assert second.next_id() > first.next_id()


def test_a_late_successor_closes_open_flows_as_lost(url, open_db):
    first = open_db(url)
    first.flow_opened(new_flow(first))
    first.close()
    second = open_db(url, adopt_within_s=0)
    assert len(second.index) == 0
    second.close()
    assert [row.close_reason for row in rows(url, FlowRow)] == ["lost"]


def test_a_run_whose_clock_was_far_ahead_does_not_keep_old_flows_open(url, open_db):
    first = open_db(url)
    first.flow_opened(new_flow(first))
    first.close()
    put_run_ahead(url)
    second = open_db(url, adopt_within_s=0)
    assert len(second.index) == 0
    second.close()
    assert [row.close_reason for row in rows(url, FlowRow)] == ["lost"]


def test_a_successor_knows_no_switch_port_link_or_host_until_it_sees_it(url, open_db):
    """While no controller runs, switches and hosts go and cables are pulled."""
    first = open_db(url)
    first.merge(SwitchRow, dpid=1, connected=True, last_seen_ns=1)
    ends = {"src_dpid": 1, "src_port_no": 1, "dst_dpid": 2, "dst_port_no": 1}
    first.merge(LinkRow, **ends, up=True, found_ns=1, last_seen_ns=1)
    first.merge(PortRow, dpid=1, port_no=1, name="p", hw_addr="aa", up=True, last_seen_ns=1)
    first.merge(HostRow, mac="aa:aa:aa:aa:aa:aa", ipv4="10.0.0.1", dpid=1, port_no=1, last_seen_ns=1)
    first.close()
    second = open_db(url)
    second.merge(SwitchRow, dpid=2, connected=True, last_seen_ns=2)
    second.close()
    assert [(row.dpid, row.connected) for row in rows(url, SwitchRow)] == [(1, False), (2, True)]
    assert [row.up for table in (LinkRow, PortRow) for row in rows(url, table)] == [False, False]
    assert rows(url, HostRow) == []


REROUTED = (Hop(1, 1, 2), Hop(5, 1, 2))


def test_reports_and_a_new_path_reach_the_rows(url, open_db):
    db = open_db(url)
    flow = new_flow(db, path=(Hop(1, 1, 2), Hop(2, 3, 4), Hop(3, 5, 6)))
    db.flow_opened(flow)
    wait_written(db)
    reported = replace(flow.with_report(9_000, flow.opened_ns + 1_000_000, FlowState.IDLE), path=REROUTED)
    db.flow_changed(reported)
    assert db.index.oldest(PortKey(5, 2)) == reported
    assert db.index.count(PortKey(3, 6)) == 0
    db.close()
    assert db.counters.lost == 0
    (row,) = rows(url, FlowRow)
    assert (row.sent_bytes, row.rate_bps, row.state) == (9_000, 72_000_000, "idle")
    hops = [(hop.position, hop.dpid, hop.in_port, hop.out_port) for hop in rows(url, HopRow)]
    assert hops == [(0, 1, 1, 2), (1, 5, 1, 2)]


def test_a_flow_rerouted_before_its_first_write_has_its_new_path(url, open_db):
    db = open_db(url)
    flow = new_flow(db)
    db.flow_opened(flow)
    db.flow_changed(replace(flow, path=REROUTED))
    db.flow_changed(replace(flow, path=REROUTED[:1]))
    db.flow_closed(flow, 9, "fin")
    db.flow_changed(flow)
    db.close()
    assert [(hop.position, hop.dpid) for hop in rows(url, HopRow)] == [(0, 1)]
    assert [flow.state for flow in rows(url, FlowRow)] == ["closed"]
    assert db.counters.lost == 0


def test_a_successor_indexes_every_port_of_a_path(url, open_db):
    first = open_db(url)
    for number in range(3):
        first.flow_opened(new_flow(first, number + 1, REROUTED))
    first.close()
    second = open_db(url)
    assert {flow.path for flow in second.index.flows()} == {REROUTED}
    assert [second.index.count(hop.port) for hop in REROUTED] == [3, 3]


@pytest.mark.parametrize("jump_s", [3600, -3600])
def test_setting_the_clock_changes_no_flows_age(sqlite_url, open_db, monkeypatch, jump_s):
    first = open_db(sqlite_url)
    before = new_flow(first, 1)
    first.flow_opened(before)
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() + jump_s * 1_000_000_000)
    after = new_flow(first, 2)
    assert before.opened_ns < after.opened_ns < before.opened_ns + 1_000_000_000
    first.flow_opened(after)
    first.close()
    second = open_db(sqlite_url)
    new = new_flow(second, 3)
    second.flow_opened(new)
    found = sorted(second.index.flows(), key=lambda flow: flow.age_key)
    assert [flow.key.src_port for flow in found] == [1, 2, 3]
    assert new.opened_ns - found[0].opened_ns < 10_000_000_000
    assert abs(new.opened_ns - time.time_ns()) < 1_000_000_000


@pytest.mark.parametrize("jump_s", [3600, -3600])
def test_the_row_of_an_adopted_flow_follows_the_clock(url, open_db, monkeypatch, jump_s):
    """All times of the row are by one clock. A start after which the clock was not set changes none."""
    first = open_db(url)
    opened = new_flow(first)
    first.flow_opened(opened)
    first.flow_changed(replace(opened, last_active_ns=opened.opened_ns))
    first.close()
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() + jump_s * 1_000_000_000)
    expected_ns = opened.opened_ns + jump_s * 1_000_000_000
    for _ in range(2):
        successor = open_db(url)
        (adopted,) = successor.index.flows()
        successor.close()
        (row,) = rows(url, FlowRow)
        assert row.opened_ns == row.last_active_ns == adopted.opened_ns
        assert abs(row.opened_ns - expected_ns) < 1_000_000_000
    last = open_db(url)
    last.flow_closed(adopted, last.clock.now_ns(), "fin")
    last.close()
    (row,) = rows(url, FlowRow)
    assert 0 <= row.closed_ns - row.opened_ns < 60_000_000_000


def test_a_flow_that_is_lost_while_the_clock_is_set_back_ends_after_it_opened(url, open_db, monkeypatch):
    first = open_db(url)
    first.flow_opened(new_flow(first))
    first.close()
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() - 3600 * 1_000_000_000)
    open_db(url, adopt_within_s=0).close()
    (row,) = rows(url, FlowRow)
    assert 0 <= row.closed_ns - row.opened_ns < 60_000_000_000
    assert row.close_reason == "lost"


@pytest.mark.parametrize("jump_s", [3600, -3600])
def test_setting_the_clock_is_logged_once(sqlite_url, open_db, monkeypatch, caplog, jump_s):
    monkeypatch.setattr("flowdb.writing.run_store.HEARTBEAT_S", 0.0)
    db = open_db(sqlite_url)
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() + jump_s * 1_000_000_000)
    wait_until(lambda: db._store._notices, "a notice waits")
    before = db.counters.written
    db.flow_opened(new_flow(db))
    wait_until(lambda: db.counters.written, "more rows are written", lambda count: count > before)
    db.close()
    message = f"the system's clock was set by {jump_s:+.1f} s; recorded times are not affected"
    assert caplog.text.count(message) == 1


def test_only_the_writer_thread_executes_sql(sqlite_url, open_db):
    """After the opening, only the writer's thread executes SQL."""
    db = open_db(sqlite_url)
    threads = set()

    def note(*_args):
        threads.add(threading.get_ident())

    event.listen(Engine, "before_cursor_execute", note)
    try:
        flow = new_flow(db)
        db.flow_opened(flow)
        db.flow_changed(replace(flow, sent_bytes=1))
        assert db.index.oldest(PortKey(BIG_DPID, 2)) is not None
        db.flow_closed(flow, 9, "fin")
        assert db.take_commands() == []
        db.close()
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    assert len(rows(sqlite_url, FlowRow)) == 1


def test_settings_come_from_file_and_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("WEIR_DB", raising=False)
    assert FlowDbSettings().database_url == "sqlite:////var/lib/weir/weir.db"
    monkeypatch.setenv("WEIR_DB", str(tmp_path / "x.db"))
    assert FlowDbSettings().database_url == f"sqlite:///{tmp_path}/x.db"
    assert database_url("postgresql://h/d") == "postgresql://h/d"
