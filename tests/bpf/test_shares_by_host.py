"""A port that is divided among hosts first: a host gains no share by more connections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from openflow_ext.switch.dataplane.structs import constants
from tests.support.data_plane.bench import BRIDGE, PORT, Bench, reflex_entry, reverse, send, syn
from tests.support.data_plane.packets import ACK, FIN, Offer, Segment, window_of

pytestmark = pytest.mark.beside_others

CAPACITY_BPS, COMMON_RTT_US = 1_000_000_000, 5_000
BUFFER_BYTES = 40_000
ALLOWANCE = 625_000
MSS, STEP = 1448, 128
BY_HOST = PortSettings(common_rtt_us=COMMON_RTT_US, corrects_allowance=True, by_host=True)
BY_FLOW = replace(BY_HOST, by_host=False)
GREEDY_FLOWS = 8
LONE = Segment(dst="10.0.0.3", src_port=100)
GREEDY = [Segment(dst="10.0.0.2", src_port=number) for number in range(1, 1 + GREEDY_FLOWS)]
EVERYBODY = [LONE, *GREEDY]
SEGMENTS_THAT_FIT = 6
"""Of flows of one host, beside a flow of another one: twice as many fit into the queue."""
FULL_QUEUE = BUFFER_BYTES // MSS + 2
"""Segments, more than the queue holds."""


def configure(bench: Bench, settings: PortSettings) -> None:
    bench.plane.configure(PORT, settings, CAPACITY_BPS, BUFFER_BYTES)
    bench.hold_turns()


@pytest.fixture
def port(bench: Bench) -> Bench:
    """One host sends one flow to the port, another host sends eight."""
    return opened(bench, EVERYBODY)


def opened(bench: Bench, flows: Sequence[Segment], settings: PortSettings = BY_HOST) -> Bench:
    """A port to which these flows have sent in two turns."""
    configure(bench, settings)
    bench.count_by_flags()
    for version in (4, 6):
        every_segment = TcpMatch(version, flags=ACK, flags_mask=ACK)
        bench.put(Rule(1, 50, 0, every_segment, WindowOp.FAIR_SHARE))
    for flow in flows:
        bench.handshake(flow, Offer(scale=7), Offer(scale=7))
    for _ in range(3):
        next_turn(bench, flows)
    for flow in flows:
        window(bench, flow)
    return bench


def next_turn(bench: Bench, senders: Sequence[Segment]) -> None:
    """A turn passes, and these flows send in the next one."""
    bench.end_turn()
    for flow in senders:
        send(bench, flow)
    with bench.changed_state() as state:
        state.next_growth_ns = 0


def window(bench: Bench, flow: Segment) -> int:
    """The window of the flow's next ACK, in bytes."""
    with bench.changed_state() as state:
        state.next_growth_ns = 0  # each flow receives the share of an active sender
    return window_of(bench.ingress(flow), flow) * STEP


def near(share: float) -> object:
    """A share, up to the part of a segment that is added, in whole segments."""
    return pytest.approx(share, abs=MSS + STEP)


def test_each_host_has_an_equal_share_which_its_flows_divide(port: Bench) -> None:
    assert port.counters.share_by == "host"
    assert window(port, LONE) == near(ALLOWANCE / 2)
    for flow in GREEDY:
        assert window(port, flow) == near(ALLOWANCE / 2 / GREEDY_FLOWS)


def test_without_the_setting_each_flow_has_an_equal_share(bench: Bench) -> None:
    opened(bench, EVERYBODY, BY_FLOW)
    assert bench.counters.share_by == "flow"
    for flow in EVERYBODY:
        assert window(bench, flow) == near(ALLOWANCE / len(EVERYBODY))


