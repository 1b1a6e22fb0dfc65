"""The handlers of the telemetry app, with the engine's real parsers and a datapath that records messages."""

import itertools
from types import SimpleNamespace

import pytest

from flowdb.db import FlowDb
from flowdb.flow import PortKey
from flowdb.models import COUNTER_COLUMNS, PortSampleRow, SettingRow
from openflow_ext import wire
from openflow_ext.engine import (
    DEAD_DISPATCHER,
    ofproto_v1_3,
    ofproto_v1_3_parser,
    ofproto_v1_5,
    ofproto_v1_5_parser,
)
from telemetry_app import core
from telemetry_app.app import TelemetryApp
from tests.support.controllers.port_samples import a_record
from tests.support.database.rows import rows
from tests.support.openflow.fake_datapath import FakeDatapath, event
from weir_base.port_counters import PORT_COUNTERS, PortCountersFlags

VERSIONS = [(ofproto_v1_3, ofproto_v1_3_parser), (ofproto_v1_5, ofproto_v1_5_parser)]


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.delenv("WEIR_CONFIG", raising=False)
    flowdb = FlowDb(f"sqlite:///{tmp_path}/weir.db")
    app = TelemetryApp(flowdb=flowdb)
    app.database, app.published = tmp_path / "weir.db", []
    monkeypatch.setattr(app, "send_event_to_observers", app.published.append)
    yield app
    flowdb.close()


@pytest.fixture(params=VERSIONS, ids=["1.3", "1.5"])
def datapath(app, request):
    datapath = FakeDatapath(5)
    datapath.ofproto, datapath.ofproto_parser = request.param
    app.on_switch(event(datapath))
    named(app, datapath, b"s5-eth1")
    return datapath


def named(app, datapath, name, reason=None):
    port = SimpleNamespace(port_no=1, name=name.ljust(16, b"\0"))
    if reason is None:
        app.on_ports(event(datapath, body=[port], flags=0))
    else:
        app.on_port_status(event(datapath, desc=port, reason=reason))


def tick(app):
    app.on_tick(None)


def reply(datapath, *records, more=False, xid=None):
    """The switch's reply to the newest request, encoded and decoded."""
    parser = datapath.ofproto_parser.OFPPortCountersReply
    message = wire.decode_message(wire.encode_message(wire.PortCountersReply(records, more)))
    msg = parser.from_wire(datapath, message)
    msg.xid = datapath.sent[-1].xid if xid is None else xid
    return SimpleNamespace(msg=msg)


def requests_to(datapath):
    return [wire.decode_message(bytes(message.buf)) for message in datapath.sent]


def test_each_reply_is_published_and_recorded(app, datapath):
    for n_i in (1, 2):
        tick(app)
        app.on_counters(reply(datapath, a_record(1, n_i=n_i, drops=7), a_record(2, acks_seen=2**64 - 1)))
    assert requests_to(datapath) == [wire.PortCountersRequest()] * 2
    first, second = app.published
    assert [(s.port, s.name) for s in second.samples] == [(PortKey(5, 1), "s5-eth1"), (PortKey(5, 2), "")]
    assert (second.dpid, second.samples[0].counters) == (5, a_record(1, n_i=2, drops=7))
    assert first.samples[0].at_ns < second.samples[0].at_ns
    app.flowdb.close()
    written = rows(app.database, PortSampleRow)
    assert [(row.dpid, row.port_no, row.n_i, row.drops) for row in written[:2]] == [
        (5, 1, 1, 7),
        (5, 1, 2, 7),
    ]
    assert {row.acks_seen for row in written[2:]} == {2**63 - 1}, "the largest integer of SQL"
    assert [row.at_ns for row in written[:2]] == [event.samples[0].at_ns for event in app.published]
    (noted,) = rows(app.database, SettingRow)
    assert (noted.section, noted.chosen) == ("telemetry", {"sample_s": 1.0})


