"""Flow reports: kinds, batches, roll calls, and the losses of a slow reader."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Address

import pytest

from openflow_ext import wire
from openflow_ext.switch.dataplane.interface import HostSettings, SweepTimes
from openflow_ext.switch.openflow.flow_reports import RECORD_BYTES, WAITING_MAX, FlowReports, Listener
from openflow_ext.wire import FlowKind, FlowKinds
from tests.support.agent.fake_data_plane import FakeDataPlane
from tests.support.agent.proxy_bench import Bench, End, Play, barrier
from tests.support.waiting import wait_until_async

EVERY = FlowKinds.OPENED | FlowKinds.ACTIVE | FlowKinds.IDLE | FlowKinds.CLOSED


def record(kind: FlowKind = FlowKind.OPENED, number: int = 1) -> wire.FlowRecord:
    src, dst = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
    reason = wire.CloseReason.FIN if kind is FlowKind.CLOSED else wire.CloseReason.NONE
    return wire.FlowRecord(
        kind=kind, src=src, dst=dst, src_port=number, dst_port=80, out_port=2, in_port=1,
        scale_src=7, scale_dst=9, mss_src=1460, mss_dst=1448, sent_bytes=74,
        first_ns=1, last_ns=2, handshake_rtt_us=250, reason=reason,
    )  # fmt: skip


def raw(*records: wire.FlowRecord) -> bytes:
    return wire.encode_message(wire.FlowReport(records))[32:]


async def ask(ends: tuple[End, End], config: wire.FlowReportConfig) -> None:
    switch, controller = ends
    controller.send(wire.encode_message(config, xid=3), barrier(4))
    assert await switch.message() == barrier(4)


def test_a_report_states_the_data_plane_s_time(play: Play) -> None:
    async def script(bench: Bench) -> None:
        ends = await bench.join_ready()
        await ask(ends, wire.FlowReportConfig(FlowKinds.OPENED))
        bench.plane.clock_ns = 1_732_100_000_224_999_999
        bench.plane.report(1, raw(record()))
        stated = wire.FlowReport((record(),), now_ms=224, now_s=1_732_100_000)
        assert wire.decode_message(await ends[1].message()) == stated

    play(script)


def test_a_controller_may_ask_before_the_handshake_is_complete(play: Play) -> None:
    """It has sent FEATURES_REQUEST and FLOW_REPORT_CONFIG together."""

    async def script(bench: Bench) -> None:
        ends = await bench.join()
        await ask(ends, wire.FlowReportConfig(FlowKinds.OPENED))
        bench.plane.report(1, raw(record()))
        assert wire.decode_message(await ends[1].message()) == wire.FlowReport((record(),))

    play(script)


def test_each_controller_gets_the_kinds_that_it_asked_for(play: Play) -> None:
    async def script(bench: Bench) -> None:
        all_of_them, openings = await bench.join_ready(), await bench.join_ready()
        await ask(all_of_them, wire.FlowReportConfig(EVERY))
        await ask(openings, wire.FlowReportConfig(FlowKinds.OPENED))
        assert bench.plane.host == HostSettings(report_kinds=int(EVERY), report_wakes=True)
        records = (record(), record(FlowKind.CLOSED), record(number=2))
        bench.plane.report(1, raw(*records))
        bench.plane.report(2, raw(record(number=9)))
        assert wire.decode_message(await all_of_them[1].message()) == wire.FlowReport(records)
        assert wire.decode_message(await openings[1].message()) == wire.FlowReport((records[0], records[2]))
        await ask(all_of_them, wire.FlowReportConfig())
        assert bench.plane.host == HostSettings(report_kinds=int(FlowKinds.OPENED), report_wakes=True)
        openings[1].writer.close()
        assert await openings[0].ends()
        assert bench.plane.host == HostSettings()

    play(script)


def test_reports_of_an_interval_come_in_one_message(play: Play) -> None:
    async def script(bench: Bench) -> None:
        ends = await bench.join_ready()
        await ask(ends, wire.FlowReportConfig(EVERY, interval_ms=200))
        for number in range(5):
            bench.plane.report(1, raw(record(number=number)))
        report = wire.decode_message(await ends[1].message())
        assert [one.src_port for one in report.records] == [0, 1, 2, 3, 4]  # type: ignore[union-attr]
        assert report.lost == 0  # type: ignore[union-attr]

    play(script)


def test_the_first_record_of_a_burst_waits_for_the_others(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the agent nor the controller runs during the handshakes of a burst."""
    monkeypatch.setattr("openflow_ext.switch.openflow.flow_reports.PAUSE_S", 60)

    async def script(bench: Bench) -> None:
        switch, controller = await bench.join_ready()
        await ask((switch, controller), wire.FlowReportConfig(EVERY, interval_ms=60_000))
        bench.plane.report(1, raw(record()))
        for xid in (5, 6):  # the agent has read the waiting records
            controller.send(barrier(xid))
            assert await switch.message() == barrier(xid)
        assert bench.plane.reports() == ({1: raw(record())}, 0)

    play(script)


