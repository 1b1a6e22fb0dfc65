"""Segments are fitted at a port that corrects its allowance and sets no fair share, as under SDTCP alone."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.wire import PortConfigFlags
from tests.support.data_plane.bench import PORT, Bench, reflex_entry, reverse, syn
from tests.support.data_plane.packets import ACK, PSH, SYN, Offer, Segment, tcp_of, window_of

pytestmark = pytest.mark.beside_others

CAPACITY_BPS, BUFFER_BYTES = 100_000_000, 150_000
OFFER = Offer(scale=9)
TIMESTAMPS = 12
FITTED, STEP = 1408, 128
"""The payload is the largest number of whole steps of the finer scale 7."""
MANY = 80
"""Flows of which two segments each do not fit into the queue."""


@pytest.fixture(params=[PortConfigFlags.NONE])
def port(bench: Bench, request: pytest.FixtureRequest) -> Bench:
    settings = PortSettings(corrects_allowance=True, omits=int(request.param))
    bench.plane.configure(PORT, settings, CAPACITY_BPS, BUFFER_BYTES)
    return bench


def flow(number: int) -> Segment:
    return Segment(src_port=1 + number)


def open_flows(bench: Bench, count: int) -> None:
    """The local host accepts these connections, and each sends a segment."""
    for number in range(count):
        bench.handshake_in(flow(number), OFFER, OFFER)
        bench.egress(data(number))


def data(number: int) -> Segment:
    return replace(reverse(flow(number)), payload=bytes(FITTED))


def punish(bench: Bench, numbers: range) -> None:
    """These flows are punished, and send more than the queue holds; then two turns pass."""
    for number in numbers:
        bench.put(reflex_entry(flow(number), window_bytes=FITTED))
        bench.ingress(flow(number))
        for _ in range(BUFFER_BYTES // FITTED + 2):
            bench.egress(data(number))
    for _ in range(2):
        bench.skip_turn()
        for number in numbers:
            bench.egress(data(number))


def test_a_syn_offers_whole_steps_however_many_flows_there_are(port: Bench) -> None:
    open_flows(port, MANY)
    offered = syn(flow(MANY), OFFER)
    options = tcp_of(port.ingress(offered), offered)[20:]
    assert struct.unpack_from("!H", options, 2) == (FITTED + TIMESTAMPS,)
    assert b"\x03\x03\x07" in options


@pytest.mark.parametrize("port", [PortConfigFlags.OMIT_FITTING], indirect=True)
def test_a_syn_passes_unchanged_if_the_port_omits_fitting(port: Bench) -> None:
    offered = syn(flow(0), OFFER)
    assert port.ingress(offered) == offered.pack()


def test_a_syn_ack_keeps_its_window(port: Bench) -> None:
    answer = replace(flow(0), flags=SYN | ACK, options=OFFER.pack(), ack=1)
    port.egress(syn(reverse(flow(0)), OFFER))
    assert window_of(port.ingress(answer), answer) == answer.window


def test_windows_of_many_punished_flows_hold_one_segment_that_is_pushed(port: Bench) -> None:
    open_flows(port, MANY)
    port.set_queue_bytes(1)  # the link is not idle, so the allowance does not grow
    punish(port, range(MANY))
    with port.changed_state() as state:
        state.allowance_bytes = FITTED * MANY
    assert window_of(port.ingress(flow(0)), flow(0)) * STEP == FITTED
    assert port.egress(data(0)) == replace(data(0), flags=ACK | PSH).pack()


def test_a_flow_that_nobody_punishes_keeps_its_window_and_its_flags(port: Bench) -> None:
    open_flows(port, MANY)
    sent = flow(0)
    assert window_of(port.ingress(sent), sent) == min(sent.window << 2, 0xFFFF)
    assert port.egress(data(0)) == data(0).pack()
