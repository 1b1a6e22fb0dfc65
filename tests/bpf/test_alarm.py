"""The alarm on a real queue: a veth interface with a slow HTB root, which the test fills."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import time

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings, QueueEventKind
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from openflow_ext.switch.dataplane.netlink import Netlink, TcObject
from openflow_ext.switch.dataplane.structs import constants
from tests.support.data_plane.bench import reflex_entry
from tests.support.data_plane.packets import Segment
from tests.support.data_plane.slow_port import (
    FRAME,
    K_PKTS,
    RTT_US,
    SLOW_BRIDGE,
    await_empty_queue,
    await_queue_seen_empty,
    events_until_normal,
    run,
    send_frames,
)
from tests.support.waiting import wait_until


def test_alarm_repeats_while_congested_and_ends_after_three_quiet_checks(
    port: tuple[str, KernelDataPlane],
) -> None:
    """SDTCP, section III.B: the crossing raises it, each RTT/2 has a check, three quiet checks end it."""
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    plane.configure(ifindex, PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=RTT_US), 1_000_000)

    before = time.time_ns()
    send_frames(name, 30)
    events = events_until_normal(plane)

    *alarms, normal = events
    assert normal.normal
    assert not any(e.normal for e in alarms)
    assert len(alarms) >= 5, "over ten frames above K leave in 80 ms: eight checks, one each 10 ms"
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


FAST_RTT_US = 2_000


def alarm_times_ms(plane: KernelDataPlane) -> list[float]:
    """When each alarm of an episode was sent, from the first one on."""
    alarms = events_until_normal(plane)[:-1]
    return [(alarm.crossing_ns - alarms[0].crossing_ns) / 1e6 for alarm in alarms]


def test_alarms_without_an_answer_become_rare(port: tuple[str, KernelDataPlane]) -> None:
    """The queue is above K for 150 ms, which is 150 checks. No rule is added and the queue only falls."""
    name, plane = port
    plane.configure(
        socket.if_nametoindex(name), PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=FAST_RTT_US), 1_000_000
    )
    send_frames(name, 30)

    times_ms = alarm_times_ms(plane)

    assert 17 <= len(times_ms) <= 19
    assert times_ms[16] - times_ms[15] >= 99, "the 17th alarm comes 100 ms after the 16th"


def test_a_rule_and_a_growing_queue_repeat_the_alarm_at_each_check(
    port: tuple[str, KernelDataPlane],
) -> None:
    name, plane = port
    plane.configure(
        socket.if_nametoindex(name), PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=FAST_RTT_US), 1_000_000
    )
    send_frames(name, 20)
    wait_until(lambda: plane.counters(socket.if_nametoindex(name)).alarms >= 16, "16 alarms")
    send_frames(name, 20)
    wait_until(lambda: plane.counters(socket.if_nametoindex(name)).alarms >= 17, "the queue has grown")
    plane.put(SLOW_BRIDGE, reflex_entry(Segment()))

    assert 33 <= len(alarm_times_ms(plane)) <= 40, "16, one for the growth, 16 for the rule, and rare ones"


@pytest.mark.parametrize(
    ("weight", "least_ms", "most_ms"),
    [
        (constants.WEIR_FULL_WEIGHT // constants.WEIR_PUNISHED_FRACTION, 99, 150),
        (constants.WEIR_FULL_WEIGHT, 0, 60),
    ],
    ids=["all-punished", "none-punished"],
)
def test_a_queue_around_k_alarms_rarely_while_only_punished_flows_send(
    port: tuple[str, KernelDataPlane], weight: int, least_ms: int, most_ms: int
) -> None:
    """The port divides its allowance among them without the controller."""
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    settings = PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=FAST_RTT_US, corrects_allowance=True)
    plane.configure(ifindex, settings, 1_000_000, 60_000)
    send_frames(name, K_PKTS + 3)
    *_, last, _ = events_until_normal(plane)
    states, (key, _) = plane.pinned.maps["port_states"], plane.pinned.find_port(ifindex)
    state = states.get(key)
    state.turn_start_ns = time.monotonic_ns()
    for turn in (0, 1):
        state.sent_in_turn[turn], state.weight_in_turn[turn] = 3, 3 * weight
        state.full_in_turn[turn] = 3 * constants.WEIR_FULL_WEIGHT
    states.put(key, state)
    send_frames(name, 20)
    first, *_ = events_until_normal(plane)
    assert least_ms <= (first.crossing_ns - last.crossing_ns) / 1e6 <= most_ms


def port_whose_departures_are_skipped(name: str, plane: KernelDataPlane) -> tuple[int, KernelDataPlane]:
    """Let the queue of a port grow beyond K, and detach the programs that see it shrink."""
    ifindex = socket.if_nametoindex(name)
    plane.configure(ifindex, PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=RTT_US), 1_000_000)
    send_frames(name, 20)
    for program in ("weir_enqueue", "weir_dequeue"):
        (plane.folder / f"{program}_link").unlink()
    return ifindex, plane


def test_alarm_ends_if_the_kernel_skips_the_departures(port_apart: tuple[str, KernelDataPlane]) -> None:
    """A kernel may skip calls of programs. The last known queue length must not keep the alarm up."""
    ifindex, plane = port_whose_departures_are_skipped(*port_apart)

    *alarms, normal = events_until_normal(plane)

    assert normal.normal
    assert normal.queue_pkts > K_PKTS
    assert (normal.crossing_ns - alarms[0].crossing_ns) / 1e3 >= 6 * RTT_US / 2 - 1000
    assert not plane.counters(ifindex).alarm_up


def test_a_later_time_of_another_cpu_does_not_end_the_alarm(port_apart: tuple[str, KernelDataPlane]) -> None:
    """A packet on another CPU is later than the time that a check has just read: the queue moves."""
    ifindex, plane = port_whose_departures_are_skipped(*port_apart)
    states, (key, _) = plane.pinned.maps["port_states"], plane.pinned.find_port(ifindex)
    state = states.get(key)
    state.changed_ns = time.monotonic_ns() + 500_000_000
    states.put(key, state)
    until_ns = plane.now_ns() + 500_000_000

    *_, normal = events_until_normal(plane)

    assert normal.normal
    assert normal.crossing_ns >= until_ns - 1_000_000, "the queue is still only after that time"


def test_the_counters_state_the_kernels_queue_if_it_skips_the_departures(
    port_apart: tuple[str, KernelDataPlane],
) -> None:
    name, plane = port_apart
    ifindex = socket.if_nametoindex(name)
    plane.configure(ifindex, PortSettings(alarm=False), 1_000_000)
    send_frames(name, 20)
    (plane.folder / "weir_dequeue_link").unlink()
    states, (key, _) = plane.pinned.maps["port_states"], plane.pinned.find_port(ifindex)

    await_empty_queue(name, plane)

    assert states.get(key).queue_pkts > 0, "the data plane alone has not seen the departures"
    for record in (plane.counters(ifindex), plane.counters_of([ifindex])[ifindex]):
        assert (record.queue_pkts, record.queue_bytes) == (0, 0)
        assert record.queue_max_pkts > 0


def test_lost_checks_are_started_again(port: tuple[str, KernelDataPlane]) -> None:
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    plane.configure(ifindex, PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=RTT_US), 1_000_000)
    send_frames(name, 40)
    key = plane._timers.key(ifindex)
    plane._timers.delete(key)  # also cancels the timer
    plane._timers.put(key, plane._timers.value())
    plane.events()

    events = events_until_normal(plane)

    assert events[-1].normal
    assert len(events) >= 3, "K is passed for 240 ms, looks are missed for 80: looks at 10 ms after that"


def test_queue_of_k_packets_raises_no_alarm(port: tuple[str, KernelDataPlane]) -> None:
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    plane.configure(ifindex, PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=RTT_US), 1_000_000)

    send_frames(name, K_PKTS)

    assert K_PKTS // 2 <= plane.counters(ifindex).queue_max_pkts <= K_PKTS
    assert plane.counters(ifindex).alarms == 0
    assert plane.events() == []


def test_drops_are_those_that_the_qdisc_counts(port: tuple[str, KernelDataPlane]) -> None:
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    send_frames(name, 60)
    drops = plane.counters(ifindex).drops
    assert 10 <= drops <= 20
    assert plane.counters_of([ifindex])[ifindex].drops == drops, "the queue is full, so its qdisc is asked"
    await_empty_queue(name, plane)
    assert (plane.counters(ifindex).drops, plane.counters_of([ifindex])[ifindex].drops) == (drops, drops)


def test_sampling_asks_no_qdisc_whose_drops_the_tracepoints_saw(
    port: tuple[str, KernelDataPlane], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    send_frames(name, 60)
    await_queue_seen_empty(name, plane)
    drops = plane.counters(ifindex).drops
    monkeypatch.setattr(Netlink, "_call", None)  # a request would fail
    assert plane.counters_of([ifindex])[ifindex].drops == drops > 0
    assert plane.counters_of([999_999]) == {}


def test_drops_go_on_with_a_new_qdisc(port: tuple[str, KernelDataPlane]) -> None:
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    send_frames(name, 60)
    await_empty_queue(name, plane)
    before = plane.counters(ifindex).drops
    new = ("root", "handle", "7:", "tbf", "rate", "1mbit", "burst", "1600", "limit", "6000")
    subprocess.run(["tc", "qdisc", "replace", "dev", name, *new], check=True)
    send_frames(name, 1)
    await_empty_queue(name, plane)
    assert plane.counters(ifindex).drops == before
    send_frames(name, 20)
    await_empty_queue(name, plane)
    assert plane.counters(ifindex).drops > before + 5
    assert plane.counters_of([ifindex])[ifindex].drops == plane.counters(ifindex).drops


def test_drops_from_before_the_port_was_entered_do_not_count(port: tuple[str, KernelDataPlane]) -> None:
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    plane.detach(ifindex)
    send_frames(name, 60)
    plane.attach(ifindex, name, SLOW_BRIDGE, 1)
    assert plane.counters(ifindex).drops == 0
    send_frames(name, 60)
    assert 0 < plane.counters(ifindex).drops <= 60


def root_of(plane: KernelDataPlane, ifindex: int) -> TcObject:
    root = plane.pinned.qdiscs.root(ifindex)
    assert root is not None
    return root


def test_earlier_drops_of_several_queues_do_not_count(plane: KernelDataPlane) -> None:
    """The tracepoints see the qdisc of each queue, in turns, and never the root (mq), which has the sum."""
    name = f"wq{os.getpid() % 100000}"
    run("ip", "link", "add", name, "numtxqueues", "2", "type", "veth", "peer", "name", f"{name}p")
    try:
        for end in (name, f"{name}p"):
            run("sysctl", "-q", "-w", f"net.ipv6.conf.{end}.disable_ipv6=1")
            run("ip", "link", "set", end, "up")
        run(*f"tc qdisc add dev {name} root handle 1: mq".split())
        for queue in ("1:1", "1:2"):
            run(*f"tc qdisc replace dev {name} parent {queue} tbf rate 1mbit burst 1600 limit 4000".split())
        ifindex = socket.if_nametoindex(name)
        frames = [Segment(src_port=port, payload=bytes(1000)).pack() for port in range(1, 31)]
        send_frames(name, 20, frames[0])
        wait_until(lambda: not root_of(plane, ifindex).queue_pkts, "the queues are empty")
        assert root_of(plane, ifindex).drops
        plane.attach(ifindex, name, SLOW_BRIDGE, 1)
        for frame in frames:
            send_frames(name, 1, frame)
            wait_until(lambda: not root_of(plane, ifindex).queue_pkts, "the queues are empty")
        assert plane.counters(ifindex).drops == 0
        plane.detach(ifindex)
    finally:
        run("ip", "link", "del", name)


def test_data_plane_outlives_its_agent(port_apart: tuple[str, KernelDataPlane]) -> None:
    name, plane = port_apart
    ifindex = socket.if_nametoindex(name)
    plane.configure(ifindex, PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=RTT_US), 1_000_000)
    plane.close()

    send_frames(name, 15)
    successor = KernelDataPlane(plane.folder.name)
    try:
        assert successor.attached() == {ifindex: 1}
        assert successor.counters(ifindex).alarms >= 1
        assert events_until_normal(successor)[-1].normal
    finally:
        successor.destroy()


def test_an_alarm_says_which_part_of_the_queue_is_not_tcp(port: tuple[str, KernelDataPlane]) -> None:
    """All frames are of another EtherType. Their virtual queue drains as the real one, so it is as long."""
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    plane.configure(ifindex, PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=RTT_US), 1_000_000, 40_000)
    before = plane.counters(ifindex).non_tcp_bytes
    send_frames(name, 20)
    *alarms, _ = events_until_normal(plane)
    assert min(alarm.non_tcp_percent for alarm in alarms) >= 80
    assert plane.counters(ifindex).non_tcp_bytes - before == 20 * len(FRAME)


def test_an_alarm_of_tcp_alone_says_0_percent(port: tuple[str, KernelDataPlane]) -> None:
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    plane.configure(ifindex, PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=RTT_US), 1_000_000, 40_000)
    send_frames(name, 20, Segment(payload=bytes(1000)).pack())
    *alarms, _ = events_until_normal(plane)
    assert {(alarm.non_tcp_percent, alarm.allowance_bytes) for alarm in alarms} == {(0, 0)}
    assert plane.counters(ifindex).non_tcp_bytes == 0


def test_a_queue_of_other_packets_activates_no_armed_entry(port: tuple[str, KernelDataPlane]) -> None:
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    plane.configure(ifindex, PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=RTT_US), 1_000_000, 40_000)
    plane.arm(ifindex, SLOW_BRIDGE, [reflex_entry(Segment())])
    send_frames(name, 20)
    assert {event.kind for event in events_until_normal(plane)} == {
        QueueEventKind.BUF_ALARM,
        QueueEventKind.BUF_NORMAL,
    }
    send_frames(name, 20, Segment(payload=bytes(1000)).pack())
    assert QueueEventKind.REFLEX_ON in {event.kind for event in events_until_normal(plane)}


@pytest.mark.parametrize("corrected_bytes", [12_345, 0])
def test_an_alarm_carries_the_allowance_of_its_port(
    port: tuple[str, KernelDataPlane], corrected_bytes: int
) -> None:
    """Before its first correction the allowance is what the queue holds, with an eighth to spare."""
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    settings = PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=RTT_US, corrects_allowance=True)
    plane.configure(ifindex, settings, 1_000_000, 40_000)
    states, (key, _) = plane.pinned.maps["port_states"], plane.pinned.find_port(ifindex)
    state = states.get(key)
    state.allowance_bytes = corrected_bytes
    states.put(key, state)
    send_frames(name, 20, Segment(payload=bytes(1000)).pack())
    *alarms, _ = events_until_normal(plane)
    assert {alarm.allowance_bytes for alarm in alarms} == {corrected_bytes or 35_000}
