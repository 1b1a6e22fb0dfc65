"""`weir why`: the whole answer, from what the app recorded."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from sqlalchemy.orm import Session

from flowdb.db import FlowDb
from flowdb.engine import open_engine
from flowdb.flow import FiveTuple, Flow, Hop
from flowdb.models import CommandRow
from openflow_ext import wire
from sdtcp_app.app import SdtcpApp
from tests.unit.fake_datapath import FakeDatapath, event
from weir.cli import weir

KEY = FiveTuple("10.0.0.1", "10.0.0.3", 1000, 80)


def alarm(datapath, port_no=3):
    fields = {
        "port": wire.OfpPort(port_no), "port_buf_pkts": 30, "port_buf_bytes": 45_000,
        "port_rate_bps": 100_000_000, "n_i": 2, "crossing_ns": 5,
    }  # fmt: skip
    return event(datapath, **fields)


@pytest.fixture
def database(tmp_path, monkeypatch):
    """A database with a flow that was slowed and let go, one that was asked for, and one left alone."""
    monkeypatch.delenv("WEIR_CONFIG", raising=False)
    url = f"sqlite:///{tmp_path}/weir.db"
    flowdb = FlowDb(url)
    app, datapath = SdtcpApp(flowdb=flowdb), FakeDatapath()
    app.on_switch(event(datapath))
    flows = [
        Flow(n, replace(KEY, src=f"10.0.0.{n}"), (Hop(1, n, 3),), n, 1460, 9, 7, 250, n * 10**6, n * 10**6)
        for n in (1, 2, 4)
    ]
    for flow in flows:
        flowdb.flow_opened(flow)
    app.on_alarm(alarm(datapath))
    app.carrier.ask_answers()
    app.on_barrier(event(datapath, xid=datapath.sent[-1].xid))
    flowdb.flow_closed(flows[0], flowdb.clock.now_ns(), "fin")
    app.carrier.carry_out(app.core.on_flow_closed(flows[0]))
    with Session(open_engine(url)) as session, session.begin():
        arguments = {"flow": 2, "window_bytes": 4000}
        session.add(CommandRow(id=77, kind="punish", arguments=arguments, asked_by="ann", asked_ns=1))
    obeyed = app.desk.obey("punish", arguments, 0)
    app.carrier.carry_out(obeyed.decisions, command_id=77)
    flowdb.close()
    return f"{tmp_path}/weir.db"


def ask(database, *arguments):
    done = CliRunner().invoke(weir, ["why", *arguments, "--db", database], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    return done.output


def test_the_whole_answer(database):
    text = ask(database, str(KEY))
    for said in (
        "chosen for port 0000000000000001:3 by longest-lived-active",
        "BUF_ALARM: 30 packets, 45000 bytes in the queue",
        "of 3 candidates",
        "W_c = (100 Mbit/s x 250 us + 45000) / 2 = 24062 bytes",
        "W_r' = max(min(24062 / 2, W_r 33553920), MSS 1460) = 12031 bytes",
        "5 MSS less with each ACK",
        "switch 0000000000000001 table 0: 10.0.0.3:80>10.0.0.1:1000",
        "mod_window:12031,alpha:5, idle 5 s, hard 30 s",
        "answer    done, ",
        "flow closed",
        "closed ",
    ):
        assert said in text
    ranking = [line.split()[1] for line in text.splitlines() if ">10.0.0.3:80  " in line and "MB" in line]
    assert ranking == ["10.0.0.1:1000>10.0.0.3:80", "10.0.0.2:1000>10.0.0.3:80", "10.0.0.4:1000>10.0.0.3:80"]


def test_by_hand(database):
    text = ask(database, "2")
    assert "chosen by hand" in text
    assert 'ann asked for it: punish {"flow": 2, "window_bytes": 4000}' in text
    assert "4000 bytes, as asked" in text
    assert "answer    none yet" in text
    assert "it is not lifted" in text


def test_as_json(database):
    (about,) = json.loads(ask(database, "1", "--json"))["flows"]
    assert about["flow"]["src"] == "10.0.0.1"
    assert about["path"][0]["dpid"] == "0000000000000001"
    (decision,) = about["decisions"]
    assert decision["alarm"]["queue_bytes"] == 45_000
    assert decision["command"] is None
    assert decision["entry"]["match"] == "10.0.0.3:80>10.0.0.1:1000"
    assert [one["flow_id"] for one in decision["ranking"]] == [1, 2, 4]
    assert about["clamps"][0]["lift_reason"] == "flow closed"


def test_a_flow_that_was_left_alone(database):
    assert "It was never slowed down." in ask(database, "4")


@pytest.mark.parametrize(
    ("flow", "said"),
    [("99", "holds no flow 99"), ("10.0.0.9:1>10.0.0.3:80", "holds no flow"), ("nonsense", "is no flow")],
)
def test_what_is_not_there(database, flow, said):
    done = CliRunner().invoke(weir, ["why", flow, "--db", database])
    assert done.exit_code == 1
    assert said in done.output
