"""Commands, retention, export and `weir db`, on each kind of database."""

import csv
import json
import re
import time
from collections import Counter
from dataclasses import replace
from datetime import datetime

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from flowdb import commands
from flowdb.clock import Clock
from flowdb.engine import open_engine, open_reader
from flowdb.maintenance.cli import db as weir_db
from flowdb.models import (
    AlarmRow,
    ClampRow,
    CommandRow,
    DecisionRow,
    FlowRow,
    HopRow,
    PortSampleRow,
    RunRow,
)
from flowdb.retention import Retention, used_bytes
from flowdb.runs import now_of_runs
from flowdb.writing.command_inbox import CommandInbox
from tests.support.database.rows import BIG_DPID, new_flow, put_run_ahead, rows, wait_written
from tests.support.waiting import wait_until
from weir_base.port_counters import PORT_COUNTERS

DAY_NS = 86_400_000_000_000
INPUTS = dict.fromkeys(
    ("capacity_bps", "rtt_us", "queue_bytes", "allowance_bytes", "n", "wc_bytes", "mss_bytes", "alpha"), 1
)
PLACE = {"dpid": BIG_DPID, "port_no": 2}


def fill(db, age_days, flows=3):
    """Closed flows of some age, the first one punished; one open flow; a sample of their port."""
    at_ns = db.clock.now_ns() - int(age_days * DAY_NS)
    for number in range(flows):
        flow = replace(new_flow(db, number + 1), opened_ns=at_ns)
        db.flow_opened(flow)
        if number == 0:
            punish(db, flow, at_ns)
        db.flow_closed(flow, at_ns + 1, "fin")
    db.flow_opened(replace(new_flow(db, 999), opened_ns=at_ns))
    db.merge(PortSampleRow, **PLACE, at_ns=at_ns, **PortSampleRow.split(dict.fromkeys(PORT_COUNTERS, 7)))


def punish(db, flow, at_ns):
    queue = dict.fromkeys(
        (
            "queue_pkts",
            "queue_bytes",
            "port_rate_bps",
            "n_i",
            "crossing_ns",
            "repeats",
            "non_tcp_percent",
        ),
        1,
    )
    alarm = db.insert(AlarmRow, **PLACE, kind="alarm", received_ns=at_ns, **queue)
    ranking = [{"flow_id": flow.id, "flow": str(flow.key), "score": 1.5}]
    decision = db.insert(
        DecisionRow, **PLACE, **INPUTS, alarm_id=alarm, flow_id=flow.id, decided_ns=at_ns, origin="alarm",
        policy="longest-lived", candidates=3, ranking=ranking, equation=3, window_bytes=1, entry={"table": 0},
    )  # fmt: skip
    db.insert(
        ClampRow, **PLACE, decision_id=decision, flow_id=flow.id, window_bytes=1, pushed_ns=at_ns,
        lifted_ns=at_ns, lift_reason="limit",
    )  # fmt: skip


def run(url, *arguments):
    return CliRunner().invoke(weir_db, ["--db", url, *arguments])


def count(url, *models):
    return [len(rows(url, model)) for model in models]


def ask(url, **arguments):
    with open_engine(url).begin() as connection:
        return commands.request_command(connection, "release", arguments, "ann")


def test_a_controller_claims_only_the_kinds_that_it_takes(url, open_db):
    about_flows, about_switches = open_db(url), open_db(url)
    ask(url, flow_id=7)
    with open_engine(url).begin() as connection:
        commands.request_command(connection, "off", {}, "ann")
    for db, kinds in ((about_switches, commands.SWITCH_KINDS), (about_flows, commands.FLOW_KINDS)):
        found = []
        found += wait_until(lambda db=db, kinds=kinds: db.take_commands(kinds), f"{kinds} are claimed")
        assert [command.kind in kinds for command in found] == [True]


