"""The clamp at ingress: scale from the handshake, rounding, packets that are not changed, the checksum."""

from __future__ import annotations

import ipaddress
import itertools
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from tests.support.data_plane.bench import OFPORT, PORT, Bench, reverse
from tests.support.data_plane.packets import (
    ACK,
    FIN,
    PSH,
    RST,
    SYN,
    Offer,
    Segment,
    checksum_is_right,
    window_of,
)

pytestmark = pytest.mark.beside_others

LOCAL = Segment()
LOCAL6 = Segment(src="fd00::1", dst="fd00::2")


@pytest.mark.parametrize("scale", range(15))
def test_window_is_just_above_one_segment_at_every_scale(bench: Bench, scale: int) -> None:
    bench.clamp_all_to(1)
    bench.handshake(LOCAL, Offer(scale=scale))

    window = window_of(bench.ingress(LOCAL), LOCAL)

    assert window == (1448 >> scale) + 1


def test_scale_applies_only_if_both_sides_offered_one(bench: Bench) -> None:
    bench.clamp_all_to(1)
    bench.handshake(LOCAL, Offer(scale=9), Offer(scale=None))

    assert window_of(bench.ingress(LOCAL), LOCAL) == 1449


@pytest.mark.parametrize(
    ("ours", "theirs", "segment_bytes"),
    [
        (Offer(mss=1460), Offer(mss=1460), 1448),
        (Offer(mss=1460, timestamps=False), Offer(mss=1460), 1460),
        (Offer(mss=8960), Offer(mss=1460), 1448),
        (Offer(mss=None, timestamps=False), Offer(mss=1460), 536),
        (Offer(mss=20), Offer(mss=1460), 88),
    ],
)
def test_segment_size_follows_from_both_offers(
    bench: Bench, ours: Offer, theirs: Offer, segment_bytes: int
) -> None:
    bench.clamp_all_to(1)
    bench.handshake(LOCAL, replace(ours, scale=0), replace(theirs, scale=0))

    assert window_of(bench.ingress(LOCAL), LOCAL) == segment_bytes + 1


def test_two_segments_and_more_are_rounded_down_to_whole_ones(bench: Bench) -> None:
    bench.clamp_all_to(2 * 1448 + 700)
    bench.handshake(LOCAL, Offer(scale=7))

    assert window_of(bench.ingress(LOCAL), LOCAL) == 2 * 1448 >> 7


@pytest.mark.parametrize(
    "segment",
    [
        LOCAL,
        LOCAL6,
        replace(LOCAL, payload=b"odd"),
        replace(LOCAL, vlans=(5,)),
        replace(LOCAL, vlans=(5, 6)),
        replace(LOCAL, ip_options=b"\x01" * 40),
        replace(LOCAL, flags=ACK | FIN),
        replace(LOCAL, flags=ACK | PSH, options=b"\x01" * 40),
        replace(LOCAL6, extensions=((0, bytes(7)), (60, b"\x01" + bytes(14)))),
        replace(LOCAL6, extensions=((44, bytes(7)),)),
    ],
)
def test_checksum_is_right_after_a_clamp(bench: Bench, segment: Segment) -> None:
    bench.put(Rule(0, 1, 0, TcpMatch(), WindowOp.SET_WINDOW, 1))
    bench.put(Rule(0, 1, 0, TcpMatch(ip_version=6), WindowOp.SET_WINDOW, 1))
    bench.handshake(replace(segment, payload=b""))

    for frame in (bench.ingress(segment), bench.ingress_tc(segment)):
        assert window_of(frame, segment) == (1448 >> 9) + 1
        assert checksum_is_right(frame, segment)
        assert frame[:12] == segment.pack()[:12]


@pytest.mark.parametrize(
    "segment",
    [
        replace(LOCAL, window=0),
        replace(LOCAL, window=1),
        replace(LOCAL, flags=SYN | ACK),
        replace(LOCAL, flags=RST),
        replace(LOCAL, fragment_offset=100),
        replace(LOCAL, src_port=1),
    ],
    ids=["closed window", "smaller window", "SYN", "no ACK", "later fragment", "handshake not seen"],
)
def test_packet_is_not_changed(bench: Bench, segment: Segment) -> None:
    bench.handshake(LOCAL)
    bench.clamp_all_to(1448)

    assert bench.ingress(segment) == segment.pack()
    assert bench.counters.clamped == 0


def test_unknown_scale_is_counted(bench: Bench) -> None:
    bench.clamp_all_to(1448)

    bench.ingress(LOCAL)

    assert bench.counters.unscaled == 1


