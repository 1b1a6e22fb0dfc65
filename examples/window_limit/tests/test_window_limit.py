"""The app's entries and settings, with the real parser and a datapath that records what is sent."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from window_limit_app.app import WindowLimitApp
from window_limit_app.config import Limit
from window_limit_app.stage import STAGE

from flowdb.db import FlowDb
from openflow_ext import wire
from openflow_ext.engine import ofproto_v1_3, ofproto_v1_3_parser


class RecordingDatapath:
    """Serializes every message, so that a value that cannot be sent fails the test."""

    id = 1
    ofproto, ofproto_parser = ofproto_v1_3, ofproto_v1_3_parser

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send_msg(self, msg: Any) -> None:
        msg.set_xid(len(self.sent) + 1)
        msg.serialize()
        self.sent.append(msg)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    file = tmp_path / "weir.toml"
    file.write_text('[[window_limit.limits]]\nsubnet = "10.1.0.0/16"\nwindow_bytes = 29200\n')
    monkeypatch.setenv("WEIR_CONFIG", str(file))
    flowdb = FlowDb(f"sqlite:///{tmp_path}/weir.db")
    yield WindowLimitApp(flowdb=flowdb)
    flowdb.close()


def test_a_switch_gets_one_entry_for_each_limit(app: Any) -> None:
    datapath = RecordingDatapath()
    app.on_switch(SimpleNamespace(msg=SimpleNamespace(datapath=datapath, datapath_id=datapath.id)))
    delete, entry = datapath.sent
    assert (delete.command, delete.table_id) == (ofproto_v1_3.OFPFC_DELETE, STAGE.table)
    assert (entry.table_id, entry.cookie) == (STAGE.table, STAGE.cookie)
    assert entry.match["ipv4_src"] == ("10.1.0.0", "255.255.0.0")
    actions, goto = entry.instructions
    assert actions.actions[0].to_wire() == wire.SetWindow(29200)
    assert goto.table_id > STAGE.table


def test_a_refused_entry_is_counted(app: Any) -> None:
    datapath = RecordingDatapath()
    app.on_switch(SimpleNamespace(msg=SimpleNamespace(datapath=datapath, datapath_id=datapath.id)))
    for xid in (datapath.sent[-1].xid, 99):
        app.on_error(SimpleNamespace(msg=SimpleNamespace(datapath=datapath, xid=xid, type=3, code=2)))
    value = app.metrics.registry.get_sample_value
    assert value("weir_window_limit_entries_total") == 1
    assert value("weir_window_limit_refused_total") == 1


@pytest.mark.parametrize("window_bytes", [0, 2**31])
def test_an_impossible_window_is_refused(window_bytes: int) -> None:
    with pytest.raises(ValidationError, match="window_bytes"):
        Limit.model_validate({"subnet": "10.0.0.0/8", "window_bytes": window_bytes})
