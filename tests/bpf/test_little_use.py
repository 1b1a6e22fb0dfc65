"""Flows that use little of their window: they get a smaller part of the allowance (weir_use.h)."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from openflow_ext.switch.dataplane.structs import constants
from tests.support.data_plane.bench import PORT, Bench, reverse
from tests.support.data_plane.packets import ACK, FIN, Offer, Segment, timestamps, window_of

pytestmark = pytest.mark.beside_others

CAPACITY_BPS, BUFFER_BYTES = 100_000_000, 150_000
ALLOWANCE_BYTES = 120_000
MSS, SCALE = 11 << 7, 7
"""Of a flow whose segments are whole steps of the window."""
STEPS = 15
FULL_WEIGHT = constants.WEIR_FULL_WEIGHT
clock = count(1000, 10)
"""Values of timestamps."""


class Flow:
    """A connection that receives by the port, and what both of its hosts send."""

    def __init__(self, bench: Bench, src_port: int, has_timestamps: bool = True) -> None:
        self.bench, self.segment, self.has_timestamps = bench, Segment(src_port=src_port), has_timestamps
        self.sent = 1
        bench.handshake(self.segment, Offer(scale=SCALE), Offer(scale=SCALE))
        self.send(MSS, 0)
        self.acknowledge(0)

    def acknowledge(self, value: int | None, payload: bytes = b"", offered: int = 65535 << SCALE) -> int:
        """The receiver acknowledges all that was sent, and offers so much. Returns its window, in bytes."""
        options = timestamps(value, 0) if self.has_timestamps and value is not None else b""
        window = offered >> SCALE
        ack = replace(self.segment, ack=self.sent, options=options, window=window, payload=payload)
        return window_of(self.bench.ingress(ack), ack) << SCALE

    def send(self, nbytes: int, echo: int) -> None:
        """Payload, which answers the ACK with this timestamp."""
        while nbytes > 0:
            length = min(nbytes, MSS)
            options = timestamps(0, echo) if self.has_timestamps else b""
            segment = replace(reverse(self.segment), seq=self.sent, options=options, payload=b"x" * length)
            self.bench.egress(segment)
            self.sent, nbytes = self.sent + length, nbytes - length

    def round_trip(self, nbytes: int | None = None) -> None:
        """The receiver acknowledges, and the sender sends so much, or all that the window permits."""
        value = next(clock)
        window = self.acknowledge(value)
        self.send(window if nbytes is None else nbytes, value)

    def finish(self) -> None:
        """The sender ends."""
        self.bench.egress(replace(reverse(self.segment), seq=self.sent, flags=FIN | ACK, payload=b""))

    @property
    def window(self) -> int:
        """The window of the next ACK. Without a timestamp, nothing is watched."""
        return self.acknowledge(None)


@pytest.fixture
def port(bench: Bench) -> Bench:
    settings = PortSettings(common_rtt_us=1000, corrects_allowance=True)
    bench.plane.configure(PORT, settings, CAPACITY_BPS, BUFFER_BYTES)
    bench.hold_turns()
    bench.count_by_flags()
    bench.put(Rule(1, 50, 0, TcpMatch(flags=0x10, flags_mask=0x10), WindowOp.FAIR_SHARE))
    return bench


@pytest.fixture
def both(port: Bench) -> tuple[Flow, Flow]:
    """Two flows at a port whose allowance needs a reason to grow."""
    flows = Flow(port, 1), Flow(port, 2)
    hold_allowance(port)
    turns(port, *flows)
    return flows


def hold_allowance(bench: Bench) -> None:
    """The allowance has its value again, and no correction is near."""
    with bench.changed_state() as state:
        state.allowance_bytes, state.departed_bytes, state.window_limits = ALLOWANCE_BYTES, 0, 0


def turns(bench: Bench, *flows: Flow, number: int = 2) -> None:
    """So many turns pass, in each of which these flows send a byte."""
    for _ in range(number):
        bench.skip_turn()
        for flow in flows:
            flow.send(1, 0)
    hold_allowance(bench)


def use_little(slow: Flow, fast: Flow, nbytes: int = MSS) -> None:
    """The first flow sends so much per round trip, in many turns. A verdict takes two round trips."""
    for _ in range(2 * STEPS):
        for _ in range(4):
            slow.round_trip(nbytes)
            hold_allowance(slow.bench)
        turns(slow.bench, slow, fast)


def test_the_part_that_a_flow_does_not_use_goes_to_the_others(both: tuple[Flow, Flow]) -> None:
    slow, fast = both
    assert fast.window == pytest.approx(ALLOWANCE_BYTES / 2, abs=2 * MSS)
    use_little(slow, fast)
    assert slow.window < ALLOWANCE_BYTES / 16
    assert fast.window > 0.9 * ALLOWANCE_BYTES


def test_a_flow_that_uses_half_of_its_window_keeps_its_part(both: tuple[Flow, Flow]) -> None:
    half, other = both
    use_little(half, other, nbytes=ALLOWANCE_BYTES // 4)
    assert half.window == pytest.approx(ALLOWANCE_BYTES / 2, abs=2 * MSS)


def test_a_flow_is_offered_about_twice_what_it_has_in_flight(both: tuple[Flow, Flow]) -> None:
    slow, fast = both
    in_flight = 8 * MSS
    use_little(slow, fast, nbytes=in_flight)
    assert 1.4 * in_flight < slow.window < 2.6 * in_flight
    assert fast.window > ALLOWANCE_BYTES - 2.6 * in_flight - 2 * MSS


def test_a_flow_that_its_window_limits_gets_its_part_back(both: tuple[Flow, Flow]) -> None:
    slow, fast = both
    use_little(slow, fast)
    before = slow.window
    grown = []
    for _ in range(2 * STEPS):
        slow.round_trip()
        turns(slow.bench, slow, fast)
        grown.append(slow.window)
    assert before < grown[5] < grown[-1]
    assert slow.window == pytest.approx(ALLOWANCE_BYTES / 2, abs=2 * MSS)
    assert fast.window == pytest.approx(ALLOWANCE_BYTES / 2, abs=2 * MSS)


def test_both_parts_together_are_at_most_the_allowance_while_a_part_grows(both: tuple[Flow, Flow]) -> None:
    slow, fast = both
    use_little(slow, fast)
    for _ in range(2 * STEPS):
        slow.round_trip()
        turns(slow.bench, slow, fast, number=1)
        assert slow.window + fast.window < 1.1 * ALLOWANCE_BYTES + 2 * MSS


def test_a_flow_has_two_segments_however_little_it_uses(both: tuple[Flow, Flow]) -> None:
    """With one, each of its segments would fill its window, and it would never use little."""
    slow, fast = both
    use_little(slow, fast)
    assert slow.window >= 2 * MSS
    assert fast.window > 0.93 * ALLOWANCE_BYTES


def test_the_end_of_a_flow_takes_off_the_weight_with_which_it_was_counted(both: tuple[Flow, Flow]) -> None:
    slow, fast = both
    use_little(slow, fast)
    with slow.bench.changed_state() as state:
        odd = state.turn % 2
        assert FULL_WEIGHT < state.full_in_turn[odd] < 1.1 * FULL_WEIGHT
        assert state.little_in_turn[odd] == state.full_in_turn[odd] - FULL_WEIGHT
        state.queue_bytes = 0
    slow.finish()
    with slow.bench.changed_state() as state:
        assert list(state.full_in_turn) == list(state.weight_in_turn) == [FULL_WEIGHT, FULL_WEIGHT]
        assert list(state.little_in_turn) == [0, 0]


def test_the_answer_to_a_request_has_a_whole_part(both: tuple[Flow, Flow]) -> None:
    slow, fast = both
    use_little(slow, fast)
    turns(slow.bench, fast, number=3)
    slow.acknowledge(next(clock), payload=b"next")
    with slow.bench.changed_state() as state:
        state.next_growth_ns = 0
    turns(slow.bench, slow, fast)
    assert slow.window == pytest.approx(ALLOWANCE_BYTES / 2, abs=2 * MSS)


def test_a_flow_that_pauses_without_a_request_keeps_its_small_part(both: tuple[Flow, Flow]) -> None:
    slow, fast = both
    use_little(slow, fast)
    turns(slow.bench, fast, number=3)
    turns(slow.bench, slow, fast)
    assert fast.window > 0.85 * ALLOWANCE_BYTES


def offers(slow: Flow, fast: Flow, window: int) -> None:
    """The receiver of the first flow offers so much in many turns, and its sender uses all of it."""
    for _ in range(2 * STEPS):
        slow.send(min(window, slow.acknowledge(None, offered=window)), 0)
        fast.round_trip()
        turns(slow.bench, slow, fast)


@pytest.mark.parametrize("has_timestamps", [True, False])
def test_what_a_receiver_does_not_offer_goes_to_the_others(port: Bench, has_timestamps: bool) -> None:
    slow, fast = Flow(port, 40001, has_timestamps), Flow(port, 40002)
    hold_allowance(port)
    offered = 8 * MSS
    offers(slow, fast, offered)
    assert 1.4 * offered < slow.window < 2.8 * offered
    assert fast.window > ALLOWANCE_BYTES - 2.8 * offered - 2 * MSS


def test_a_receiver_that_offers_half_of_the_part_keeps_it(both: tuple[Flow, Flow]) -> None:
    offers(*both, window=ALLOWANCE_BYTES // 4)
    assert both[0].window == pytest.approx(ALLOWANCE_BYTES / 2, abs=2 * MSS)


def test_a_receiver_that_opens_its_window_again_gets_its_part_back(both: tuple[Flow, Flow]) -> None:
    slow, fast = both
    offers(slow, fast, 8 * MSS)
    for _ in range(2 * STEPS):
        slow.round_trip()
        fast.round_trip()
        turns(slow.bench, slow, fast)
    assert slow.window == pytest.approx(ALLOWANCE_BYTES / 2, abs=2 * MSS)


def test_a_receiver_that_offers_nothing_holds_nothing(both: tuple[Flow, Flow]) -> None:
    offers(*both, window=0)
    assert both[1].window > 0.93 * ALLOWANCE_BYTES


def test_a_flow_without_timestamps_keeps_its_part(port: Bench) -> None:
    slow, fast = Flow(port, 1, has_timestamps=False), Flow(port, 2)
    hold_allowance(port)
    use_little(slow, fast)
    assert slow.window == pytest.approx(ALLOWANCE_BYTES / 2, abs=2 * MSS)


def test_a_lone_flow_is_not_asked(port: Bench) -> None:
    """Nobody else could use what it leaves, and the limit is watched twice as often."""
    flow = Flow(port, 1)
    hold_allowance(port)
    for _ in range(4):
        flow.round_trip(MSS)
        for _ in range(2):
            flow.round_trip()
        with port.changed_state() as state:
            assert state.window_limits
        hold_allowance(port)