def test_mod_window_decreases_by_alpha_segments_to_one(bench: Bench) -> None:
    """SDTCP, section IV.D: each packet that matches decreases the window by 5 MSS."""
    match = TcpMatch(
        src=ipaddress.IPv4Network(LOCAL.src),
        dst=ipaddress.IPv4Network(LOCAL.dst),
        src_port=LOCAL.src_port,
        dst_port=LOCAL.dst_port,
    )
    bench.handshake(LOCAL, Offer(scale=3))
    bench.put(Rule(0, 65535, 1, match, WindowOp.MOD_WINDOW, 14 * 1448, alpha=5))

    windows = [window_of(bench.ingress(LOCAL), LOCAL) for _ in range(5)]

    assert windows == [14 * 181, 9 * 181, 4 * 181, 182, 182]
    (_, stats), *_ = bench.plane.rules(3)
    assert (stats.packets, stats.clamped) == (5, 5)


def test_fair_share_is_the_bdp_of_the_port_divided_by_n_i(bench: Bench) -> None:
    """SCCP equation (1): 100 Mbit/s x 2 ms / 4 flows = 6250 bytes: four whole segments of 1448."""
    bench.count_by_flags()
    bench.put(Rule(1, 1, 0, TcpMatch(), WindowOp.FAIR_SHARE))
    bench.configure(common_rtt_us=2000)
    for port in range(4):
        bench.handshake(replace(LOCAL, src_port=100 + port), Offer(scale=3))

    frame = bench.ingress(replace(LOCAL, src_port=100))

    assert bench.counters.n_i == 4
    assert bench.counters.fair_share_bytes == 6250
    assert window_of(frame, LOCAL) == 4 * 181


def test_one_entry_per_table_acts_and_the_smaller_window_wins(bench: Bench) -> None:
    bench.put(Rule(0, 10, 0, TcpMatch(), WindowOp.SET_WINDOW, 9 * 1448))
    bench.put(Rule(0, 20, 0, TcpMatch(src_port=LOCAL.src_port), WindowOp.SET_WINDOW, 12 * 1448))
    bench.handshake(LOCAL, Offer(scale=3))
    assert window_of(bench.ingress(LOCAL), LOCAL) == 12 * 181

    bench.put(Rule(1, 1, 0, TcpMatch(), WindowOp.SET_WINDOW, 5 * 1448))
    assert window_of(bench.ingress(LOCAL), LOCAL) == 5 * 181


@pytest.mark.parametrize(("priority", "segments"), [(9, 5), (10, 7), (11, 7)])
def test_exact_and_wildcard_entry_by_priority(bench: Bench, priority: int, segments: int) -> None:
    """In one table the higher priority acts. In two tables both act, and the smaller window wins."""
    match = TcpMatch(
        src=ipaddress.IPv4Network(LOCAL.src),
        dst=ipaddress.IPv4Network(LOCAL.dst),
        src_port=LOCAL.src_port,
        dst_port=LOCAL.dst_port,
    )
    bench.put(Rule(0, priority, 0, match, WindowOp.SET_WINDOW, 7 * 1448))
    bench.put(Rule(0, 10, 0, TcpMatch(), WindowOp.SET_WINDOW, 5 * 1448))
    bench.handshake(LOCAL, Offer(scale=3))
    assert window_of(bench.ingress(LOCAL), LOCAL) == segments * 181

    bench.put(Rule(1, 1, 0, TcpMatch(), WindowOp.SET_WINDOW, 6 * 1448))
    assert window_of(bench.ingress(LOCAL), LOCAL) == min(segments, 6) * 181


@pytest.mark.parametrize(
    ("match", "hit"),
    [
        (TcpMatch(src=ipaddress.IPv4Network("10.0.0.0/8")), True),
        (TcpMatch(src=ipaddress.IPv4Network("11.0.0.0/8")), False),
        (TcpMatch(dst=ipaddress.IPv4Network("10.0.0.2/32"), dst_port=5000), True),
        (TcpMatch(dst_port=5001), False),
        (TcpMatch(flags=ACK, flags_mask=ACK | FIN), True),
        (TcpMatch(flags=0, flags_mask=ACK), False),
        (TcpMatch(in_port=OFPORT), True),
        (TcpMatch(in_port=OFPORT + 1), False),
        (TcpMatch(ip_version=6), False),
    ],
)
def test_entry_matches_only_its_segments(bench: Bench, match: TcpMatch, hit: bool) -> None:
    bench.put(Rule(0, 1, 0, match, WindowOp.SET_WINDOW, 1))
    bench.handshake(LOCAL)

    assert (window_of(bench.ingress(LOCAL), LOCAL) < LOCAL.window) is hit


