"""The alarm on a real queue: a veth with a slow HTB root, filled and emptied by the test."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from openflow_ext.switch.dataplane import PortSettings, QueueEvent
from openflow_ext.switch.kernel import KernelDataPlane

K_PKTS = 10
RTT_US = 20_000
FRAME = bytes(6) + b"\x02" + bytes(5) + b"\x88\xb5" + bytes(1000)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def port() -> Iterator[tuple[str, KernelDataPlane]]:
    """A port of 1 Mbit/s (1014-byte frames leave every 8.1 ms) that carries the data plane."""
    name = f"wa{os.getpid() % 100000}"
    run("ip", "link", "add", name, "type", "veth", "peer", "name", name + "p")
    plane = None
    try:
        run("ip", "link", "set", name, "up")
        run("ip", "link", "set", name + "p", "up")
        run(*f"tc qdisc add dev {name} root handle 1: htb default 1".split())
        run(*f"tc class add dev {name} parent 1: classid 1:1 htb rate 1mbit burst 1600".split())
        run(*f"tc qdisc add dev {name} parent 1:1 pfifo limit 40".split())
        plane = KernelDataPlane(f"weir-alarm-{os.getpid()}")
        plane.attach(socket.if_nametoindex(name), name, bridge=1, ofport=1)
        yield name, plane
    finally:
        if plane and plane.folder.exists():
            plane.destroy()
        run("ip", "link", "del", name)


def events_until_normal(plane: KernelDataPlane, timeout_s: float = 5) -> list[QueueEvent]:
    events: list[QueueEvent] = []
    end = time.monotonic() + timeout_s
    while time.monotonic() < end and not any(e.normal for e in events):
        select.select([plane.events_fd()], [], [], end - time.monotonic())
        events += plane.events()
    return events


def send(name: str, frames: int) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
        out.bind((name, 0))
        for _ in range(frames):
            with contextlib.suppress(OSError):  # ENOBUFS: the queue is full
                out.send(FRAME)


def test_alarm_repeats_while_congested_and_ends_after_three_quiet_looks(
    port: tuple[str, KernelDataPlane],
) -> None:
    """SDTCP, section III.B: raised by the crossing, looked at every RTT/2, three quiet looks end it."""
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    plane.configure(ifindex, PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=RTT_US), 1_000_000)

    before = time.time_ns()
    send(name, 30)
    events = events_until_normal(plane)

    *alarms, normal = events
    assert normal.normal
    assert not any(e.normal for e in alarms)
    assert len(alarms) >= 5, "ten frames and more above K leave in 80 ms: eight looks at 10 ms"
    assert alarms[0].queue_pkts == K_PKTS + 1
    assert all(e.queue_pkts > K_PKTS and e.ifindex == ifindex for e in alarms)
    assert before <= alarms[0].crossing_ns <= time.time_ns()
    gaps_us = [(b.crossing_ns - a.crossing_ns) // 1000 for a, b in itertools.pairwise(alarms)]
    assert min(gaps_us) >= RTT_US // 2 - 1000
    quiet_us = (normal.crossing_ns - alarms[-1].crossing_ns) // 1000
    assert quiet_us >= 3 * RTT_US // 2 - 1000
    assert normal.queue_pkts <= K_PKTS
    counters = plane.counters(ifindex)
    assert (counters.alarms, counters.normals, counters.alarm_up) == (len(alarms), 1, False)
    assert 20 <= counters.queue_max_pkts <= 30


def test_a_queue_whose_departures_go_unseen_counts_as_over(port: tuple[str, KernelDataPlane]) -> None:
    """A kernel may leave out calls of programs: what was last known must not hold the alarm up for ever."""
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    plane.configure(ifindex, PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=RTT_US), 1_000_000)
    send(name, 20)
    for program in ("weir_enqueue", "weir_dequeue"):
        (plane.folder / f"{program}_link").unlink()

    *alarms, normal = events_until_normal(plane)

    assert normal.normal
    assert normal.queue_pkts > K_PKTS
    assert (normal.crossing_ns - alarms[0].crossing_ns) / 1e3 >= 6 * RTT_US / 2 - 1000
    assert not plane.counters(ifindex).alarm_up


def test_looks_that_were_lost_are_started_again(port: tuple[str, KernelDataPlane]) -> None:
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    plane.configure(ifindex, PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=RTT_US), 1_000_000)
    send(name, 40)
    key = plane._timers.key(ifindex)
    plane._timers.delete(key)  # takes the timer that runs along
    plane._timers.put(key, plane._timers.value())
    plane.events()

    events = events_until_normal(plane)

    assert events[-1].normal
    assert len(events) >= 3, "K is passed for 240 ms, looks are missed for 80: looks at 10 ms after that"


def test_queue_at_k_raises_nothing(port: tuple[str, KernelDataPlane]) -> None:
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    plane.configure(ifindex, PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=RTT_US), 1_000_000)

    send(name, K_PKTS)

    assert K_PKTS // 2 <= plane.counters(ifindex).queue_max_pkts <= K_PKTS
    assert plane.counters(ifindex).alarms == 0
    assert plane.events() == []


def test_drops_are_the_qdiscs(port: tuple[str, KernelDataPlane]) -> None:
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    send(name, 60)
    deadline = time.monotonic() + 2
    while not (drops := plane.counters(ifindex).drops) and time.monotonic() < deadline:
        pass  # one reading of the qdiscs serves a tenth of a second
    assert 10 <= drops <= 20


def test_an_agent_that_died_leaves_a_working_data_plane(port: tuple[str, KernelDataPlane]) -> None:
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    plane.configure(ifindex, PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=RTT_US), 1_000_000)
    plane.close()

    send(name, 15)
    successor = KernelDataPlane(plane.folder.name)
    try:
        assert successor.attached() == {ifindex: 1}
        assert successor.counters(ifindex).alarms >= 1
        assert events_until_normal(successor)[-1].normal
    finally:
        successor.destroy()