def test_a_kind_that_is_taken_later_finds_commands_that_waited(url, open_db):
    with open_engine(url).begin() as connection:
        for kind in ("release", "off"):
            commands.request_command(connection, kind, {}, "ann")
    db = open_db(url)
    for kinds, kind in ((commands.FLOW_KINDS, "release"), (commands.SWITCH_KINDS, "off")):
        found = wait_until(lambda kinds=kinds: db.take_commands(kinds), f"{kind} is claimed")
        assert [command.kind for command in found] == [kind]


@pytest.mark.parametrize("arguments", ["[7]", "7", "null", '"flow"'])
def test_a_command_with_wrong_arguments_is_refused_and_does_not_hold_back_others(url, open_db, arguments):
    """A person wrote its row by hand."""
    check_refusal(url, open_db, arguments)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_command_with_arguments_that_are_no_json_is_refused(url, open_db):
    """SQLite takes any text. PostgreSQL does not."""
    check_refusal(url, open_db, "flow=7")


def check_refusal(url, open_db, arguments):
    wrong = ask(url)
    with open_engine(url).begin() as connection:
        connection.execute(text("UPDATE commands SET arguments = :arguments"), {"arguments": arguments})
    right = ask(url, flow=7)
    db = open_db(url)
    found = wait_until(db.take_commands, "the other command is claimed")
    assert [(command.id, command.arguments) for command in found] == [(right, {"flow": 7})]
    (row,) = (row for row in rows(url, CommandRow) if row.id == wrong)
    assert (row.arguments, row.succeeded) == ({}, False)
    assert row.outcome == "its arguments are not a JSON object"


def test_commands_of_two_readers_of_one_inbox_are_kept_apart():
    inbox = CommandInbox()
    assert inbox.take(["off"]) == []
    inbox.put([commands.Command(1, "release", {}, "ann"), commands.Command(2, "off", {}, "ann")])
    assert [command.id for command in inbox.take(["off"])] == [2]
    assert [command.id for command in inbox.take(["release"])] == [1]
    assert inbox.kinds == {"off", "release"}


def test_a_command_is_claimed_once_and_answered(url, open_db):
    open_db(url)  # this controller takes no commands
    first, second = open_db(url), open_db(url)
    asked = ask(url, flow_id=7)
    taken = []
    taken += wait_until(
        lambda: first.take_commands() + second.take_commands(), "the command is in the database"
    )
    (command,) = taken
    assert (command.id, command.kind, command.arguments, command.asked_by) == (
        *(asked, "release"),
        *({"flow_id": 7}, "ann"),
    )
    first.command_done(command, False, "there is no flow 7")
    first.close()
    second.close()
    assert second.take_commands() == []
    (row,) = rows(url, CommandRow)
    assert (row.succeeded, row.outcome) == (False, "there is no flow 7")
    assert row.taken_run_id in {run.id for run in rows(url, RunRow)}
    assert row.asked_ns <= row.taken_ns <= row.done_ns


def test_an_expired_command_fails(url, open_db):
    open_db(url).close()
    asked = ask(url)
    with open_engine(url).begin() as connection:
        late_ns = Clock().now_ns() + (commands.EXPIRES_AFTER_S + 1) * 1_000_000_000
        assert commands.claim_commands(connection, 1, late_ns) == []
    (row,) = rows(url, CommandRow)
    assert (row.id, row.succeeded) == (asked, False)
    assert "no controller took it" in row.outcome


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_command_is_claimed_after_the_clock_was_set(url, open_db, monkeypatch, hours):
    """The controller began before an administrator, or NTP, set the clock of its machine."""
    db = open_db(url)
    real_ns = time.time_ns
    monkeypatch.setattr("flowdb.clock.time.time_ns", lambda: real_ns() + hours * 3600 * 10**9)
    asked = ask(url, flow_id=7)
    taken = []
    taken += wait_until(lambda: db.take_commands(), "the command is claimed")
    assert [command.id for command in taken] == [asked]
    (row,) = rows(url, CommandRow)
    assert abs(row.taken_ns - row.asked_ns) < 60 * 10**9


