"""The fabric's meters as OpenFlow messages: a switch that has them, refuses them, or has none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fabric_app.app import FabricApp
from fabric_app.meters import READ_NS
from tests.support.openflow.fake_datapath import FakeDatapath, event
from tests.support.openflow.scripted_switch import mac

MOST = 65_536
ADDED, MODIFIED, DELETED = 0, 1, 2
METER_MOD_FAILED, METER_EXISTS, UNKNOWN_METER, OUT_OF_METERS = 12, 1, 3, 10
BAD_ACTION, BAD_VENDOR = 2, 3
LIMITS = 9


@pytest.fixture(params=[4, 6])
def datapath(request: pytest.FixtureRequest, app: FabricApp) -> FakeDatapath:
    """A switch with the ports 1 and 2, which has just connected."""
    datapath = FakeDatapath(version=request.param)
    app.on_switch(event(datapath))
    app.on_ports(event(datapath, body=[of_port(datapath, 1), of_port(datapath, 2)], flags=0))
    return datapath


def of_port(datapath: FakeDatapath, number: int) -> Any:
    if datapath.ofproto.OFP_VERSION == 6:
        return datapath.ofproto_parser.OFPPort(number, 40, mac(number), b"h", 0, 0, [])
    return datapath.ofproto_parser.OFPPort(number, mac(number), b"h", 0, 0, 0, 0, 0, 0, 0, 0)


def last(datapath: FakeDatapath, *names: str) -> Any:
    """The last message of a class."""
    return [message for message in datapath.sent if type(message).__name__ in names][-1]


def meter_mods(datapath: FakeDatapath) -> list[tuple[int, int, int, bytes]]:
    """The METER_MODs as they are on the wire: command, flags, id, bands."""
    return [
        (
            int.from_bytes(message.buf[8:10], "big"),
            int.from_bytes(message.buf[10:12], "big"),
            int.from_bytes(message.buf[12:16], "big"),
            bytes(message.buf[16:]),
        )
        for message in datapath.sent
        if message.msg_type == 29
    ]


def answer(datapath: FakeDatapath, asked: Any, *body: Any, flags: int = 0) -> SimpleNamespace:
    return event(datapath, xid=asked.xid, body=list(body), flags=flags)


def offer(app: FabricApp, datapath: FakeDatapath, *existing: Any, capabilities: int = 15) -> None:
    """The switch states that it has meters, and which; then time passes."""
    features = SimpleNamespace(max_meter=MOST, band_types=2, capabilities=capabilities, max_bands=1)
    app.on_meter_features(answer(datapath, last(datapath, "OFPMeterFeaturesStatsRequest"), features))
    if not capabilities & 2:
        return
    asked = last(datapath, "OFPMeterConfigStatsRequest", "OFPMeterDescStatsRequest")
    app.on_meters(answer(datapath, asked, *existing))
    app.on_tick(None)


def process(app: FabricApp, datapath: FakeDatapath) -> None:
    """The switch has processed all messages; then time passes."""
    app.on_barrier(event(datapath, xid=last(datapath, "OFPBarrierRequest").xid))
    app.on_tick(None)


def refuse(app: FabricApp, datapath: FakeDatapath, message: Any, type_: int, code: int) -> None:
    app.on_error(event(datapath, xid=message.xid, type=type_, code=code))


def metered_ports(datapath: FakeDatapath) -> set[int]:
    """The ports for which the switch was sent entries with meters."""
    return {mod.match["in_port"] for mod in datapath.flow_mods() if is_metered(mod) and mod.command == ADDED}


def is_metered(mod: Any) -> bool:
    return mod.table_id == LIMITS and "in_port" in mod.match


def existing(datapath: FakeDatapath, meter_id: int, per_s: int, burst: int, flags: int = 14) -> Any:
    band = datapath.ofproto_parser.OFPMeterBandDrop(rate=per_s, burst_size=burst)
    return SimpleNamespace(meter_id=meter_id, flags=flags, bands=[band])


def test_each_port_gets_meters_and_then_entries_that_use_them(app: FabricApp, datapath: FakeDatapath) -> None:
    offer(app, datapath)
    band = "0001 0010 {:08x} {:08x} 00000000"
    rates = [(256, 512), (1000, 2000), (200, 400)]
    assert meter_mods(datapath) == [
        (ADDED, 14, MOST - number, bytes.fromhex(band.format(*rates[number % 3]))) for number in range(6)
    ]
    assert metered_ports(datapath) == set(), "not before the switch has accepted the meters"
    process(app, datapath)
    assert metered_ports(datapath) == {1, 2}
    shown = [
        m for m in datapath.sent if m.msg_type == 14 and m.table_id == 2 and m.priority in (80, 100, 200)
    ]
    actions = [[type(a).__name__ for i in m.instructions for a in getattr(i, "actions", [])] for m in shown]
    assert actions[-17:] == [[]] * 5 + [["NXActionResubmitTable"]] * 12, "nothing passes by the meters"
    diverted = [i for m in shown[-17:-12] for i in m.instructions]
    assert [i.table_id for i in diverted] == [LIMITS] * 5


def test_meters_of_earlier_sessions_are_modified_and_meters_of_others_left(
    app: FabricApp, datapath: FakeDatapath
) -> None:
    offer(
        app,
        datapath,
        existing(datapath, MOST, 200, 400),
        existing(datapath, MOST - 1, 200, 100),
        existing(datapath, MOST - 2, 200, 400, flags=13),
        existing(datapath, 5, 200, 400),
    )
    mods = [(command, meter_id) for command, _, meter_id, _ in meter_mods(datapath)]
    assert mods == [(MODIFIED, MOST), *((ADDED, MOST - number) for number in range(3, 8))]


def test_a_switch_without_meters_is_limited_by_the_controller_alone(
    app: FabricApp, datapath: FakeDatapath, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(app, datapath, last(datapath, "OFPMeterFeaturesStatsRequest"), 1, 2)
    app.on_tick(None)
    assert meter_mods(datapath) == []
    assert "has no meters" not in [one.message for one in caplog.records if one.levelname == "WARNING"]


def test_meters_that_count_no_packets_are_not_used(app: FabricApp, datapath: FakeDatapath) -> None:
    offer(app, datapath, capabilities=13)
    app.on_tick(None)
    assert meter_mods(datapath) == []


def test_a_port_whose_meter_is_refused_is_not_limited(
    app: FabricApp, datapath: FakeDatapath, caplog: pytest.LogCaptureFixture
) -> None:
    offer(app, datapath)
    refused = next(message for message in datapath.sent if message.msg_type == 29)
    refuse(app, datapath, refused, METER_MOD_FAILED, OUT_OF_METERS)
    process(app, datapath)
    assert metered_ports(datapath) == {2}
    assert f"switch 0000000000000001 refuses meter {MOST} for port 1: type 12 code 10" in caplog.text
    assert sorted(mod[2] for mod in meter_mods(datapath) if mod[0] == DELETED) == [MOST - 2, MOST - 1]


def test_a_meter_whose_id_another_app_took_gets_another_one(app: FabricApp, datapath: FakeDatapath) -> None:
    offer(app, datapath)
    refused = next(message for message in datapath.sent if message.msg_type == 29)
    refuse(app, datapath, refused, METER_MOD_FAILED, METER_EXISTS)
    process(app, datapath)
    assert metered_ports(datapath) == {2}
    process(app, datapath)
    assert metered_ports(datapath) == {1, 2}
    added = [mod[2] for mod in meter_mods(datapath) if mod[0] == ADDED]
    assert added.count(MOST) == 1


def test_a_switch_that_refuses_entries_with_meters_is_not_limited(
    app: FabricApp, datapath: FakeDatapath, caplog: pytest.LogCaptureFixture
) -> None:
    offer(app, datapath)
    process(app, datapath)
    entry = next(m for m in datapath.sent if m.msg_type == 14 and m.table_id == LIMITS and m.priority == 20)
    datapath.sent.clear()
    refuse(app, datapath, entry, BAD_ACTION, BAD_VENDOR)
    app.on_tick(None)
    mods = datapath.flow_mods()
    again = [mod for mod in mods if mod.table_id == 2 and mod.command == ADDED]
    assert len(again) == 17, "the controller gets these frames directly again"
    assert {mod.match["in_port"] for mod in mods if is_metered(mod)} == {1, 2}
    assert len(meter_mods(datapath)) == 6
    assert "refuses an entry of table 9 with a meter: type 2 code 3" in caplog.text
    process_all = [message for message in datapath.sent if message.msg_type == 29]
    first_meter = datapath.sent.index(process_all[0])
    assert all(m.msg_type != 14 for m in datapath.sent[first_meter:]), (
        "meters are deleted after their entries"
    )


def read_port_2(app: FabricApp, datapath: FakeDatapath) -> list[Any]:
    """Time passes; the requests for the counters of the meters of port 2: it is that port's turn."""
    now_ns = app.flowdb.clock.now_ns() + READ_NS
    app.flowdb.clock.now_ns = lambda: now_ns  # type: ignore[method-assign]
    datapath.sent.clear()
    app.on_tick(None)
    asked = [message for message in datapath.sent if type(message).__name__ == "OFPMeterStatsRequest"]
    assert [message.meter_id for message in asked] == [MOST - 3, MOST - 4, MOST - 5]
    return asked