def test_hosts_are_told_apart_by_ipv6_addresses_too(bench: Bench) -> None:
    lone = Segment(src="2001:db8::1", dst="2001:db8::3")
    greedy = [Segment(src="2001:db8::1", dst="2001:db8::2", src_port=number) for number in (1, 2, 3)]
    opened(bench, [lone, *greedy])
    assert window(bench, lone) == near(ALLOWANCE / 2)
    assert [window(bench, flow) for flow in greedy] == [near(ALLOWANCE / 6)] * 3


def test_a_host_s_part_goes_to_its_other_flows_when_some_stop(port: Bench) -> None:
    for _ in range(3):
        next_turn(port, [LONE, *GREEDY[:2]])
    assert window(port, LONE) == near(ALLOWANCE / 2)
    assert window(port, GREEDY[0]) == near(ALLOWANCE / 4)


def test_a_host_s_part_goes_to_the_others_when_it_stops(port: Bench) -> None:
    for _ in range(3):
        next_turn(port, GREEDY)
    assert window(port, GREEDY[0]) == near(ALLOWANCE / GREEDY_FLOWS)


def test_a_flow_that_ends_takes_off_the_weight_that_it_had(port: Bench) -> None:
    port.egress(replace(reverse(LONE), flags=FIN | ACK))
    with port.changed_state() as state:
        weights = int(state.weight_in_turn[state.turn % 2]), int(state.full_in_turn[state.turn % 2])
    assert weights == (constants.WEIR_FULL_WEIGHT, constants.WEIR_FULL_WEIGHT)


def test_a_punished_flow_has_a_small_part_of_its_host_s_share(port: Bench) -> None:
    """Its host's other flows do not gain what it gives up more than the other host's."""
    punished, *others = GREEDY
    port.plane.arm(PORT, BRIDGE, [reflex_entry(punished)])
    window(port, punished)
    send(port, punished, FULL_QUEUE)
    for _ in range(2):
        next_turn(port, EVERYBODY)
    small = 1 / GREEDY_FLOWS / constants.WEIR_PUNISHED_FRACTION
    weights = 1 + len(others) / GREEDY_FLOWS + small
    assert window(port, punished) == near(ALLOWANCE * small / weights)
    assert window(port, others[0]) == near(ALLOWANCE / GREEDY_FLOWS / weights)
    assert window(port, LONE) == near(ALLOWANCE / weights)


def test_connections_that_are_not_complete_take_no_part(port: Bench) -> None:
    for number in range(1000, 1000 + 50):
        port.ingress(replace(syn(LONE), src_port=number))
        port.egress(replace(reverse(replace(LONE, src_port=number)), payload=b"x" * MSS))
    assert window(port, LONE) == near(ALLOWANCE / 2)


@pytest.mark.parametrize(("before", "after"), [(BY_HOST, BY_FLOW), (BY_FLOW, BY_HOST)])
def test_no_flow_has_more_than_its_part_while_the_setting_changes(
    bench: Bench, before: PortSettings, after: PortSettings
) -> None:
    opened(bench, EVERYBODY, before)
    configure(bench, after)
    for _ in range(4):
        next_turn(bench, EVERYBODY)
        assert sum(window(bench, flow) for flow in EVERYBODY) <= ALLOWANCE + len(EVERYBODY) * (MSS + STEP)
    part = ALLOWANCE / (2 if after.by_host else len(EVERYBODY))
    assert window(bench, LONE) == near(part)


def test_the_least_allowance_gives_a_segment_to_the_smallest_share(bench: Bench) -> None:
    """A flow has a segment at least, so that a smaller allowance would divide the port by flows again."""
    opened(bench, EVERYBODY[: 1 + SEGMENTS_THAT_FIT])
    two_hosts = 2 * SEGMENTS_THAT_FIT * MSS
    with bench.changed_state() as state:
        state.allowance_bytes, state.settled, state.departed_bytes = 3 * MSS, 1, 1 << 30
        state.queue_bytes = state.queue_min_bytes = BUFFER_BYTES
        state.starved_ns = 0
    send(bench, LONE)
    assert bench.counters.allowance_bytes == pytest.approx(two_hosts, rel=0.01)
