"""The delay line between veth pairs in private network namespaces."""

from __future__ import annotations

import signal
import socket
import struct
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.lab.delay_bench import DelayBench, Report, balance, delay_bench
from tests.support.waiting import wait_until

PAIRS = 30
SOL_PACKET, PACKET_AUXDATA, ETH_P_ALL = 263, 8, 3
SLACK_US = 20_000.0
"""A busy machine may stop the programs. The lab's own bound decides on runs, not on tests."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[DelayBench]:
    with delay_bench(tmp_path) as one:
        yield one


def assert_all_counted(report: Report) -> None:
    for name, link in report["links"].items():
        for direction, counts in link.items():
            where = f"{name} {direction}: {counts}"
            assert balance(counts) == 0, where
            assert counts["unseen"] == counts["vanished"] == counts["ring_dropped"] == 0, where


def test_every_packet_of_30_links_waits_for_its_delay(tmp_path: Path) -> None:
    with delay_bench(tmp_path, PAIRS) as bench:
        bench.start("delay_us=5000", "delay_us=20000", "--priority", "50")
        measured = bench.probe(40, "--bytes", "1514", "--priority", "40")
        report = bench.stop()
    assert_all_counted(report)
    assert len(report["links"]) == PAIRS
    for direction, delay_us in (("up", 5000), ("down", 20_000)):
        found = measured[direction]
        assert (found["sent"], found["received"], found["reordered"]) == (40 * PAIRS, 40 * PAIRS, 0)
        assert delay_us - 100 < found["delay_us"]["least"]
        assert delay_us <= found["delay_us"]["p50"] < delay_us + SLACK_US
        for link in report["links"].values():
            assert link[direction]["sent"] == 40
            assert link[direction]["lateness_us"]["pkts"] == 40
    assert report["lateness_us"]["pkts"] == 2 * 40 * PAIRS
    assert report["last"] is True


@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_jitter_spreads_delays_and_keeps_the_order(bench: DelayBench, kind: str) -> None:
    bench.start(f"delay_us=30000,jitter_us=5000,{kind}")
    up = bench.probe(400, "--interval-us", "1000")["up"]
    assert_all_counted(bench.stop())
    assert (up["received"], up["reordered"]) == (400, 0)
    assert up["delay_us"]["least"] < 30_000
    assert up["delay_us"]["most"] > 33_000
    assert up["delay_us"]["least"] > (24_900 if kind == "uniform" else 0)


def test_losses_are_counted(bench: DelayBench) -> None:
    bench.start("loss=10", "loss=100")
    measured = bench.probe(1000, "--interval-us", "100")
    link = bench.stop()["links"]["l0"]
    lost = link["up"]["lost"]
    assert 60 < lost < 140
    assert measured["up"]["received"] == 1000 - lost
    assert (link["down"]["lost"], measured["down"]["received"]) == (1000, 0)


def test_duplicates_are_counted(bench: DelayBench) -> None:
    bench.start("delay_us=1000,duplicate=20", "duplicate=100")
    measured = bench.probe(500, "--interval-us", "100")
    report = bench.stop()
    assert_all_counted(report)
    link = report["links"]["l0"]
    assert 60 < link["up"]["duplicated"] < 140
    assert measured["up"]["received"] == 500 + link["up"]["duplicated"] == link["up"]["sent"]
    assert measured["down"]["received"] == 1000


def test_reordered_packets_overtake_others(bench: DelayBench) -> None:
    bench.start("delay_us=20000,reorder=10")
    up = bench.probe(1000, "--interval-us", "100")["up"]
    report = bench.stop()
    assert_all_counted(report)
    assert 60 < report["links"]["l0"]["up"]["overtaking"] < 140
    assert up["reordered"] > 60
    assert up["delay_us"]["least"] < 20_000


def test_a_delay_changes_while_the_line_runs(bench: DelayBench) -> None:
    bench.start("delay_us=1000", "delay_us=1000")
    assert bench.probe(20)["up"]["delay_us"]["p50"] < 20_000
    bench.change("delay_us=40000", "delay_us=1000")
    measured = bench.probe(20)
    assert measured["up"]["delay_us"]["least"] >= 39_900
    assert measured["down"]["delay_us"]["p50"] < 20_000
    bench.change("delay_us=wrong", "-", "not_changed")
    assert bench.probe(20)["up"]["delay_us"]["least"] >= 39_900
    assert_all_counted(bench.stop())


def test_a_report_shows_the_packets_that_wait(bench: DelayBench) -> None:
    bench.start("delay_us=3000000")
    bench.probe(50, "--wait-ms", "0")
    up = bench.report()["links"]["l0"]["up"]
    assert (up["received"], up["waiting"], up["sent"]) == (50, 50, 0)
    assert balance(up) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_packets_that_wait_at_the_end_are_counted(bench: DelayBench, number: int) -> None:
    bench.start("delay_us=10000000")
    bench.probe(50, "--wait-ms", "0")
    report = bench.stop(number)
    up = report["links"]["l0"]["up"]
    assert (up["discarded"], up["waiting"], up["sent"]) == (50, 0, 0)
    assert_all_counted(report)


def test_packets_beyond_the_memory_are_counted(bench: DelayBench) -> None:
    bench.start("delay_us=3000000", "-", "--memory-mb", "1")
    bench.probe(1000, "--wait-ms", "0", "--interval-us", "100", "--bytes", "1514")
    up = bench.stop()["links"]["l0"]["up"]
    assert up["no_room"] > 200
    assert balance(up) == 0


def _addresses(bench: DelayBench) -> None:
    bench.hosts.run("ip", "addr", "add", "10.9.0.1/24", "dev", "h0")
    bench.switch.run("ip", "addr", "add", "10.9.0.2/24", "dev", "s0")


def test_packets_of_hosts_with_offloads_arrive_whole(tmp_path: Path) -> None:
    """TCP with segmentation offload and partial checksums: large packets pass, and their bytes are right."""
    with delay_bench(tmp_path, offloads=True) as bench:
        _addresses(bench)
        bench.start("delay_us=2000", "delay_us=2000")
        received = _transfer(bench, 3_000_000)
        report = bench.stop()
    assert received == bytes(range(250)) * 12_000
    assert_all_counted(report)
    up = report["links"]["l0"]["up"]
    assert up["too_large"] == 0
    assert up["received"] < 3_000_000 / 3000, "the packets were not larger than a frame of the ring"


def _transfer(bench: DelayBench, size: int) -> bytes:
    """Send bytes by TCP from host to switch, and return those that arrive."""
    data = bytes(range(250)) * (size // 250)
    with bench.switch.socket() as listener, bench.hosts.socket() as sender:
        listener.bind(("10.9.0.2", 5000))
        listener.listen()
        sender.settimeout(20)
        sender.connect(("10.9.0.2", 5000))
        receiver, _ = listener.accept()
        sending = threading.Thread(target=lambda: (sender.sendall(data), sender.shutdown(socket.SHUT_WR)))
        sending.start()
        with receiver:
            receiver.settimeout(20)
            parts = list(iter(lambda: receiver.recv(1 << 16), b""))
        sending.join()
    return b"".join(parts)


@pytest.mark.parametrize("tpid", [0x8100, 0x88A8])
def test_vlan_tags_survive(bench: DelayBench, tpid: int) -> None:
    """The kernel takes a tag out of a frame that it receives, and packet sockets get it beside the frame."""
    raw = (socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(ETH_P_ALL))
    frame = bytes(12) + struct.pack("!HHH", tpid, 0x6007, 0x88B5) + bytes(range(100))
    bench.start("delay_us=5000")
    with bench.hosts.socket(*raw) as sender, bench.switch.socket(*raw) as receiver:
        receiver.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        receiver.settimeout(20)
        receiver.bind(("s0", ETH_P_ALL))
        sender.bind(("h0", 0))
        sender.send(frame)
        got, extra, _, _ = receiver.recvmsg(2000, 100)
    assert got == frame[:12] + frame[16:]
    ((_, _, auxdata),) = extra
    *_, tci, found_tpid = struct.unpack("=IIIHHHH", auxdata)
    assert (found_tpid, tci) == (tpid, 0x6007)
    assert_all_counted(bench.stop())


def test_an_interface_that_goes_down_and_up_again(bench: DelayBench) -> None:
    bench.start("delay_us=1000", "delay_us=1000")
    bench.line.run("ip", "link", "set", "b0", "down")
    wait_until(lambda: bench.report()["links"]["l0"]["down"]["downs"] == 1, "the interface is down")
    before = bench.report()["links"]["l0"]["up"]
    bench.hosts.run("ip", "link", "set", "h0", "down")
    bench.hosts.run("ip", "link", "set", "h0", "up")
    bench.line.run("ip", "link", "set", "b0", "up")
    measured = bench.probe(20)
    assert measured["up"]["received"] == measured["down"]["received"] == 20
    after = bench.stop()["links"]["l0"]["up"]
    assert balance(before) == balance(after) == 0


def test_packets_to_an_interface_that_is_down_are_counted(bench: DelayBench) -> None:
    _addresses(bench)
    bench.start("delay_us=1000")
    bench.line.run("ip", "link", "set", "b0", "down")
    bench.hosts.run("sh", "-c", "ping -c 2 -i 0.1 -W 1 10.9.0.2 || true")
    up = bench.stop()["links"]["l0"]["up"]
    assert up["received"] == up["refused"] > 0
    assert up["sent"] == 0


def test_a_removed_interface_ends_the_line_with_a_report(bench: DelayBench) -> None:
    bench.start("delay_us=1000")
    bench.switch.run("ip", "link", "del", "s0")
    assert bench.wait_ended() == 1
    assert bench.reports()[-1]["last"] is True


def test_an_interface_that_is_down_and_removed_later_ends_the_line(bench: DelayBench) -> None:
    """Its packet socket has no second error, and ``ip link del`` is often seen as these two steps."""
    bench.start("delay_us=1000")
    bench.line.run("ip", "link", "set", "b0", "down")
    wait_until(lambda: bench.report()["links"]["l0"]["down"]["downs"], "the line notices the first step")
    bench.switch.run("ip", "link", "del", "s0")
    assert bench.wait_ended() == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("l0 a0 b0 loss=200 -", "link l0: loss=200: want a percentage from 0 to 100"),
        ("l0 a0 nothere - -", "there is no interface nothere in this network namespace"),
        ("l0 a0 b0", "want NAME HOST_INTERFACE SWITCH_INTERFACE UP DOWN"),
        ("", "names no link"),
    ],
)
def test_a_wrong_file_is_refused(bench: DelayBench, line: str, message: str) -> None:
    assert message in bench.refusal(line)


def test_counters_grow_and_latenesses_start_anew_with_each_report(bench: DelayBench) -> None:
    bench.start("delay_us=1000")
    found = []
    for _ in range(3):
        bench.probe(10, "--wait-ms", "100")
        found.append(bench.report())
    counts = [report["links"]["l0"]["up"]["sent"] for report in found]
    assert [after - before for before, after in pairwise(counts)] == [10, 10]
    assert [report["lateness_us"]["pkts"] for report in found] == [20, 20, 20]
