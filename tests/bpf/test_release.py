"""The window of a flow that SDTCP no longer punishes (weir_release.h)."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings
from tests.support.data_plane.bench import BRIDGE, PORT, Bench, reflex_entry, reverse
from tests.support.data_plane.packets import Offer, Segment, window_of

pytestmark = pytest.mark.beside_others

CAPACITY_BPS, BUFFER_BYTES = 100_000_000, 150_000
CORRECTS = PortSettings(common_rtt_us=0, corrects_allowance=True)
SCALE, MSS = 7, 1448
FLOW = Segment(src_port=1, window=60_000)
OWN_WINDOW = FLOW.window << SCALE
UNIT = 256
"""Windows at the release are rounded up to this many bytes."""


class Released:
    """A flow that was punished, and has this many bytes in flight as its entry is removed."""

    def __init__(self, bench: Bench, in_flight: int, settings: PortSettings = CORRECTS) -> None:
        self.bench, self.acked, self.sent = bench, 1, 1
        bench.plane.configure(PORT, settings, CAPACITY_BPS, BUFFER_BYTES)
        bench.handshake(FLOW, Offer(scale=SCALE), Offer(scale=SCALE))
        bench.put(reflex_entry(FLOW))
        self.send(in_flight)
        assert self.acknowledge(0) < OWN_WINDOW
        bench.plane.remove(BRIDGE, reflex_entry(FLOW))

    def send(self, size: int) -> None:
        for start in range(0, size, MSS):
            payload = b"x" * min(MSS, size - start)
            self.bench.egress(replace(reverse(FLOW), seq=self.sent, payload=payload))
            self.sent += len(payload)

    def acknowledge(self, size: int) -> int:
        """Acknowledge so many more bytes. Returns the window of the ACK."""
        self.acked += size
        ack = replace(FLOW, ack=self.acked)
        return window_of(self.bench.ingress(ack), ack) << SCALE


@pytest.fixture
def released(bench: Bench) -> Released:
    return Released(bench, 4 * MSS)


def test_the_first_window_is_what_is_in_flight_and_two_segments(released: Released) -> None:
    assert released.acknowledge(0) == pytest.approx(6 * MSS, abs=MSS)


def test_the_window_grows_by_a_quarter_of_what_is_acknowledged(released: Released) -> None:
    first = released.acknowledge(0)
    grown = []
    for _ in range(10):
        released.send(8 * MSS)
        grown.append(released.acknowledge(8 * MSS) - first)
    assert grown == pytest.approx([2 * MSS * number for number in range(1, 11)], abs=MSS + UNIT)


def test_the_flow_is_free_when_its_window_has_grown_by_a_queue(released: Released) -> None:
    released.acknowledge(0)
    for _ in range(4 * BUFFER_BYTES // (64 * MSS)):
        released.send(64 * MSS)
        assert released.acknowledge(64 * MSS) < OWN_WINDOW
    released.send(64 * MSS)
    assert released.acknowledge(64 * MSS) == OWN_WINDOW


def test_a_receiver_with_a_smaller_window_keeps_it(released: Released) -> None:
    ack = replace(FLOW, ack=released.acked, window=10)
    assert window_of(released.bench.ingress(ack), ack) == 10


def test_a_flow_that_is_punished_again_has_the_window_of_its_entry(released: Released) -> None:
    released.acknowledge(0)
    released.bench.put(reflex_entry(FLOW))
    punished = released.acknowledge(0)
    assert punished > 20 * MSS, "all flows are punished, so the allowance limits them"
    released.send(32 * MSS)
    assert released.acknowledge(32 * MSS) == pytest.approx(punished, abs=2 * MSS)


def test_as_published_the_next_ack_has_the_receivers_own_window(bench: Bench) -> None:
    released = Released(bench, 4 * MSS, replace(CORRECTS, corrects_allowance=False))
    assert released.acknowledge(0) == OWN_WINDOW


def test_where_a_fair_share_limits_the_flow_it_is_free_at_once(bench: Bench) -> None:
    released = Released(bench, 4 * MSS, replace(CORRECTS, common_rtt_us=1000))
    assert released.acknowledge(0) == OWN_WINDOW, "no rule of this test divides the fair share"


def test_a_port_that_is_off_changes_no_packet(released: Released) -> None:
    released.acknowledge(0)
    released.bench.plane.configure(PORT, CORRECTS, CAPACITY_BPS, BUFFER_BYTES, observes=True)
    assert released.acknowledge(0) == OWN_WINDOW


def test_an_entry_that_has_expired_releases_its_flow(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent removes it a moment later."""
    monkeypatch.setattr("openflow_ext.switch.dataplane.rule_structs.NS_PER_S", 10_000_000)
    released = Released(bench, 4 * MSS)
    bench.put(replace(reflex_entry(FLOW), hard_timeout_s=20))
    assert released.acknowledge(0) > 20 * MSS
    time.sleep(0.3)
    assert released.acknowledge(0) == pytest.approx(6 * MSS, abs=MSS)