def test_the_time_of_runs_ignores_a_run_whose_clock_was_far_ahead(url, open_db, monkeypatch):
    db = open_db(url)
    put_run_ahead(url)
    real_ns = time.time_ns
    monkeypatch.setattr("flowdb.clock.time.time_ns", lambda: real_ns() - 2 * 3600 * 10**9)
    with open_reader(url).connect() as connection, Session(connection) as session:
        assert abs(now_of_runs(session, Clock()) - db.clock.now_ns()) < 60 * 10**9


def test_an_unknown_command_is_refused(sqlite_url, open_db):
    open_db(sqlite_url)
    with (
        open_engine(sqlite_url).begin() as connection,
        pytest.raises(ValueError, match=r"unknown command 'halt'.*release"),
    ):
        commands.request_command(connection, "halt", {}, "ann")


def test_prune_deletes_dependent_rows_and_keeps_open_flows(url, open_db):
    db = open_db(url)
    fill(db, age_days=10)
    fill(db, age_days=1)
    db.close()
    everything = (FlowRow, HopRow, AlarmRow, DecisionRow, ClampRow, PortSampleRow)
    assert count(url, *everything) == [8, 8, 2, 2, 2, 2]
    done = run(url, "prune", "--flows-days", "5", "--samples-days", "5", "--json")
    assert json.loads(done.output)["deleted"] == {"flows": 3, "alarms": 1, "commands": 0, "port_samples": 1}
    assert count(url, *everything) == [5, 5, 1, 1, 1, 1]
    assert "0 flows, 0 alarms" in run(url, "prune", "--flows-days", "5").output


def analyse(url):
    """PostgreSQL estimates the width of rows when it analyses a table. In service autovacuum does that."""
    if url.startswith("postgresql"):
        with open_engine(url).begin() as connection:
            connection.execute(text("ANALYZE"))


def used(url):
    analyse(url)
    with open_engine(url).begin() as connection:
        return used_bytes(connection)


