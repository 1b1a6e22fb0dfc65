"""Under SDTCP alone a port whose link is idle gives punished flows the weight of others."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings
from tests.support.data_plane.bench import PORT, Bench, reflex_entry, send
from tests.support.data_plane.packets import Offer, Segment, window_of

pytestmark = pytest.mark.beside_others

CAPACITY_BPS, BUFFER_BYTES = 10_000_000, 16_000
FITS_BYTES = BUFFER_BYTES * 7 // 8
CORRECTS = PortSettings(common_rtt_us=0, corrects_allowance=True)
MSS, STEP = 1448, 128
PAUSE_S = 0.006
"""Longer than the link needs for what the flows send between two pauses."""
PUNISHED, FREE = Segment(src_port=1), Segment(src_port=2)


def window(bench: Bench) -> int:
    """The window of the punished flow's next ACK, in bytes."""
    return window_of(bench.ingress(PUNISHED), PUNISHED) * STEP


@pytest.fixture(params=[CORRECTS])
def port(bench: Bench, request: pytest.FixtureRequest) -> Bench:
    """A port with a flow that is punished, and has sent a queue, and with one that is not."""
    bench.plane.configure(PORT, request.param, CAPACITY_BPS, BUFFER_BYTES)
    for flow in (PUNISHED, FREE):
        bench.handshake(flow, Offer(scale=7), Offer(scale=7))
    bench.put(reflex_entry(PUNISHED, window_bytes=MSS))
    window(bench)
    bench.set_queue_bytes(MSS)  # the link is not idle yet
    send(bench, PUNISHED, BUFFER_BYTES // MSS + 2)
    bench.set_queue_bytes(0)
    return bench


def pause_and_send(bench: Bench, first: Segment, rounds: int = 20) -> None:
    """In each round the link is idle, and then both flows send.

    The queue holds the first segment until the others have left, however long the machine stops in between.
    """
    for _ in range(rounds):
        time.sleep(PAUSE_S)
        window(bench)
        bench.ingress(FREE)
        send(bench, first)
        bench.set_queue_bytes(MSS)
        for flow in (PUNISHED, FREE):
            send(bench, flow)
        bench.set_queue_bytes(0)


def fill_queue(bench: Bench) -> None:
    """Both flows send while the queue is long and congested."""
    with bench.changed_state() as state:
        state.alarm = 1
    bench.set_queue_bytes(BUFFER_BYTES // 2)
    for _ in range(100):
        send(bench, PUNISHED)
        send(bench, FREE)


def gives_back(bench: Bench) -> bool:
    with bench.changed_state() as state:
        return bool(state.gives_back)


def test_a_punished_flow_for_whose_window_the_link_waits_has_an_equal_part(port: Bench) -> None:
    pause_and_send(port, PUNISHED)
    assert gives_back(port)
    assert window(port) >= FITS_BYTES // 2 - MSS


def test_a_link_that_waits_for_other_flows_gives_nothing_back(port: Bench) -> None:
    pause_and_send(port, FREE)
    assert not gives_back(port)
    assert window(port) <= 2 * MSS


def test_a_long_queue_takes_it_again_and_leaves_the_allowance(port: Bench) -> None:
    pause_and_send(port, PUNISHED)
    before = port.counters.allowance_bytes
    fill_queue(port)
    assert not gives_back(port)
    assert window(port) <= 2 * MSS
    assert port.counters.allowance_bytes >= before


def test_the_loop_corrects_the_allowance_once_all_flows_are_punished(port: Bench) -> None:
    pause_and_send(port, PUNISHED)
    port.put(reflex_entry(FREE, window_bytes=MSS))
    pause_and_send(port, PUNISHED)
    assert not gives_back(port)


@pytest.mark.parametrize("port", [replace(CORRECTS, common_rtt_us=5_000)], indirect=True)
def test_where_a_fair_share_limits_all_flows_nothing_is_given_back(port: Bench) -> None:
    pause_and_send(port, PUNISHED)
    assert not gives_back(port)


def test_a_port_that_gets_a_fair_share_gives_back_no_longer(port: Bench) -> None:
    pause_and_send(port, PUNISHED)
    port.plane.configure(PORT, replace(CORRECTS, common_rtt_us=5_000), CAPACITY_BPS, BUFFER_BYTES)
    pause_and_send(port, PUNISHED)
    assert not gives_back(port)
