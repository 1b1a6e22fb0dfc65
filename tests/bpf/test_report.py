"""Flow reports from the kernel, in their wire format."""

from __future__ import annotations

import select
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import HostSettings, SweepTimes
from tests.support.data_plane.bench import BRIDGE, OFPORT, Bench, reverse, syn
from tests.support.data_plane.packets import ACK, FIN, RST, Offer, Segment
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside_others

LOCAL = Segment()
OUT = reverse(LOCAL)
ALL = HostSettings(report_kinds=0b11110)
OPENED, ACTIVE, IDLE, CLOSED = 1, 2, 3, 4


def records(bench: Bench) -> list[bytes]:
    by_bridge, lost = bench.plane.reports()
    assert lost == 0
    data = by_bridge.get(BRIDGE, b"")
    return [data[at : at + 88] for at in range(0, len(data), 88)]


@pytest.mark.parametrize("wakes", [False, True])
def test_report_wakes_the_agent_only_if_configured(bench: Bench, wakes: bool) -> None:
    bench.plane.configure_host(replace(ALL, report_wakes=wakes))
    with select.epoll() as waiting:
        waiting.register(bench.plane.reports_fd(), select.EPOLLIN)
        bench.handshake(LOCAL)
        assert bool(waiting.poll(2 if wakes else 0.1)) is wakes
    assert len(records(bench)) == 1


def test_third_segment_of_the_handshake_reports_the_opening(bench: Bench) -> None:
    bench.plane.configure_host(ALL)
    bench.opening(LOCAL, Offer(mss=1400, scale=7), Offer(mss=1460, scale=9))
    assert records(bench) == []

    bench.ingress(LOCAL)
    (record,) = records(bench)

    assert record[0:4] == bytes([OPENED, 4, 9, 7])
    assert record[4:20] == bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 2])
    assert record[20:36] == bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1])
    assert int.from_bytes(record[36:38]) == LOCAL.dst_port
    assert int.from_bytes(record[38:40]) == LOCAL.src_port
    assert (int.from_bytes(record[40:42]), int.from_bytes(record[42:44])) == (1460, 1400)
    assert record[44:48] == b"\xff\xff\xff\xff"
    assert int.from_bytes(record[48:52]) == OFPORT
    first_ns, last_ns = int.from_bytes(record[64:72]), int.from_bytes(record[72:80])
    rtt_us = int.from_bytes(record[80:84])
    assert 0 < (last_ns - first_ns) // 1000 - rtt_us + 1 <= 2
    assert record[84] == 0


def test_handshake_with_a_repeated_syn_has_no_rtt(bench: Bench) -> None:
    bench.plane.configure_host(ALL)
    bench.ingress(syn(LOCAL))
    bench.handshake(LOCAL)

    (record,) = records(bench)
    assert int.from_bytes(record[80:84]) == 0


@pytest.mark.parametrize(
    ("way", "flags", "reason"), [("egress", FIN | ACK, 1), ("egress", RST, 2), ("ingress", RST | ACK, 2)]
)
def test_end_is_reported_once(bench: Bench, way: str, flags: int, reason: int) -> None:
    bench.handshake(LOCAL)
    bench.ingress(LOCAL)
    bench.plane.configure_host(ALL)
    for _ in range(2):
        getattr(bench, way)(replace(LOCAL if way == "ingress" else OUT, flags=flags))

    (record,) = records(bench)
    assert (record[0], record[84]) == (CLOSED, reason)


@pytest.mark.parametrize("counted", [True, False], ids=["sccp", "sdtcp-alone"])
def test_sweep_reports_active_idle_and_silent_flows(bench: Bench, counted: bool) -> None:
    """Only SCCP sends entries with INCREMENT_NI; SDTCP's policies need the idle flows too."""
    if counted:
        bench.count_by_flags()
    bench.handshake(LOCAL)
    bench.ingress(LOCAL)
    bench.plane.configure_host(ALL)
    bench.egress(replace(OUT, payload=b"x" * 1000))

    bench.plane.sweep(SweepTimes(active_s=1e-9))
    bench.plane.sweep(SweepTimes(active_s=1e-9))
    bench.plane.sweep(SweepTimes(idle_s=1e-9))
    bench.plane.sweep(SweepTimes(silent_s=0))

    got = records(bench)
    assert [(r[0], r[84]) for r in got] == [(ACTIVE, 0), (IDLE, 0), (CLOSED, 3)]
    assert int.from_bytes(got[0][56:64]) > 1000


@pytest.mark.parametrize("counted", [True, False], ids=["sccp", "sdtcp-alone"])
def test_idle_flow_is_reported_once_and_as_active_when_it_sends_again(bench: Bench, counted: bool) -> None:
    if counted:
        bench.count_by_flags()
    bench.handshake_in(LOCAL)
    bench.plane.configure_host(ALL)
    times = SweepTimes(idle_s=0.2, active_s=1e-9)
    bench.egress(replace(OUT, payload=b"x"))
    bench.plane.sweep(times)
    for _ in range(2):
        wait_until(lambda: bench.plane.sweep_is_due(times), "the flow has been silent for the idle time")
        bench.plane.sweep(times)
        bench.plane.sweep(times)
        assert bench.counters.n_i == 0
        assert [record[0] for record in records(bench)][-1] == IDLE
        bench.egress(replace(OUT, payload=b"x"))
        assert bench.counters.n_i == int(counted), "a flow that was never counted stays out of N_i"
        assert [record[0] for record in records(bench)] == [ACTIVE], "at once, not at the next sweep"
        bench.plane.sweep(times)
        assert records(bench) == []


def test_flow_that_has_sent_its_fin_is_not_reported_as_idle(bench: Bench) -> None:
    bench.handshake_in(LOCAL)
    bench.egress(replace(OUT, flags=FIN | ACK))
    bench.plane.configure_host(ALL)

    bench.plane.sweep(SweepTimes(idle_s=1e-9))

    assert records(bench) == []


def test_roll_call_reports_every_open_flow_each_time(bench: Bench) -> None:
    bench.count_by_flags()
    for port in range(1000, 1003):
        bench.handshake(replace(LOCAL, src_port=port))
        bench.ingress(replace(LOCAL, src_port=port))
    bench.egress(replace(OUT, dst_port=1001, flags=FIN | ACK))
    bench.opening(replace(LOCAL, src_port=1003))  # its third segment has not arrived
    bench.plane.configure_host(ALL)

    bench.plane.sweep(SweepTimes(roll_call=True))
    first = records(bench)
    bench.plane.sweep(SweepTimes())
    bench.plane.sweep(SweepTimes(idle_s=1e-9))
    bench.plane.sweep(SweepTimes(idle_s=1e-9, roll_call=True))

    assert sorted((r[0], int.from_bytes(r[38:40])) for r in first) == [(ACTIVE, 1000), (ACTIVE, 1002)]
    reported = sorted((r[0], int.from_bytes(r[38:40])) for r in records(bench))
    assert reported == [(IDLE, 1000), (IDLE, 1000), (IDLE, 1002), (IDLE, 1002)]


def test_only_configured_kinds_are_reported(bench: Bench) -> None:
    bench.plane.configure_host(HostSettings(report_kinds=1 << CLOSED))
    bench.handshake(LOCAL)
    bench.ingress(LOCAL)
    bench.egress(replace(OUT, flags=RST))

    assert [r[0] for r in records(bench)] == [CLOSED]
