"""The division of a corrected allowance by weights: a punished flow that sends on and on has a small one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from openflow_ext.switch.dataplane.structs import constants
from tests.support.data_plane.bench import BRIDGE, PORT, Bench, reflex_entry, reverse, send
from tests.support.data_plane.packets import ACK, FIN, Offer, Segment, window_of

pytestmark = pytest.mark.beside_others

FULL_WEIGHT = constants.WEIR_PUNISHED_FRACTION
"""Weights here are in units of that of a punished flow."""
CAPACITY_BPS, COMMON_RTT_US = 1_000_000_000, 5_000
BUFFER_BYTES = 40_000
ALLOWANCE = 625_000
MSS, STEP = 1448, 128
LONG, SHORT = Segment(src_port=1), Segment(src_port=2)
FULL_QUEUE = BUFFER_BYTES // MSS + 2
"""Segments, more than the queue holds."""
EVERY_TCP_SEGMENT = TcpMatch(flags=0x10, flags_mask=0x10)


@pytest.fixture(params=[{}])
def port(bench: Bench, request: pytest.FixtureRequest) -> Bench:
    """A port with two flows that both send."""
    settings = PortSettings(**{"common_rtt_us": COMMON_RTT_US, "corrects_allowance": True} | request.param)
    bench.plane.configure(PORT, settings, CAPACITY_BPS, BUFFER_BYTES)
    bench.hold_turns()
    bench.count_by_flags()
    bench.put(Rule(1, 50, 0, EVERY_TCP_SEGMENT, WindowOp.FAIR_SHARE))
    for flow in (LONG, SHORT):
        bench.handshake(flow, Offer(scale=7), Offer(scale=7))
        send(bench, flow)
    return bench


def window(bench: Bench, flow: Segment) -> int:
    """The window of the flow's next ACK, in bytes."""
    return window_of(bench.ingress(flow), flow) * STEP


def next_turn(bench: Bench, senders: Sequence[Segment] = (LONG, SHORT)) -> None:
    """A turn begins, without waiting for the end of the last one, and these flows send in it."""
    bench.skip_turn()
    for flow in senders:
        send(bench, flow)


def settle(bench: Bench) -> None:
    """Both flows send in two turns under their present weights."""
    for flow in (LONG, SHORT):
        window(bench, flow)
    next_turn(bench)
    next_turn(bench)


def punish_long(bench: Bench) -> None:
    """The long flow is armed, and sends more than the queue holds."""
    bench.plane.arm(PORT, BRIDGE, [reflex_entry(LONG)])
    window(bench, LONG)
    send(bench, LONG, FULL_QUEUE)
    settle(bench)


def punish_both(bench: Bench) -> None:
    """Both flows are armed, and each sends more than the queue holds."""
    bench.plane.arm(PORT, BRIDGE, [reflex_entry(LONG), reflex_entry(SHORT)])
    for flow in (LONG, SHORT):
        window(bench, flow)
        send(bench, flow, FULL_QUEUE)


def near(share: float) -> object:
    """A share, up to the part of a segment that is added, in whole segments."""
    return pytest.approx(share, abs=MSS + STEP)


def test_flows_that_nobody_punishes_have_equal_parts(port: Bench) -> None:
    send(port, LONG, FULL_QUEUE)
    settle(port)
    assert window(port, LONG) == near(ALLOWANCE / 2)
    assert window(port, SHORT) == near(ALLOWANCE / 2)


def test_a_flow_keeps_its_full_weight_until_the_sums_have_followed(port: Bench) -> None:
    """Otherwise its window would be a sixteenth for two turns, and the link idle."""
    settle(port)
    port.plane.arm(PORT, BRIDGE, [reflex_entry(LONG)])
    window(port, LONG)
    send(port, LONG, FULL_QUEUE)
    assert window(port, LONG) == near(ALLOWANCE / 2)
    next_turn(port)
    assert window(port, LONG) == near(ALLOWANCE / 2)
    next_turn(port)
    assert window(port, LONG) == near(ALLOWANCE / (FULL_WEIGHT + 1))


def test_a_flow_that_has_not_sent_in_a_turn_has_the_weight_that_the_sums_hold(port: Bench) -> None:
    """Both flows became punished in the turn before, so their sum is that of two small weights."""
    punish_both(port)
    next_turn(port)
    assert window(port, SHORT) == near(ALLOWANCE / 2)
    next_turn(port, senders=(LONG,))
    assert window(port, SHORT) == near(ALLOWANCE / 2)


def test_a_punished_flow_that_resumes_has_the_share_of_an_idle_flow_first(port: Bench) -> None:
    """With its small weight beside the full one of a flow that waits, it would have a seventeenth."""
    punish_long(port)
    for _ in range(3):
        next_turn(port, senders=())
    with port.changed_state() as state:
        state.next_growth_ns = 1 << 62  # no flow receives the share of an active sender
    next_turn(port, senders=(LONG,))
    assert window(port, LONG) == near(ALLOWANCE / 2)


