"""An alarm is answered from memory: no SQL in the controller's process, no wait for a locked database."""

import gc
import sqlite3
import sys
import time

import pytest
from sqlalchemy import event as sql_event
from sqlalchemy.engine import Engine

from fabric_app.events import EventFlowClosed
from flowdb.context import FlowDbContext
from flowdb.flow import Hop
from flowdb.models import ClampRow, DecisionRow
from openflow_ext import wire
from sdtcp_app.app import SdtcpApp
from tests.support.database.rows import new_flow, rows
from tests.support.openflow.fake_datapath import FakeDatapath, event

QUEUE = {
    "port_buf_pkts": 30,
    "port_buf_bytes": 45_000,
    "port_rate_bps": 10**8,
    "n_i": 2,
    "crossing_ns": 5,
    "non_tcp_percent": 0,
    "allowance_bytes": 0,
}


@pytest.fixture
def flowdb(tmp_path, monkeypatch):
    monkeypatch.delenv("WEIR_CONFIG", raising=False)
    monkeypatch.setenv("WEIR_DB", str(tmp_path / "weir.db"))
    thresholds = gc.get_threshold()
    flowdb = FlowDbContext()
    yield flowdb
    flowdb.close()
    gc.set_threshold(*thresholds)


@pytest.fixture
def sql_statements(tmp_path):
    """The SQL statements that this process executes in the controller's database.

    A dashboard of an earlier test may still query a database of its own.
    """
    statements = []

    def note(connection, _cursor, statement, *_args):
        if str(tmp_path) in str(connection.engine.url.database):
            statements.append(statement)

    sql_event.listen(Engine, "before_cursor_execute", note)
    yield statements
    sql_event.remove(Engine, "before_cursor_execute", note)


def test_alarm_clamp_and_lift_need_no_sql(flowdb, sql_statements, tmp_path):
    datapath, app = FakeDatapath(), SdtcpApp(flowdb=flowdb)
    app.on_switch(event(datapath))
    flows = [new_flow(flowdb, number, (Hop(1, 1, 3),)) for number in range(1, 1001)]
    holder = sqlite3.connect(tmp_path / "weir.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    began_s = time.monotonic()
    for flow in flows:
        flowdb.flow_opened(flow)
    app.on_alarm(event(datapath, port=wire.OfpPort(3), **QUEUE))
    (clamp,) = [mod for mod in datapath.flow_mods() if mod.command == 0]
    flowdb.flow_closed(flows[0], flowdb.clock.now_ns(), "fin")
    app.on_flow_closed(EventFlowClosed(flows[0], "fin", flowdb.clock.now_ns()))
    took_s = time.monotonic() - began_s
    holder.execute("ROLLBACK")
    holder.close()
    flowdb.close()
    assert clamp.match["tcp_dst"] == 1
    assert took_s < 2  # the writer waits for the lock for 5 s
    assert not sql_statements
    assert len(rows(tmp_path / "weir.db", DecisionRow)) == 1
    assert [row.lift_reason for row in rows(tmp_path / "weir.db", ClampRow)] == ["flow closed"]


def test_garbage_collection_rarely_visits_live_flows(flowdb):
    assert gc.get_threshold()[0] >= 100_000
    assert gc.get_threshold()[2] >= 10_000
    assert sys.getswitchinterval() < 0.001
