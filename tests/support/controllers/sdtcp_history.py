"""A database with SDTCP's records, written by its app, for tests of its readers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sqlalchemy.orm import Session

from flowdb.db import FlowDb
from flowdb.engine import open_engine
from flowdb.flow import FiveTuple, Flow, Hop
from flowdb.models import CommandRow
from openflow_ext import wire
from sdtcp_app.app import SdtcpApp
from tests.support.openflow.fake_datapath import FakeDatapath, event

KEY = FiveTuple("10.0.0.1", "10.0.0.3", 1000, 80)
ALARM = {
    "port": wire.OfpPort(3),
    "port_buf_pkts": 30,
    "port_buf_bytes": 45_000,
    "port_rate_bps": 100_000_000,
    "n_i": 2,
    "crossing_ns": 5,
    "non_tcp_percent": 0,
    "allowance_bytes": 0,
}


def record(file: Path) -> None:
    """Record that flow 1 (``KEY``) was punished and released, and flow 2 punished by command 77."""
    url = f"sqlite:///{file}"
    flowdb = FlowDb(url)
    app, datapath = SdtcpApp(flowdb=flowdb), FakeDatapath()
    app.on_switch(event(datapath))
    flows = [
        Flow(n, replace(KEY, src=f"10.0.0.{n}"), (Hop(1, n, 3),), n, 1460, 9, 7, 250, n * 10**6, n * 10**6)
        for n in (1, 2, 4)
    ]
    for flow in flows:
        flowdb.flow_opened(flow)
    app.on_alarm(event(datapath, **ALARM))
    app.executor.ask_confirmations()
    app.on_barrier(event(datapath, xid=datapath.sent[-1].xid))
    flowdb.flow_closed(flows[0], flowdb.clock.now_ns(), "fin")
    app.executor.carry_out(app.core.on_flow_closed(flows[0]))
    with Session(open_engine(url)) as session, session.begin():
        arguments = {"flow": 2, "window_bytes": 4000}
        session.add(CommandRow(id=77, kind="punish", arguments=arguments, asked_by="ann", asked_ns=1))
    obeyed = app.commands.obey("punish", arguments, 0)
    app.executor.carry_out(obeyed.decisions, command_id=77)
    flowdb.close()