def test_entry_does_not_act_after_its_hard_timeout(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openflow_ext.switch.dataplane.rule_structs.NS_PER_S", 1)
    bench.put(Rule(0, 1, 0, TcpMatch(), WindowOp.SET_WINDOW, 1, hard_timeout_s=1))
    bench.handshake(LOCAL)
    time.sleep(0.05)  # the programs see the time of the last clock tick

    assert window_of(bench.ingress(LOCAL), LOCAL) == LOCAL.window
    assert [hard for _, _, _, hard in bench.plane.expired()] == [True]


def rounds(bench: Bench, local: Segment, segment: int) -> Callable[..., int]:
    """A function that sends a segment out, waits, acknowledges it, and returns the window of that ACK."""
    acks = itertools.count(1 + segment, segment)

    def one_round(wait_s: float = 0, acked: int = 1, between: bytes = b"") -> int:
        for _ in range(acked):
            ack = next(acks)
            bench.egress(replace(reverse(local), seq=ack - segment, payload=b"x" * segment))
        time.sleep(wait_s)
        segment_in = replace(local, ack=ack, payload=between)
        return window_of(bench.ingress(segment_in), segment_in)

    return one_round


DELAYED_S = 0.03
LATER_S = 0.25
"""Linux takes a request as long after payload for the first of a new exchange."""


def test_sender_that_waits_for_delayed_acks_gets_two_segments(bench: Bench) -> None:
    """The signs: a pure ACK of one segment long after that segment, and the next segment at once."""
    bench.clamp_all_to(1)
    bench.handshake(LOCAL, Offer(scale=9))
    one_round = rounds(bench, LOCAL, 1448)
    one, two = (1448 >> 9) + 1, -(-2 * 1448 // 512)

    assert [one_round(), one_round(), one_round()] == [one] * 3
    assert [one_round(LATER_S, between=b"query"), one_round()] == [one] * 2, (
        "an ACK with data was not delayed"
    )
    assert [one_round(DELAYED_S, acked=2), one_round()] == [one] * 2, "an ACK of two segments was not delayed"
    assert [one_round(DELAYED_S), one_round(), one_round()] == [one, two, two]


HEADERS = 86
"""What segment fitting adds to a segment."""
LINK_BYTES = 1250
"""Capacity x common RTT of ``share_out``."""


def share_out(bench: Bench, flows: int, buffer_bytes: int) -> list[Segment]:
    """Flows of a port whose fair share is less than a segment."""
    bench.count_by_flags()
    bench.put(Rule(1, 1, 0, TcpMatch(), WindowOp.FAIR_SHARE))
    senders = [replace(LOCAL, src_port=100 + flow) for flow in range(flows)]
    for sender in senders:
        bench.handshake(sender, Offer(scale=9))
    bench.plane.configure(PORT, PortSettings(common_rtt_us=100), 100_000_000, buffer_bytes)
    return senders


@pytest.mark.parametrize(("segment", "field"), [(768, 3), (769, 4), (1280, 5), (1448, 6)])
def test_segments_of_which_two_exceed_the_least_window_get_room_for_two(
    bench: Bench, segment: int, field: int
) -> None:
    """A window of 3 x 512 bytes holds one segment of 1448 bytes, or two of 768."""
    (sender,) = share_out(bench, 1, buffer_bytes=150_000)
    assert window_of(bench.ingress(sender), sender) == 3

    assert rounds(bench, sender, segment)() == field


def test_flows_get_two_segments_only_if_two_of_each_fit_into_queue_and_link(bench: Bench) -> None:
    """Seven eighths of both hold two segments of two flows, not of three."""
    two_of_two = 2 * 2 * (1448 + HEADERS) * 8 // 7 + 1
    senders = share_out(bench, 3, buffer_bytes=two_of_two - LINK_BYTES)
    assert [rounds(bench, sender, 1448)() for sender in senders] == [3] * 3
    assert [rounds(bench, senders[2], 1448)(DELAYED_S) for _ in range(3)] == [3] * 3
    assert rounds(bench, senders[2], 1448)(between=b"query") == 3

    bench.egress(replace(reverse(senders[0]), seq=1 + 1448, flags=ACK | FIN))
    assert rounds(bench, senders[2], 1448)() == 6, "another flow ended"
    bench.handshake(replace(LOCAL, src_port=200), Offer(scale=9))
    assert rounds(bench, senders[2], 1448)() == 3, "and another one began"


def test_a_request_soon_after_payload_gets_two_segments(bench: Bench) -> None:
    """A receiver that answers at once delays its next ACKs, whatever PSH asks for."""
    bench.clamp_all_to(1)
    bench.handshake(LOCAL, Offer(scale=9))
    one, two = (1448 >> 9) + 1, -(-2 * 1448 // 512)
    query = replace(LOCAL, payload=b"query")
    assert window_of(bench.ingress(query), query) == one, "it has received nothing yet"

    one_round = rounds(bench, LOCAL, 1448)
    assert [one_round(LATER_S, between=b"query"), one_round()] == [one] * 2, "it has read for long"
    assert [one_round(between=b"query"), one_round()] == [two] * 2


def test_queue_of_unknown_size_grants_two_segments_only_after_a_delayed_ack(bench: Bench) -> None:
    (sender,) = share_out(bench, 1, buffer_bytes=0)
    one_round = rounds(bench, sender, 1448)
    assert [one_round(), one_round(DELAYED_S), one_round()] == [3, 3, 6]