def test_the_last_ack_of_the_last_flow_does_not_hold_back_the_shares_of_later_flows(port: Bench) -> None:
    """N_i is 0 when it comes, and the flow's last segments are still in the queue."""
    settle(port)
    for _ in range(3):
        next_turn(port, senders=())
    next_turn(port, senders=(LONG,))
    port.set_queue_bytes(BUFFER_BYTES // 6)
    for flow in (SHORT, LONG):
        port.egress(replace(reverse(flow), flags=FIN | ACK))
    assert port.counters.n_i == 0
    assert window(port, LONG) == near(ALLOWANCE)
    with port.changed_state() as state:
        assert state.next_growth_ns - time.monotonic_ns() <= 2 * ALLOWANCE * 8 * 10**9 // CAPACITY_BPS


def test_each_flow_has_the_larger_window_in_some_turns(port: Bench) -> None:
    """Half of the allowance is not a whole number of segments. Parts of a segment go round in 1024 turns.

    A turn that ends between the segments of both flows has one sender.
    """
    settle(port)
    found: dict[Segment, set[int]] = {LONG: set(), SHORT: set()}
    for _ in range(1024):
        next_turn(port)
        for flow, windows in found.items():
            windows.add(window(port, flow))
    of_two = {flow: sorted(windows)[:2] for flow, windows in found.items()}
    assert of_two[LONG] == of_two[SHORT] == [near(ALLOWANCE / 2), near(ALLOWANCE / 2)]


def test_a_punished_flow_that_sends_on_has_a_small_part_and_the_other_the_rest(port: Bench) -> None:
    punish_long(port)
    assert window(port, LONG) == near(ALLOWANCE / (FULL_WEIGHT + 1))
    assert window(port, SHORT) == near(ALLOWANCE * FULL_WEIGHT / (FULL_WEIGHT + 1))


def test_a_punished_flow_that_is_new_has_an_equal_part(port: Bench) -> None:
    port.plane.arm(PORT, BRIDGE, [reflex_entry(LONG)])
    settle(port)
    assert window(port, LONG) == near(ALLOWANCE / 2)


@pytest.mark.parametrize("asked", [True, False])
def test_a_punished_flow_has_an_equal_part_again_if_it_resumes_for_a_request(
    port: Bench, asked: bool
) -> None:
    punish_long(port)
    next_turn(port, [SHORT])
    next_turn(port, [SHORT])
    port.ingress(replace(LONG, payload=b"?" if asked else b"", ack=LONG.ack + MSS))
    settle(port)
    weights = 2 * FULL_WEIGHT if asked else FULL_WEIGHT + 1
    assert window(port, SHORT) == near(ALLOWANCE * FULL_WEIGHT / weights)


def test_punished_flows_alone_have_equal_parts_of_the_whole(port: Bench) -> None:
    punish_both(port)
    settle(port)
    assert window(port, LONG) == near(ALLOWANCE / 2)
    assert window(port, SHORT) == near(ALLOWANCE / 2)


def test_a_disarmed_flow_has_an_equal_part_again(port: Bench) -> None:
    punish_long(port)
    port.plane.arm(PORT, BRIDGE, [])
    settle(port)
    assert window(port, LONG) == near(ALLOWANCE / 2)


def test_mod_window_lowers_a_window_to_the_flow_s_part_and_not_further(port: Bench) -> None:
    port.put(replace(reflex_entry(LONG, window_bytes=2 * MSS), cookie=1))
    window(port, LONG)
    send(port, LONG, FULL_QUEUE)
    settle(port)
    assert [window(port, LONG) for _ in range(3)] == [near(ALLOWANCE / (FULL_WEIGHT + 1))] * 3


@pytest.mark.parametrize("port", [{"common_rtt_us": 80}], indirect=True)
def test_beside_a_punished_flow_with_one_segment_others_fill_a_part_of_the_queue(port: Bench) -> None:
    """The allowance of 10 KB would give the punished flow a seventh of the link, and not a seventeenth."""
    port.set_queue_bytes(MSS)  # the link is not idle, so the allowance stays
    punish_long(port)
    assert window(port, LONG) == near(MSS)
    burst_bytes = min((FULL_WEIGHT + 1) * MSS, BUFFER_BYTES * 3 // 4 * MSS // (MSS + 86))
    assert window(port, SHORT) == near(burst_bytes * FULL_WEIGHT / (FULL_WEIGHT + 1))


@pytest.mark.parametrize("port", [{"corrects_allowance": False}], indirect=True)
def test_without_a_corrected_allowance_mod_window_lowers_it_as_in_the_paper(port: Bench) -> None:
    port.put(reflex_entry(LONG, window_bytes=4 * MSS))
    send(port, LONG, FULL_QUEUE)
    settle(port)
    assert [window(port, LONG) for _ in range(4)][-1] <= 2 * MSS