def test_what_meters_drop_is_counted_and_logged(
    app: FabricApp, datapath: FakeDatapath, caplog: pytest.LogCaptureFixture
) -> None:
    offer(app, datapath)
    process(app, datapath)
    for message, count in zip(read_port_2(app, datapath), (3, 5, 7), strict=True):
        band = SimpleNamespace(packet_band_count=count)
        statistics = SimpleNamespace(meter_id=message.meter_id, band_stats=[band])
        for _ in range(2):
            app.on_meter_read(answer(datapath, message, statistics))
    for reason, count in (("packet-ins", 10), ("segments", 5)):
        labels = {"dpid": "0000000000000001", "port_no": "2", "reason": reason}
        assert app.metrics.registry.get_sample_value("weir_fabric_refused_total", labels) == count
    lines = [one.getMessage() for one in caplog.records if "refused" in one.getMessage()]
    assert len(lines) == 2
    assert "port 0000000000000001:2: refused: packet-ins above [fabric] port_packet_ins_per_s" in lines


@pytest.mark.parametrize("is_error", [True, False])
def test_a_port_whose_meter_was_deleted_gets_new_ones_and_new_entries(
    app: FabricApp, datapath: FakeDatapath, is_error: bool
) -> None:
    offer(app, datapath)
    process(app, datapath)
    asked = read_port_2(app, datapath)
    if is_error:
        refuse(app, datapath, asked[0], 1, 5)
        refuse(app, datapath, asked[1], METER_MOD_FAILED, UNKNOWN_METER)
    else:
        app.on_meter_read(answer(datapath, asked[1]))
    app.on_tick(None)
    assert [mod[0] for mod in meter_mods(datapath)] == [DELETED] * 2 + [ADDED] * 3
    process(app, datapath)
    assert metered_ports(datapath) == {2}


def test_a_new_session_asks_again(app: FabricApp, datapath: FakeDatapath) -> None:
    offer(app, datapath)
    process(app, datapath)
    app.on_switch_gone(SimpleNamespace(datapath=datapath))
    again = FakeDatapath(version=datapath.ofproto.OFP_VERSION)
    app.on_switch(event(again))
    app.on_ports(event(again, body=[of_port(again, 1)], flags=0))
    offer(app, again, *(existing(again, MOST - number, 200, 400) for number in range(6)))
    assert [mod[0] for mod in meter_mods(again)] == [MODIFIED] * 3
    process(app, again)
    assert metered_ports(again) == {1}
