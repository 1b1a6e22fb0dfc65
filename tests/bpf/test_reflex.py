"""The reflex: a crossing activates armed entries rank by rank, and BUF_NORMAL deactivates them."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings, QueueEventKind, UnsupportedMatch
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from openflow_ext.switch.dataplane.rules import TcpMatch, WindowOp
from tests.support.data_plane.bench import PORT, Bench, reflex_entry
from tests.support.data_plane.packets import Offer, Segment, window_of
from tests.support.data_plane.slow_port import (
    K_PKTS,
    RTT_US,
    SLOW_BRIDGE,
    events_until_normal,
    send_frames,
)

pytestmark = pytest.mark.beside_others

LOCAL = Segment()


def at_level(bench: Bench, level: int, epoch: int) -> None:
    with bench.changed_state() as state:
        state.reflex_level, state.reflex_epoch = level, epoch


def test_entry_is_active_while_its_rank_is_below_the_level(bench: Bench) -> None:
    flows = [replace(LOCAL, src_port=port) for port in (1, 2)]
    for flow in flows:
        bench.handshake(flow, Offer(scale=3))
    bench.plane.arm(PORT, 3, [reflex_entry(flow) for flow in flows])

    def windows() -> list[int]:
        return [window_of(bench.ingress(flow), flow) for flow in flows]

    assert windows() == [65535, 65535]
    at_level(bench, 1, epoch=1)
    assert windows() == [4 * 181, 65535]
    at_level(bench, 2, epoch=1)
    assert windows() == [3 * 181, 4 * 181]
    assert bench.plane.reflex_level(PORT) == 2
    at_level(bench, 0, epoch=1)
    assert windows() == [65535, 65535]
    at_level(bench, 1, epoch=2)
    assert windows() == [4 * 181, 65535], "a new crossing starts from the whole window"


def test_arming_replaces_and_reads_back(bench: Bench) -> None:
    first, second = reflex_entry(LOCAL), reflex_entry(replace(LOCAL, src_port=7))
    bench.plane.arm(PORT, 3, [first, second])
    assert [rule for rule, _ in bench.plane.armed(PORT)] == [first, second]
    bench.plane.arm(PORT, 3, [second])
    assert [rule for rule, _ in bench.plane.armed(PORT)] == [second]
    bench.plane.arm(PORT, 3, [])
    assert bench.plane.armed(PORT) == []


def test_only_mod_window_on_one_connection_can_be_armed(bench: Bench) -> None:
    good = reflex_entry(LOCAL)
    bench.plane.arm(PORT, 3, [good])
    wild, set_window = replace(good, match=TcpMatch()), replace(good, window_op=WindowOp.SET_WINDOW)
    for bad in (wild, set_window, replace(good, table_id=32)):
        with pytest.raises(UnsupportedMatch):
            bench.plane.arm(PORT, 3, [bad])
    assert [rule for rule, _ in bench.plane.armed(PORT)] == [good]


def test_crossing_activates_the_ranks_one_after_the_other(port: tuple[str, KernelDataPlane]) -> None:
    """The crossing activates the first rank, 3/2 RTT later the next; the end of the alarm deactivates all."""
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    plane.configure(ifindex, PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=RTT_US), 1_000_000)
    plane.arm(ifindex, SLOW_BRIDGE, [reflex_entry(replace(LOCAL, src_port=p)) for p in range(1, 4)])

    send_frames(name, 30)
    events = events_until_normal(plane)

    kinds = [e.kind for e in events]
    on = [e for e in events if e.kind is QueueEventKind.REFLEX_ON]
    assert kinds[:2] == [QueueEventKind.REFLEX_ON, QueueEventKind.BUF_ALARM]
    assert kinds[-2:] == [QueueEventKind.REFLEX_OFF, QueueEventKind.BUF_NORMAL]
    assert [e.rank for e in on] == list(range(len(on)))
    assert len(on) >= 2
    step_us = (on[1].crossing_ns - on[0].crossing_ns) // 1000
    assert step_us >= 3 * RTT_US // 2 - 1000


def test_connection_can_be_armed_on_one_port_only(bench: Bench) -> None:
    bench.plane.enter_port(PORT + 1, 3, 8)
    bench.plane.arm(PORT, 3, [reflex_entry(LOCAL)])
    try:
        with pytest.raises(UnsupportedMatch, match="another port"):
            bench.plane.arm(PORT + 1, 3, [reflex_entry(LOCAL)])
    finally:
        bench.plane.detach(PORT + 1)


def test_the_connections_of_a_removed_port_can_be_armed_on_another_one(bench: Bench) -> None:
    """The interface of a port that is created again has another number."""
    bench.plane.enter_port(PORT + 1, 3, 8)
    bench.plane.arm(PORT + 1, 3, [reflex_entry(LOCAL)])
    bench.plane.detach(PORT + 1)
    assert not list(bench.plane.pinned.maps["armed_rules"].items())

    bench.plane.arm(PORT, 3, [reflex_entry(LOCAL)])

    assert [rule for rule, _ in bench.plane.armed(PORT)] == [reflex_entry(LOCAL)]
