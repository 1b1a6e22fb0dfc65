"""Crowded ports: SYNs offer a smaller MSS, windows hold one segment, segments are pushed."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane import PortSettings
from openflow_ext.switch.rules import Rule, TcpMatch, WindowOp
from tests.bpf.conftest import PORT, Bench, reverse
from tests.bpf.packets import ACK, PSH, RST, SYN, Offer, Segment, checksum_is_right, tcp_of, window_of

LOCAL = Segment()
QUEUE_BYTES = 150_000
TIMESTAMPS = 12


def crowd(bench: Bench, flows: int, buffer_bytes: int = QUEUE_BYTES) -> None:
    """A port of 100 Mbit/s under SCCP with so many flows, and one more before."""
    bench.plane.configure(PORT, PortSettings(common_rtt_us=600), 100_000_000, buffer_bytes)
    bench.count_by_flags()
    for version in (4, 6):
        share = TcpMatch(ip_version=version, flags=0, flags_mask=SYN)
        bench.put(Rule(1, 100, 0, share, window_op=WindowOp.FAIR_SHARE))
    for number in range(flows + 1):
        bench.handshake(replace(LOCAL, src_port=1 + number))
    end(bench, flows)


def end(bench: Bench, number: int) -> None:
    bench.ingress(replace(LOCAL, src_port=1 + number, flags=RST | ACK))


def syn(segment: Segment, offer: Offer | None = None) -> Segment:
    return replace(segment, flags=SYN, options=(offer or Offer()).pack())


def mss_of(frame: bytes, segment: Segment) -> int:
    return int(struct.unpack_from("!H", tcp_of(frame, segment), 22)[0])


@pytest.mark.parametrize(
    ("flows", "scale", "segment_bytes"),
    [
        (10, 9, 1448),
        (79, 9, 1448),
        (119, 9, 1024),
        (220, 9, 512),
        (399, 9, 512),
        (399, 7, 256),
        (199, 0, 603),
    ],
)
def test_the_mss_that_is_offered_by_how_many_flows_there_are(
    bench: Bench, flows: int, scale: int, segment_bytes: int
) -> None:
    """Each flow's segment with its headers fits into seven eighths of queue and link, from 256 bytes on."""
    crowd(bench, flows)
    for run in (bench.ingress, bench.ingress_tc):
        offered = syn(replace(LOCAL, seq=len(run.__name__)), Offer(scale=scale))
        frame = run(offered)
        assert mss_of(frame, offered) == segment_bytes + TIMESTAMPS
        assert checksum_is_right(frame, offered)


@pytest.mark.parametrize("src", ["10.0.0.1", "fd00::1"])
def test_ipv6_and_a_repeated_syn(bench: Bench, src: str) -> None:
    crowd(bench, 119)
    offered = syn(replace(LOCAL, src=src, dst=src[:-1] + "2"))
    first = bench.ingress(offered)
    assert (mss_of(first, offered), checksum_is_right(first, offered)) == (1036, True)
    for number in range(200):
        bench.handshake(replace(LOCAL, src_port=20_000 + number))
    assert bench.ingress(offered) == first, "a repeated SYN says what the first did"


def test_what_is_left_alone(bench: Bench) -> None:
    crowd(bench, 119, buffer_bytes=0)
    unknown_queue = syn(LOCAL)
    assert bench.ingress(unknown_queue) == unknown_queue.pack()
    bench.plane.configure(PORT, PortSettings(common_rtt_us=600), 100_000_000, QUEUE_BYTES)
    for offer in (b"\x01\x01\x01\x01" + Offer().pack(), b"", Offer(mss=524).pack(), Offer(mss=5).pack()):
        segment = replace(LOCAL, flags=SYN, seq=len(offer) + offer.count(b"\x02"), options=offer)
        assert bench.ingress(segment) == segment.pack()
    out = replace(reverse(LOCAL), flags=SYN, options=Offer().pack())
    assert bench.egress(out) == out.pack(), "what the host is told stays"
    bench.plane.configure(PORT, PortSettings(), 100_000_000, QUEUE_BYTES)
    assert bench.ingress(replace(unknown_queue, seq=77)) == replace(unknown_queue, seq=77).pack()


def test_a_round_of_connections_that_have_ended_is_remembered(bench: Bench) -> None:
    crowd(bench, 119)
    for number in range(119):
        end(bench, number)
    assert bench.counters.n_i == 0
    assert mss_of(bench.ingress(syn(LOCAL)), syn(LOCAL)) == 1036


def test_a_crowd_that_grows_counts_half_as_many_again(bench: Bench) -> None:
    crowd(bench, 54)
    assert mss_of(bench.ingress(syn(LOCAL)), syn(LOCAL)) == 1460
    bench.handshake(LOCAL)
    more = syn(replace(LOCAL, src_port=9))
    assert mss_of(bench.ingress(replace(more, src_port=50_000)), more) == 1036, "ready for 84"


def test_one_segment_at_a_time_and_each_is_pushed(bench: Bench) -> None:
    crowd(bench, 119)
    bench.handshake(LOCAL)
    data = replace(reverse(LOCAL), payload=bytes(1024))
    request = replace(LOCAL, payload=b"?")
    assert window_of(bench.ingress(request), request) << 9 == 1024
    sent = bench.egress(data)
    assert tcp_of(sent, data)[13] == ACK | PSH
    assert checksum_is_right(sent, data)
    assert bench.egress(replace(data, flags=ACK | PSH)) == replace(data, flags=ACK | PSH).pack()
    assert window_of(bench.ingress(LOCAL), LOCAL) << 9 == 1024


def test_with_few_flows_left_windows_and_segments_are_as_ever(bench: Bench) -> None:
    crowd(bench, 119)
    bench.handshake(LOCAL)
    for number in range(117):
        end(bench, number)
    data = replace(reverse(LOCAL), payload=bytes(1024))
    assert bench.egress(data) == data.pack()
    share = 100 * 600 // 8 // bench.counters.n_i
    assert window_of(bench.ingress(LOCAL), LOCAL) << 9 == share // 1024 * 1024
