"""Commands, retention, export and `weir db`, on each kind of database."""

import csv
import json
import re
from dataclasses import replace
from datetime import datetime

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from sqlalchemy import func, select, text

from flowdb import commands
from flowdb.cli import db as weir_db
from flowdb.clock import Clock
from flowdb.engine import open_engine, open_reader
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
from flowdb.retention import Retention
from tests.unit.database import BIG_DPID, new_flow, rows, wait_for

DAY_NS = 86_400_000_000_000
INPUTS = dict.fromkeys(("capacity_bps", "rtt_us", "queue_bytes", "n", "wc_bytes", "mss_bytes", "alpha"), 1)
SAMPLED = (
    *("queue_pkts", "queue_bytes", "queue_max_pkts", "n_i", "fair_share_bytes", "capacity_bps"),
    *("alarms", "acks_seen", "clamped", "marked", "drops"),
)
PLACE = {"dpid": BIG_DPID, "port_no": 2}


def fill(db, age_days, flows=3):
    """Closed flows of some age, the first one punished; one that is open still; a sample of their port."""
    at_ns = db.clock.now_ns() - int(age_days * DAY_NS)
    for number in range(flows):
        flow = replace(new_flow(db, number + 1), opened_ns=at_ns)
        db.flow_opened(flow)
        if number == 0:
            punish(db, flow, at_ns)
        db.flow_closed(flow, at_ns + 1, "fin")
    db.flow_opened(replace(new_flow(db, 999), opened_ns=at_ns))
    db.merge(PortSampleRow, **PLACE, at_ns=at_ns, **dict.fromkeys(SAMPLED, 7))


def punish(db, flow, at_ns):
    queue = dict.fromkeys(("queue_pkts", "queue_bytes", "port_rate_bps", "n_i", "crossing_ns", "repeats"), 1)
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
        return commands.ask(connection, "release", arguments, "ann")


def test_a_command_is_taken_once_and_answered(url, open_db):
    open_db(url)  # it obeys none
    first, second = open_db(url), open_db(url)
    asked = ask(url, flow_id=7)
    taken = []
    wait_for(lambda: taken.extend(first.take_commands() + second.take_commands()) or taken)
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


def test_a_command_that_nobody_took_in_time(url, open_db):
    open_db(url).close()
    asked = ask(url)
    with open_engine(url).begin() as connection:
        late_ns = Clock().now_ns() + (commands.WAITS_S + 1) * 1_000_000_000
        assert commands.take(connection, 1, late_ns) == []
    (row,) = rows(url, CommandRow)
    assert (row.id, row.succeeded) == (asked, False)
    assert "no controller took it" in row.outcome


def test_an_unknown_command_is_refused(sqlite_url, open_db):
    open_db(sqlite_url)
    with (
        open_engine(sqlite_url).begin() as connection,
        pytest.raises(ValueError, match=r"'halt' is no command.*release"),
    ):
        commands.ask(connection, "halt", {}, "ann")


def test_prune_takes_what_hangs_on_a_flow_and_leaves_the_open(url, open_db):
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


def test_a_controller_prunes_by_itself_a_little_at_a_time(url, open_db, monkeypatch):
    monkeypatch.setattr("flowdb.run_store._PRUNE_AT_ONCE", 2)
    first = open_db(url)
    fill(first, age_days=10, flows=7)
    first.close()
    second = open_db(url, retention=Retention(5, 5))
    wait_for(lambda: count(url, FlowRow, AlarmRow, ClampRow, PortSampleRow) == [1, 0, 0, 0])
    second.close()


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
def test_export_of_a_time(url, open_db, tmp_path, table):
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


def test_a_file_is_there_whole_or_not_at_all(sqlite_url, open_db, tmp_path, monkeypatch):
    db = open_db(sqlite_url)
    fill(db, 1)
    db.close()
    taken = tmp_path / "taken.csv"
    taken.write_text("mine")
    there = sorted(tmp_path.iterdir())
    for file, message in (
        (taken, "is there already"),
        (tmp_path / "no" / "x.csv", "No such file"),
        (tmp_path / "x.txt", "neither .csv nor .parquet"),
    ):
        done = run(sqlite_url, "export", "flows", str(file))
        assert (done.exit_code != 0, message in done.output) == (True, True), done.output
    monkeypatch.setattr("flowdb.export._Csv.write", full)
    done = run(sqlite_url, "export", "flows", str(tmp_path / "full.csv"))
    assert "No space left on device; nothing was written" in done.output
    assert (sorted(tmp_path.iterdir()), taken.read_text()) == (there, "mine")


def full(*_args):
    raise OSError(28, "No space left on device")


def test_stats(url, open_db):
    db = open_db(url)
    fill(db, 1)
    wait_for(lambda: db.counters.pending == 0)
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
    assert json.loads(run(url, "stats", "--json").output)["running"] == []


def test_init_and_upgrade(empty_url):
    assert run(empty_url, "stats").exit_code == 1
    assert "made, version" in run(empty_url, "init").output
    assert "nothing to do" in run(empty_url, "init").output
    assert json.loads(run(empty_url, "upgrade", "--json").output)["before"] is not None
    with open_engine(empty_url).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    refused = run(empty_url, "init")
    assert (refused.exit_code, "`weir db upgrade`" in refused.output) == (1, True)


def test_settings_that_are_wrong_are_one_line(tmp_path, monkeypatch):
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
def test_a_reader_s_filters_have_an_index(sqlite_url, open_db, name):
    """No walk through the whole table, and no sorting of what was found."""
    open_db(sqlite_url).close()
    with open_reader(sqlite_url).connect() as connection:
        query = FILTERS[name].limit(50).compile(connection, compile_kwargs={"literal_binds": True})
        plan = connection.execute(text(f"EXPLAIN QUERY PLAN {query}")).all()
    (step,) = [row.detail for row in plan]
    assert re.search(r"^SEARCH .* USING (\w+ )?(INDEX|PRIMARY KEY)|clamps_standing", step)