def test_above_its_size_limit_the_oldest_rows_of_all_tables_go(url, open_db, monkeypatch):
    monkeypatch.setattr("flowdb.maintenance.cli._PRUNE_ROWS", 100)
    db = open_db(url)
    for days in (4, 3, 2):
        fill(db, age_days=days, flows=1000)
    now_ns = db.clock.now_ns()
    db.close()
    full = used(url)
    assert "0 flows, 0 alarms" in run(url, "prune", "--gb", str(2 * full / 1e9)).output
    run(url, "prune", "--gb", str(full / 2 / 1e9))
    assert used(url) <= 0.55 * full
    closed = Counter((now_ns - row.opened_ns) // DAY_NS for row in rows(url, FlowRow) if row.closed_ns)
    assert (closed[4], closed[2]) == (0, 1000), "the oldest go first"
    assert 0 < closed[3] < 1000, "and no more than necessary"
    assert sum(row.closed_ns is None for row in rows(url, FlowRow)) == 3, "open flows stay"


def test_a_controller_keeps_its_size_limit(url, open_db, monkeypatch):
    monkeypatch.setattr("flowdb.writing.run_store._PRUNE_ROWS", 100)
    first = open_db(url)
    fill(first, age_days=3, flows=2000)
    first.close()
    half = used(url) // 2
    second = open_db(url, retention=Retention(30, 30, half))
    wait_until(lambda: used(url), "the limit is kept", lambda size: size <= half)
    second.close()
    assert count(url, FlowRow) != [0]


def test_a_controller_prunes_in_small_steps(url, open_db, monkeypatch):
    monkeypatch.setattr("flowdb.writing.run_store._PRUNE_ROWS", 2)
    first = open_db(url)
    fill(first, age_days=10, flows=7)
    first.close()
    second = open_db(url, retention=Retention(5, 5))
    wait_until(
        lambda: count(url, FlowRow, AlarmRow, ClampRow, PortSampleRow),
        "old rows go",
        lambda counts: counts == [1, 0, 0, 0],
    )
    second.close()


def opened_while_the_clock_was_slow(url, open_db, monkeypatch):
    """A database whose run goes on with a clock that is ten days behind."""
    real_ns = time.time_ns
    with monkeypatch.context() as slow:
        slow.setattr("flowdb.clock.time.time_ns", lambda: real_ns() - 10 * DAY_NS)
        return open_db(url)


def test_rows_of_a_run_whose_clock_was_slow_are_kept_as_long_as_others(url, open_db, monkeypatch):
    """The clock was set by ten days while the first run went on with its own time."""
    first = opened_while_the_clock_was_slow(url, open_db, monkeypatch)
    fill(first, age_days=20)
    fill(first, age_days=0)
    first.close()
    everything = (FlowRow, HopRow, AlarmRow, DecisionRow, ClampRow, PortSampleRow)
    second = open_db(url, retention=Retention(5, 5))
    kept = wait_until(lambda: count(url, *everything), "old rows go", lambda counts: counts[0] < 8)
    second.close()
    assert kept == [5, 5, 1, 1, 1, 1]
    done = run(url, "prune", "--flows-days", "5", "--samples-days", "5", "--json")
    assert sum(json.loads(done.output)["deleted"].values()) == 0
    analyse(url)
    assert "3 flows" in run(url, "prune", "--gb", "1e-9").output, "the limit of bytes has priority"


def test_a_slow_run_that_ended_before_the_age_limit_keeps_no_rows(url, open_db, monkeypatch):
    first = opened_while_the_clock_was_slow(url, open_db, monkeypatch)
    fill(first, age_days=0)
    first.close()
    assert "3 flows" in run(url, "prune", "--flows-days", "0", "--samples-days", "0").output


def test_export_as_csv_and_parquet(url, open_db, tmp_path):
    db = open_db(url)
    fill(db, age_days=1)
    db.close()
    done = run(url, "export", "decisions", f"{tmp_path}/d.csv", "--json")
    assert json.loads(done.output)["rows"] == 1
    with open(tmp_path / "d.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["dpid"], row["policy"], row["command_id"]) == (str(BIG_DPID), "longest-lived", "")
    assert json.loads(row["ranking"])[0]["score"] == 1.5
    assert "4 rows of flows" in run(url, "export", "flows", f"{tmp_path}/f.parquet").output
    flows = pq.read_table(tmp_path / "f.parquet").to_pylist()
    assert [flow["src_port"] for flow in flows] == [1, 2, 3, 999]
    assert flows[3]["closed_ns"] is None
    run(url, "export", "port_samples", f"{tmp_path}/s", "--format", "parquet")
    (sample,) = pq.read_table(tmp_path / "s").to_pylist()
    assert (sample["dpid"], sample["queue_pkts"]) == (BIG_DPID, 7)


@pytest.mark.parametrize("table", ["flows", "hops"])
def test_export_of_an_interval(url, open_db, tmp_path, table):
    db = open_db(url)
    for age_days in (30, 20, 10):
        fill(db, age_days, flows=1)
    db.close()
    at_ns = Clock().now_ns() - 25 * DAY_NS
    with open_engine(url).connect() as connection:
        since, until = (_day(at_ns + shift * DAY_NS) for shift in (0, 10))
        assert connection.execute(select(func.count()).select_from(FlowRow)).scalar() == 6
    done = run(url, "export", table, f"{tmp_path}/x.csv", "--since", since, "--until", until, "--json")
    assert json.loads(done.output)["rows"] == 2


def _day(at_ns):
    return datetime.fromtimestamp(at_ns / 1e9).strftime("%Y-%m-%d")


def test_an_export_is_complete_or_absent(sqlite_url, open_db, tmp_path, monkeypatch):
    db = open_db(sqlite_url)
    fill(db, 1)
    db.close()
    taken = tmp_path / "taken.csv"
    taken.write_text("mine")
    there = sorted(tmp_path.iterdir())
    for file, message in (
        (taken, "already exists"),
        (tmp_path / "no" / "x.csv", "No such file"),
        (tmp_path / "x.txt", "does not end with .csv or .parquet"),
    ):
        done = run(sqlite_url, "export", "flows", str(file))
        assert (done.exit_code != 0, message in done.output) == (True, True), done.output
    monkeypatch.setattr("flowdb.maintenance.export._Csv.write", full)
    done = run(sqlite_url, "export", "flows", str(tmp_path / "full.csv"))
    assert "No space left on device; nothing was written" in done.output
    assert (sorted(tmp_path.iterdir()), taken.read_text()) == (there, "mine")


def full(*_args):
    raise OSError(28, "No space left on device")


def test_stats_show_rows_times_and_controllers(url, open_db):
    db = open_db(url)
    fill(db, 1)
    wait_written(db)
    found = json.loads(run(url, "stats", "--json").output)
    tables = {table["name"]: table for table in found["tables"]}
    assert (tables["flows"]["rows"], tables["hops"]["rows"], tables["clamps"]["rows"]) == (4, 4, 1)
    assert tables["flows"]["first_ns"] == tables["flows"]["last_ns"] > 0
    assert found["size_bytes"] > 10_000
    (running,) = found["running"]
    assert running["seen_s_ago"] < 15
    shown = run(url, "stats").output
    assert "flows" in shown
    assert "controller on" in shown
    db.close()
    put_run_ahead(url)
    assert json.loads(run(url, "stats", "--json").output)["running"] == []


def test_init_creates_and_upgrade_changes_nothing_twice(empty_url):
    assert run(empty_url, "stats").exit_code == 1
    assert "tables created, version" in run(empty_url, "init").output
    assert "nothing to do" in run(empty_url, "init").output
    assert json.loads(run(empty_url, "upgrade", "--json").output)["before"] is not None
    with open_engine(empty_url).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    refused = run(empty_url, "init")
    assert (refused.exit_code, "`weir db upgrade`" in refused.output) == (1, True)


def test_invalid_settings_are_one_line(tmp_path, monkeypatch):
    monkeypatch.delenv("WEIR_DB", raising=False)
    (tmp_path / "weir.toml").write_text("[flowdb]\nkeep_flows_days = -1\n")
    monkeypatch.setenv("WEIR_CONFIG", str(tmp_path / "weir.toml"))
    done = CliRunner().invoke(weir_db, ["stats"])
    assert (done.exit_code, "keep_flows_days" in done.output) == (1, True)


FILTERS = {
    "address": select(FlowRow).where(FlowRow.src == "10.0.0.1").order_by(FlowRow.opened_ns.desc()),
    "port": select(FlowRow).where(FlowRow.dst_port == 80).order_by(FlowRow.opened_ns.desc()),
    "time": select(FlowRow).where(FlowRow.opened_ns > 5).order_by(FlowRow.opened_ns.desc()),
    "state": select(FlowRow)
    .where(FlowRow.closed_ns.is_(None), FlowRow.state == "idle")
    .order_by(FlowRow.opened_ns.desc()),
    "switch port": select(HopRow)
    .where(HopRow.dpid == 1, HopRow.out_port == 2)
    .order_by(HopRow.flow_id.desc()),
    "samples": select(PortSampleRow).where(
        PortSampleRow.dpid == 1, PortSampleRow.port_no == 2, PortSampleRow.at_ns > 5
    ),
    "alarms": select(AlarmRow)
    .where(AlarmRow.dpid == 1, AlarmRow.port_no == 2)
    .order_by(AlarmRow.received_ns),
    "why": select(DecisionRow).where(DecisionRow.flow_id == 1).order_by(DecisionRow.decided_ns),
    "standing": select(ClampRow).where(ClampRow.lifted_ns.is_(None)).order_by(ClampRow.pushed_ns),
}


@pytest.mark.parametrize("name", FILTERS)
def test_every_filter_uses_an_index(sqlite_url, open_db, name):
    """The query plan reads an index; it neither scans the table nor sorts."""
    open_db(sqlite_url).close()
    with open_reader(sqlite_url).connect() as connection:
        query = FILTERS[name].limit(50).compile(connection, compile_kwargs={"literal_binds": True})
        plan = connection.execute(text(f"EXPLAIN QUERY PLAN {query}")).all()
    (step,) = [row.detail for row in plan]
    assert re.search(r"^SEARCH .* USING (\w+ )?(INDEX|PRIMARY KEY)|clamps_standing", step)
