"""Ports and rules that observe: they count the packets that they would change, and change none."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from tests.support.data_plane.bench import BRIDGE, PORT, Bench, reverse, syn
from tests.support.data_plane.packets import ACK, SYN, Offer, Segment, window_of
from weir_base.port_counters import PortCountersFlags

pytestmark = pytest.mark.beside_others

LOCAL = Segment()
QUEUE_BYTES = 150_000
SHARE_PORT = PortSettings(common_rtt_us=600)
OBSERVING_SHARE_PORT = PortSettings(common_rtt_us=600, observes_share=True)


PLAIN_PORT = PortSettings()


def observe(bench: Bench, settings: PortSettings = PLAIN_PORT, *, observes: bool = True) -> None:
    """The port of 100 Mbit/s with a queue; ``observes``: it changes nothing at all."""
    bench.plane.configure(PORT, settings, 100_000_000, QUEUE_BYTES, observes=observes)


def share_rules(bench: Bench, observes: bool = False) -> None:
    bench.count_by_flags()
    bench.put(Rule(1, 100, 0, TcpMatch(flags=0, flags_mask=SYN), WindowOp.FAIR_SHARE, observes=observes))


def lowered(bench: Bench, segment: Segment = LOCAL) -> bool:
    return window_of(bench.ingress(segment), segment) < segment.window


def test_port_that_observes_counts_and_changes_no_window(bench: Bench) -> None:
    bench.clamp_all_to(1)
    observe(bench)
    bench.handshake(LOCAL)
    before = bench.counters.clamped

    assert bench.ingress(LOCAL) == LOCAL.pack()
    assert bench.ingress_tc(LOCAL) == LOCAL.pack()

    assert bench.counters.clamped == before + 2
    assert bench.counters.flags & PortCountersFlags.OBSERVES
    ((_, stats),) = bench.plane.rules(BRIDGE)
    assert stats.clamped == stats.packets == before + 2


def test_port_clamps_again_at_once_when_it_no_longer_observes(bench: Bench) -> None:
    bench.clamp_all_to(1)
    bench.handshake(LOCAL)
    assert lowered(bench)

    observe(bench)
    assert not lowered(bench)
    observe(bench, observes=False)

    assert lowered(bench)
    assert not bench.counters.observes


def test_n_i_is_counted_while_the_port_observes(bench: Bench) -> None:
    share_rules(bench)
    observe(bench, SHARE_PORT)

    for number in range(5):
        bench.handshake_in(replace(LOCAL, src_port=100 + number))

    assert bench.counters.n_i == 5


def test_translated_windows_stay_right_while_the_port_observes(bench: Bench) -> None:
    """A connection was opened with a finer window scale. Its windows are translated as long as it lives."""
    share_rules(bench)
    observe(bench, SHARE_PORT, observes=False)
    bench.handshake(LOCAL, Offer(scale=9))
    small = replace(LOCAL, window=10)

    for observes in (True, False, True):
        observe(bench, SHARE_PORT, observes=observes)
        assert window_of(bench.ingress(small), small) == 10 << 2

    assert window_of(bench.ingress(LOCAL), LOCAL) == min(LOCAL.window << 2, 0xFFFF)


@pytest.mark.parametrize("settings", [SHARE_PORT, OBSERVING_SHARE_PORT], ids=["off", "share observed"])
def test_syn_is_not_fitted_while_the_port_observes(bench: Bench, settings: PortSettings) -> None:
    share_rules(bench)
    observe(bench, settings, observes=settings is SHARE_PORT)
    opening = syn(LOCAL, Offer(scale=9))
    answer = replace(syn(replace(LOCAL, src_port=9), Offer(scale=9)), flags=SYN | ACK)
    bench.egress(syn(reverse(replace(LOCAL, src_port=9))))

    assert bench.ingress(opening) == opening.pack()
    assert (
        bench.ingress(replace(answer, ack=reverse(LOCAL).seq))
        == replace(answer, ack=reverse(LOCAL).seq).pack()
    )


def test_repeated_syn_keeps_the_offer_of_the_first_one(bench: Bench) -> None:
    """The port begins or ends to observe in the middle of a handshake."""
    share_rules(bench)
    observe(bench, SHARE_PORT, observes=False)
    opening, later = syn(LOCAL, Offer(scale=9)), syn(replace(LOCAL, src_port=9), Offer(scale=9))
    fitted = bench.ingress(opening)
    assert fitted != opening.pack()

    observe(bench, SHARE_PORT)
    assert bench.ingress(opening) == fitted
    assert bench.ingress(later) == later.pack()
    observe(bench, SHARE_PORT, observes=False)

    assert bench.ingress(later) == later.pack()


def test_port_that_observes_sets_no_push(bench: Bench) -> None:
    share_rules(bench)
    observe(bench, SHARE_PORT, observes=False)
    bench.hold_turns()
    for number in range(120):
        bench.handshake_in(replace(LOCAL, src_port=100 + number), Offer(), Offer(scale=9))
    flow = replace(LOCAL, src_port=100)
    data = replace(reverse(flow), payload=b"x" * 100)
    bench.egress(data)
    bench.ingress(flow)
    assert bench.egress(data) != data.pack(), "PSH is set"

    observe(bench, SHARE_PORT)

    assert bench.egress(data) == data.pack()


def test_share_is_observed_while_another_rule_acts(bench: Bench) -> None:
    """SCCP observes and SDTCP acts on the same ACKs: SDTCP's window is in force."""
    match = TcpMatch(
        src=ipaddress.IPv4Network(LOCAL.src),
        dst=ipaddress.IPv4Network(LOCAL.dst),
        src_port=LOCAL.src_port,
        dst_port=LOCAL.dst_port,
    )
    observe(bench, OBSERVING_SHARE_PORT, observes=False)
    share_rules(bench)
    bench.handshake(LOCAL, Offer(scale=7))
    assert not lowered(bench)
    bench.put(Rule(0, 65535, 1, match, WindowOp.SET_WINDOW, 20 * 1448))

    assert window_of(bench.ingress(LOCAL), LOCAL) == 20 * 1448 >> 7


