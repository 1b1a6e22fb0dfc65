"""The clamp at ingress: scale from the handshake, rounding, what is left alone, the checksum."""

from __future__ import annotations

import ipaddress
import itertools
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane import PortSettings
from openflow_ext.switch.rules import Rule, TcpMatch, WindowOp
from tests.bpf.conftest import OFPORT, PORT, Bench, reverse
from tests.bpf.packets import ACK, FIN, PSH, RST, SYN, Offer, Segment, checksum_is_right, window_of

LOCAL = Segment()
LOCAL6 = Segment(src="fd00::1", dst="fd00::2")


@pytest.mark.parametrize("scale", range(15))
def test_window_is_just_above_one_segment_at_every_scale(bench: Bench, scale: int) -> None:
    bench.clamp_all_to(1)
    bench.handshake(LOCAL, Offer(scale=scale))

    window = window_of(bench.ingress(LOCAL), LOCAL)

    assert window == (1448 >> scale) + 1


def test_scale_counts_only_when_both_sides_offered_one(bench: Bench) -> None:
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
def test_segment_size_from_both_offers(bench: Bench, ours: Offer, theirs: Offer, segment_bytes: int) -> None:
    bench.clamp_all_to(1)
    bench.handshake(LOCAL, replace(ours, scale=0), replace(theirs, scale=0))

    assert window_of(bench.ingress(LOCAL), LOCAL) == segment_bytes + 1


def test_whole_segments_rounded_down_from_two_on(bench: Bench) -> None:
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
def test_lowered_window_keeps_checksum_right(bench: Bench, segment: Segment) -> None:
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
def test_left_alone(bench: Bench, segment: Segment) -> None:
    bench.clamp_all_to(1448)
    bench.handshake(LOCAL)

    assert bench.ingress(segment) == segment.pack()
    assert bench.counters.clamped == 0


def test_unknown_scale_is_counted(bench: Bench) -> None:
    bench.clamp_all_to(1448)

    bench.ingress(LOCAL)

    assert bench.counters.unscaled == 1


def test_mod_window_falls_by_alpha_segments_to_one(bench: Bench) -> None:
    """SDTCP, section IV.D: the parameter decreases itself by 5 MSS with each packet that matches."""
    match = TcpMatch(
        src=ipaddress.IPv4Network(LOCAL.src),
        dst=ipaddress.IPv4Network(LOCAL.dst),
        src_port=LOCAL.src_port,
        dst_port=LOCAL.dst_port,
    )
    bench.put(Rule(0, 65535, 1, match, WindowOp.MOD_WINDOW, 14 * 1448, alpha=5))
    bench.handshake(LOCAL, Offer(scale=3))

    windows = [window_of(bench.ingress(LOCAL), LOCAL) for _ in range(5)]

    assert windows == [14 * 181, 9 * 181, 4 * 181, 182, 182]
    (_, stats), *_ = bench.plane.rules(3)
    assert (stats.packets, stats.clamped) == (5, 5)


def test_fair_share_is_the_ports(bench: Bench) -> None:
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


def test_one_entry_a_table_and_the_smaller_window_of_two(bench: Bench) -> None:
    bench.put(Rule(0, 10, 0, TcpMatch(), WindowOp.SET_WINDOW, 9 * 1448))
    bench.put(Rule(0, 20, 0, TcpMatch(src_port=LOCAL.src_port), WindowOp.SET_WINDOW, 12 * 1448))
    bench.handshake(LOCAL, Offer(scale=3))
    assert window_of(bench.ingress(LOCAL), LOCAL) == 12 * 181

    bench.put(Rule(1, 1, 0, TcpMatch(), WindowOp.SET_WINDOW, 5 * 1448))
    assert window_of(bench.ingress(LOCAL), LOCAL) == 5 * 181


@pytest.mark.parametrize(("priority", "segments"), [(9, 5), (10, 7), (11, 7)])
def test_one_connections_entry_and_one_for_all_in_a_table(bench: Bench, priority: int, segments: int) -> None:
    """The higher priority acts; in another table both do, and the smaller window is left."""
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
def test_matches(bench: Bench, match: TcpMatch, hit: bool) -> None:
    bench.put(Rule(0, 1, 0, match, WindowOp.SET_WINDOW, 1))
    bench.handshake(LOCAL)

    assert (window_of(bench.ingress(LOCAL), LOCAL) < LOCAL.window) is hit


def test_entry_past_its_hard_timeout_does_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openflow_ext.switch.ruleforms.NS", 1)
    bench.put(Rule(0, 1, 0, TcpMatch(), WindowOp.SET_WINDOW, 1, hard_timeout_s=1))
    bench.handshake(LOCAL)
    time.sleep(0.05)  # the programs see the time of the last clock tick

    assert window_of(bench.ingress(LOCAL), LOCAL) == LOCAL.window
    assert [hard for _, _, _, hard in bench.plane.expired()] == [True]


def rounds(bench: Bench, local: Segment, segment: int) -> Callable[..., int]:
    """One segment out, then an ACK of it after a while: the ACK's window. `ack` counts on by itself."""
    acks = itertools.count(1, segment)

    def one_round(wait_s: float = 0, acked: int = 1, between: bytes = b"") -> int:
        for _ in range(acked):
            bench.egress(replace(reverse(local), payload=b"x" * segment))
            ack = next(acks)
        time.sleep(wait_s)
        segment_in = replace(local, ack=ack, payload=between)
        return window_of(bench.ingress(segment_in), segment_in)

    return one_round


DELAYED_S = 0.03


def test_a_sender_that_waits_for_delayed_acks_gets_two_segments(bench: Bench) -> None:
    """A pure ACK, of one segment, long after it, and the next segment at once."""
    bench.clamp_all_to(1)
    bench.handshake(LOCAL, Offer(scale=9))
    one_round = rounds(bench, LOCAL, 1448)
    one, two = (1448 >> 9) + 1, -(-2 * 1448 // 512)

    assert [one_round(), one_round(), one_round()] == [one] * 3
    assert [one_round(DELAYED_S, between=b"query"), one_round()] == [one] * 2, "an ACK that rides on data"
    assert [one_round(DELAYED_S, acked=2), one_round()] == [one] * 2, "a busy host, not a delayed ACK"
    assert [one_round(DELAYED_S), one_round(), one_round()] == [one, two, two]


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
def test_segments_that_do_not_go_twice_into_the_least_window_have_room_for_two(
    bench: Bench, segment: int, field: int
) -> None:
    """3 x 512 is one segment of 1448 and a rest; two of 768."""
    (sender,) = share_out(bench, 1, buffer_bytes=150_000)
    assert window_of(bench.ingress(sender), sender) == 3

    assert rounds(bench, sender, segment)() == field


def test_the_queue_holds_what_two_segments_add(bench: Bench) -> None:
    """Five segments of room: three flows have one each, so two of them have a second one."""
    senders = share_out(bench, 3, buffer_bytes=5 * 1448)
    assert [rounds(bench, sender, 1448)() for sender in senders] == [6, 6, 3]
    assert [rounds(bench, senders[2], 1448)(DELAYED_S) for _ in range(3)] == [3] * 3

    bench.egress(replace(reverse(senders[0]), flags=ACK | FIN))
    assert rounds(bench, senders[2], 1448)() == 6, "the flow that ended gave it back"


def test_a_queue_that_nobody_knows_grants_only_what_is_seen_to_be_needed(bench: Bench) -> None:
    (sender,) = share_out(bench, 1, buffer_bytes=0)
    one_round = rounds(bench, sender, 1448)
    assert [one_round(), one_round(DELAYED_S), one_round()] == [3, 3, 6]