@pytest.mark.parametrize("first", [0, 100])
def test_a_sample_row_holds_every_recorded_counter(app, datapath, first):
    """Each counter has a different value. Counters without a column of their own are kept as well."""
    counted = {name: first + place for place, name in enumerate(PORT_COUNTERS)}
    tick(app)
    app.on_counters(reply(datapath, a_record(1, **counted)))
    app.flowdb.close()
    (row,) = rows(app.database, PortSampleRow)
    recorded = {name: value for name, value in counted.items() if PORT_COUNTERS[name].recorded}
    assert PortSampleRow.join(vars(row)) == recorded
    assert all(getattr(row, name) == counted[name] for name in COUNTER_COLUMNS)


@pytest.mark.parametrize("up", [True, False])
def test_a_sample_row_says_whether_the_alarm_is_up(app, datapath, up):
    flags = PortCountersFlags.ATTACHED | (PortCountersFlags.ALARM_UP if up else 0)
    tick(app)
    app.on_counters(reply(datapath, a_record(1, flags=flags)))
    app.flowdb.close()
    (row,) = rows(app.database, PortSampleRow)
    assert PortSampleRow.alarm_over(vars(row)) is not up


def test_a_reply_in_parts_is_published_once(app, datapath):
    tick(app)
    for number in range(1, 4):
        app.on_counters(reply(datapath, a_record(number), more=number < 3))
    (event,) = app.published
    assert [sample.port.port_no for sample in event.samples] == [1, 2, 3]


def test_requests_to_a_silent_switch_become_rare(app, datapath, monkeypatch, caplog):
    clock = itertools.count(0, 10**9)
    monkeypatch.setattr("telemetry_app.app.time.monotonic_ns", lambda: next(clock))
    for _ in range(16):
        tick(app)
    assert len(datapath.sent) == 3, "at 0, 5 and 15 s"
    assert caplog.text.count("did not answer a request for port counters; asked again") == 2


def test_a_switch_is_not_asked_after_a_refusal_or_too_many_ports(app, datapath, caplog, monkeypatch):
    tick(app)
    monkeypatch.setattr(core, "MAX_PORTS", 1)
    app.on_counters(reply(datapath, a_record(1), a_record(2)))
    assert "switch 0000000000000005 is not sampled: its reply has more than 1 ports" in caplog.text
    app.on_switch(event(datapath))
    tick(app)
    assert len(datapath.sent) == 1, "the switch has not described its ports"
    app.on_ports(event(datapath, body=[], flags=wire.OFPMPF_REPLY_MORE))
    tick(app)
    assert len(datapath.sent) == 1, "the switch has described only some of its ports"
    app.on_ports(event(datapath, body=[], flags=0))
    tick(app)
    app.on_error(event(datapath, xid=datapath.sent[-1].xid, type=1, code=2))
    tick(app)
    assert len(datapath.sent) == 2
    assert app.published == []


def test_a_switch_is_asked_again_after_an_error_of_its_data_plane(app, datapath, monkeypatch):
    monkeypatch.setattr("telemetry_app.app.time.monotonic_ns", itertools.count(0, 10**9).__next__)
    tick(app)
    app.on_error(event(datapath, xid=datapath.sent[-1].xid, type=wire.OFPET_EXPERIMENTER, exp_type=1))
    for _ in range(5):
        tick(app)
    assert len(datapath.sent) == 2


def test_a_disconnected_switch_is_published_and_not_asked_again(app, datapath):
    newer = FakeDatapath(5)
    app.on_switch(event(newer))
    named(app, newer, b"s5-eth1")
    app.on_switch_gone(SimpleNamespace(datapath=datapath, state=DEAD_DISPATCHER))
    assert app.published == [], "the switch has reconnected in the meantime"
    tick(app)
    assert (len(newer.sent), len(datapath.sent)) == (1, 0)
    app.on_switch_gone(SimpleNamespace(datapath=newer, state=DEAD_DISPATCHER))
    assert [(event.dpid, event.samples) for event in app.published] == [(5, ())]
    tick(app)
    assert len(newer.sent) == 1


def test_samples_follow_port_status_messages(app, datapath):
    ofp = datapath.ofproto
    for name, reason, expected in ((b"new", ofp.OFPPR_MODIFY, "new"), (b"new", ofp.OFPPR_DELETE, "")):
        named(app, datapath, name, reason)
        tick(app)
        app.on_counters(reply(datapath, a_record(1)))
        assert app.published[-1].samples[0].name == expected