def test_records_from_before_the_first_request_are_discarded(play: Play) -> None:
    async def script(bench: Bench) -> None:
        ends = await bench.join_ready()
        bench.plane.report(1, raw(record(number=1)), lost=3)
        await ask(ends, wire.FlowReportConfig(EVERY))
        bench.plane.report(1, raw(record(number=2)))
        assert wire.decode_message(await ends[1].message()) == wire.FlowReport((record(number=2),))

    play(script)


def test_records_of_a_roll_call_reach_the_other_listeners_too() -> None:
    async def script() -> None:
        sent: list[bytes] = []
        plane = FakeDataPlane()
        reports = FlowReports(plane)
        config = wire.FlowReportConfig(FlowKinds.OPENED)
        reports.ask(1, Listener(1, config, wire.OFP13, lambda data: not sent.append(data)))
        reports.ask(2, Listener(1, wire.FlowReportConfig(EVERY), wire.OFP13, lambda _: True))
        plane.report(1, raw(record()))
        await reports.sweep()
        assert [wire.decode_message(data) for data in sent] == [wire.FlowReport((record(),))]

    asyncio.run(script())


def test_many_records_are_divided_into_messages_and_losses_reported_once(play: Play) -> None:
    async def script(bench: Bench) -> None:
        ends = await bench.join_ready()
        await ask(ends, wire.FlowReportConfig(EVERY, interval_ms=60_000))
        bench.plane.report(1, raw(record()) * (2 * wire.FLOW_REPORT_MAX + 1), lost=3)
        reports = [wire.decode_message(await ends[1].message()) for _ in range(3)]
        sizes = [len(report.records) for report in reports]  # type: ignore[union-attr]
        assert sizes == [wire.FLOW_REPORT_MAX, wire.FLOW_REPORT_MAX, 1]
        assert [report.lost for report in reports] == [3, 0, 0]  # type: ignore[union-attr]

    play(script)


def test_a_slow_reader_loses_records_and_learns_how_many() -> None:
    sent: list[bytes] = []
    takes = False

    def send(message: bytes) -> bool:
        if takes:
            sent.append(message)
        return takes

    listener = Listener(1, wire.FlowReportConfig(EVERY), wire.OFP15, send)
    listener.add(raw(record()) * (WAITING_MAX - 1), 5)
    listener.add(raw(record()) * 3, 0)
    assert len(listener) == WAITING_MAX
    assert not listener.flush(now_ns=0)
    takes = True
    assert listener.flush(now_ns=0)
    assert sum(len(message) - 32 for message in sent) == WAITING_MAX * RECORD_BYTES
    assert [int.from_bytes(message[16:24], "big") for message in sent[:2]] == [7, 0]
    assert listener.flush(now_ns=0)
    assert sent[0][0] == wire.OFP15


@pytest.mark.parametrize(
    ("asked", "times", "every_s"),
    [
        ([], SweepTimes(idle_s=1.0), 0.5),
        ([(0, 0)], SweepTimes(idle_s=1.0), 0.5),
        ([(0, 4000), (0, 3000)], SweepTimes(idle_s=3.0), 1.0),
        ([(500, 0), (0, 9000), (400, 0)], SweepTimes(idle_s=9.0, active_s=0.4), 0.2),
        ([(10, 0)], SweepTimes(idle_s=1.0, active_s=0.01), 0.1),
    ],
)
def test_the_shortest_requested_times_are_in_force(
    asked: list[tuple[int, int]], times: SweepTimes, every_s: float
) -> None:
    reports = FlowReports(FakeDataPlane(), idle_s=1.0)
    for who, (active_ms, idle_ms) in enumerate(asked):
        config = wire.FlowReportConfig(EVERY, active_ms=active_ms, idle_ms=idle_ms)
        reports.ask(who, Listener(1, config, wire.OFP13, lambda _: True))
    assert reports.times() == times
    assert reports.sweep_every_s() == every_s


