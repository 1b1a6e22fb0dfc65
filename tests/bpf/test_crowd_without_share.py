"""Under SDTCP alone a port counts no N_i. Its crowd is the most flows that sent in a turn (weir_crowd.h)."""

from __future__ import annotations

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings
from tests.support.data_plane.bench import PORT, Bench, clear_turn, reflex_entry, send
from tests.support.data_plane.packets import Offer, Segment, window_of

pytestmark = pytest.mark.beside_others

CAPACITY_BPS, BUFFER_BYTES = 100_000_000, 150_000
CORRECTS = PortSettings(common_rtt_us=0, corrects_allowance=True)
MSS, STEP, HEADERS = 1448, 128, 86
FITS_BYTES = BUFFER_BYTES * 7 // 8 * MSS // (MSS + HEADERS)
FLOWS = [Segment(src_port=number) for number in range(1, 9)]


@pytest.fixture
def port(bench: Bench) -> Bench:
    """A port whose flows are all punished, and have sent in one turn."""
    bench.plane.configure(PORT, CORRECTS, CAPACITY_BPS, BUFFER_BYTES)
    for flow in FLOWS:
        bench.handshake(flow, Offer(scale=7), Offer(scale=7))
        bench.put(reflex_entry(flow, window_bytes=MSS))
    bench.set_queue_bytes(MSS)  # so the turn lasts
    for flow in FLOWS:
        bench.ingress(flow)
        send(bench, flow)
    bench.set_queue_bytes(0)
    return bench


def let_turns_pass(bench: Bench) -> None:
    """No flow has sent in the last turns."""
    with bench.changed_state() as state:
        state.turn += 3
        for turn in range(2):
            clear_turn(state, turn)


def window(bench: Bench, flow: Segment) -> int:
    return window_of(bench.ingress(flow), flow) * STEP


def test_the_windows_of_idle_flows_fit_into_the_queue_together(port: Bench) -> None:
    let_turns_pass(port)
    windows = [window(port, flow) for flow in FLOWS]
    assert windows == [pytest.approx(FITS_BYTES / len(FLOWS), abs=MSS + STEP)] * len(FLOWS)


def test_the_crowd_is_halved_after_a_while(port: Bench) -> None:
    let_turns_pass(port)
    with port.changed_state() as state:
        assert state.crowd == len(FLOWS)
        state.crowd_ns -= 11 * 10**9
    assert window(port, FLOWS[0]) == pytest.approx(2 * FITS_BYTES / len(FLOWS), abs=MSS + STEP)
