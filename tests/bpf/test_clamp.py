"""The clamp at ingress: scale from the handshake, rounding, what is left alone, the checksum."""

from __future__ import annotations

import ipaddress
import time
from dataclasses import replace

import pytest

from openflow_ext.switch.kernel import KernelDataPlane
from openflow_ext.switch.rules import Rule, TcpMatch, WindowOp
from tests.bpf.conftest import OFPORT, Bench, reverse
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

    assert window_of(bench.ingress(LOCAL), LOCAL) == LOCAL.window
    assert [hard for _, _, _, hard in bench.plane.expired()] == [True]


def test_a_sender_that_waits_for_delayed_acks_gets_two_segments(bench: Bench, plane: KernelDataPlane) -> None:
    """One segment in flight, a pure ACK long after it, the next segment at once: cwnd is 3 or less."""
    bench.clamp_all_to(1)
    bench.handshake(LOCAL, Offer(scale=9))
    data = replace(reverse(LOCAL), payload=b"x" * 1448)

    def one_round(ack: int, wait_s: float, between: bytes = b"") -> int:
        bench.egress(data)
        time.sleep(wait_s)
        return window_of(
            bench.ingress(replace(LOCAL, ack=ack, payload=between)), replace(LOCAL, payload=between)
        )

    one, two = (1448 >> 9) + 1, -(-2 * 1448 // 512)
    assert [one_round(1, 0), one_round(2, 0), one_round(3, 0)] == [one] * 3
    assert [one_round(4, 0.03, b"query"), one_round(5, 0)] == [one] * 2, "an ACK that rides on data"
    assert [one_round(6, 0.03), one_round(7, 0), one_round(8, 0.03), one_round(9, 0)] == [one] * 4, (
        "only once"
    )
    assert [one_round(10, 0.03), one_round(11, 0.03), one_round(12, 0)] == [one, one, two]
    assert one_round(13, 0) == two