@pytest.mark.parametrize("op", [WindowOp.MOD_WINDOW, WindowOp.SET_WINDOW])
def test_rule_that_observes_counts_beside_a_rule_that_acts(bench: Bench, op: WindowOp) -> None:
    bench.put(Rule(0, 5, 1, TcpMatch(), op, 2 * 1448, alpha=1, observes=True))
    bench.put(Rule(1, 1, 2, TcpMatch(), WindowOp.SET_WINDOW, 20 * 1448))
    bench.handshake(LOCAL, Offer(scale=7))
    before = bench.counters.clamped

    assert window_of(bench.ingress(LOCAL), LOCAL) == 20 * 1448 >> 7

    assert bench.counters.clamped == before + 1
    assert [stats.clamped for _, stats in bench.plane.rules(BRIDGE)] == [before + 1] * 2
    assert [rule.observes for rule, _ in bench.plane.rules(BRIDGE)] == [True, False]


def test_syn_of_an_excluded_network_is_not_fitted(bench: Bench) -> None:
    """An entry of a higher priority observes the flows of one network; all others are fitted."""
    share_rules(bench)
    match = TcpMatch(dst=ipaddress.IPv4Network("192.0.2.0/24"))
    bench.put(Rule(1, 200, 0, match, WindowOp.FAIR_SHARE, observes=True))
    observe(bench, SHARE_PORT, observes=False)
    excluded, other = replace(LOCAL, dst="192.0.2.7"), LOCAL

    for segment in (excluded, other):
        opening = syn(segment, Offer(scale=9))
        assert (bench.ingress(opening) == opening.pack()) is (segment is excluded)
        bench.handshake(segment, Offer(scale=9))

    assert not lowered(bench, excluded)
    assert lowered(bench, other)


def test_settings_of_a_port_are_read_back(bench: Bench) -> None:
    observe(bench, OBSERVING_SHARE_PORT)
    assert bench.plane.settings(PORT)[0].observes_share

    observe(bench, SHARE_PORT)
    assert not bench.plane.settings(PORT)[0].observes_share