@pytest.mark.parametrize("again", [FlowKinds.ACTIVE, FlowKinds.IDLE])
def test_a_request_for_living_flows_gets_one_complete_roll_call(play: Play, again: FlowKinds) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join_ready()
        bench.plane.living = {1: raw(record(FlowKind.ACTIVE)) * (wire.FLOW_REPORT_MAX + 1), 2: raw(record())}
        await ask((switch, controller), wire.FlowReportConfig(FlowKinds.OPENED | FlowKinds.CLOSED))
        await bench.reports.sweep()
        await ask((switch, controller), wire.FlowReportConfig(EVERY, interval_ms=1))
        for _ in range(2):
            await bench.reports.sweep()
        told = [wire.FlowReport()]
        while not told[-1].roll_called:
            told.append(wire.decode_message(await controller.message()))  # type: ignore[arg-type]
        assert sum(len(report.records) for report in told) == wire.FLOW_REPORT_MAX + 1
        bench.plane.living.clear()
        await ask((switch, controller), wire.FlowReportConfig(again))
        await bench.reports.sweep()
        assert wire.decode_message(await controller.message()) == wire.FlowReport(roll_called=True)
        assert bench.plane.roll_calls == [False, True, False, True]
        switch.send(barrier(8))
        assert await controller.message() == barrier(8), "nothing else"

    play(script)


def test_the_flow_table_is_swept_only_when_a_sweep_is_due() -> None:
    async def script() -> None:
        plane = FakeDataPlane()
        reports = FlowReports(plane)
        plane.quiet = True
        await reports.sweep()
        assert plane.roll_calls == []
        reports.ask(1, Listener(1, wire.FlowReportConfig(EVERY), wire.OFP13, lambda _: True))
        await reports.sweep()
        assert plane.roll_calls == [True], "a controller awaits a roll call"
        plane.quiet = False
        await reports.sweep()
        assert plane.roll_calls == [True, False]

    asyncio.run(script())


def test_a_listener_without_news_has_no_timer() -> None:
    async def script() -> None:
        plane, sent = FakeDataPlane(), list[bytes]()
        reports = FlowReports(plane)
        reports.start()
        config = wire.FlowReportConfig(FlowKinds.OPENED, interval_ms=200)
        listener = Listener(1, config, wire.OFP13, lambda data: not sent.append(data))
        reports.ask(1, listener)
        await reports.sweep()
        assert listener.timer is None
        assert reports._read_timer is None
        plane.report(1, raw(record()))
        await wait_until_async(lambda: sent, "the report")
        assert wire.decode_message(sent[0]) == wire.FlowReport((record(),))
        await wait_until_async(lambda: listener.timer is None, "no timer is left")
        reports.stop()

    asyncio.run(script())


def test_a_roll_call_ends_only_after_a_sweep_that_began_after_the_request() -> None:
    async def script() -> None:
        sent: list[bytes] = []
        reports = FlowReports(FakeDataPlane())
        config = wire.FlowReportConfig(EVERY)
        first, second = (
            Listener(1, config, wire.OFP13, lambda data: not sent.append(data)) for _ in range(2)
        )
        reports.ask(1, first)
        sweep = asyncio.create_task(reports.sweep())
        await asyncio.sleep(0)  # the sweep is running
        reports.ask(1, second)
        await sweep
        assert sent == [], "the first is forgotten, the second asked too late"
        await reports.sweep()
        assert [wire.decode_message(data) for data in sent] == [wire.FlowReport(roll_called=True)]

    asyncio.run(script())


def test_the_simple_count_is_set_in_the_data_plane() -> None:
    plane = FakeDataPlane()
    reports = FlowReports(plane, simple_count=True, idle_s=0)
    reports.ask(1, Listener(1, wire.FlowReportConfig(FlowKinds.IDLE, 10), wire.OFP13, lambda _: True))
    assert plane.host == HostSettings(report_kinds=int(FlowKinds.IDLE), simple_count=True, report_wakes=True)
    assert reports.sweep_every_s() == 1.0
