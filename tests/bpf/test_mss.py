"""Ports under SCCP: SYNs offer segments that fit and finer windows, which hold one segment; it is pushed."""

from __future__ import annotations

import struct
import time
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane import HostSettings, PortSettings, SweepTimes
from openflow_ext.switch.rules import Rule, TcpMatch, WindowOp
from tests.bpf.conftest import PORT, Bench, reverse
from tests.bpf.packets import ACK, PSH, RST, SYN, Offer, Segment, checksum_is_right, tcp_of, window_of

LOCAL = Segment()
QUEUE_BYTES = 150_000
TIMESTAMPS = 12
BURST_S = 0.01
CROWD_NS = 10**10
TOLD_SCALE = 7


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
    time.sleep(1.2 * BURST_S)


def end(bench: Bench, number: int) -> None:
    bench.ingress(replace(LOCAL, src_port=1 + number, flags=RST | ACK))


def syn(segment: Segment, offer: Offer | None = None) -> Segment:
    return replace(segment, flags=SYN, options=(offer or Offer()).pack())


def told_scale(frame: bytes, segment: Segment) -> int:
    """Where Offer.pack has it: behind the MSS and the timestamps, if any."""
    options = tcp_of(frame, segment)[20:]
    at = options.index(b"\x03\x03", 14 if options[4] == 8 else 4)
    return options[at + 2]


def mss_of(frame: bytes, segment: Segment) -> int:
    return int(struct.unpack_from("!H", tcp_of(frame, segment), 22)[0])


@pytest.mark.parametrize(
    ("flows", "scale", "segment_bytes"),
    [
        (10, 9, 1408),
        (90, 9, 1408),
        (99, 9, 1280),
        (119, 9, 1024),
        (220, 9, 512),
        (399, 9, 256),
        (399, 7, 256),
        (199, 0, 603),
        (10, 14, 1448),
        (119, 14, 1448),
    ],
)
def test_the_mss_that_is_offered_by_how_many_flows_there_are(
    bench: Bench, flows: int, scale: int, segment_bytes: int
) -> None:
    """Each flow's segment with its headers fits into seven eighths of queue and link, from 256 bytes on.

    Steps of 2 KB (scale 14 is told as 11) hold no whole segment.
    """
    crowd(bench, flows)
    for run in (bench.ingress, bench.ingress_tc):
        time.sleep(1.2 * BURST_S)
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


@pytest.mark.parametrize("src", ["10.0.0.1", "fd00::1"])
@pytest.mark.parametrize(
    ("own", "told", "timestamps"),
    [(0, 0, True), (7, 7, True), (8, 7, False), (9, 7, True), (10, 7, False), (11, 8, True), (14, 11, False)],
)
def test_windows_are_in_finer_steps(bench: Bench, src: str, own: int, told: int, timestamps: bool) -> None:
    """The told scale's byte is the second of its word or the first, as the timestamps have it."""
    crowd(bench, 5)
    flow = replace(LOCAL, src=src, dst=src[:-1] + "2")
    for number, run in enumerate((bench.ingress, bench.ingress_tc)):
        offered = syn(replace(flow, src_port=3000 + number), Offer(scale=own, timestamps=timestamps))
        frame = run(offered)
        assert (told_scale(frame, offered), checksum_is_right(frame, offered)) == (told, True)
    bench.handshake(flow, Offer(scale=own))
    for field in (0, 1, 5, 0xFFFF):
        with bench.unclamped():
            ack = replace(flow, window=field)
            frame = bench.ingress(ack)
        assert window_of(frame, ack) == min(field << own - told, 0xFFFF)
        assert checksum_is_right(frame, ack)


def test_a_silent_flow_leaves_n_i_and_its_windows_are_translated_on(bench: Bench) -> None:
    """Nobody else knows how: forgotten, a connection of a pool would have an eighth of its windows."""
    crowd(bench, 0)
    bench.handshake(LOCAL, Offer(scale=9))
    counted, clamped = bench.counters.n_i, bench.counters.clamped
    assert bench.plane.sweep(SweepTimes(silent_s=1e-9)) == 0
    assert bench.counters.n_i == counted - 1
    with bench.unclamped():
        assert window_of(bench.ingress(replace(LOCAL, window=3)), LOCAL) == 3 << 2
    assert bench.counters.clamped == clamped, "no window was lowered"
    bench.egress(replace(reverse(LOCAL), payload=b"x"))
    assert bench.counters.n_i == counted
    assert bench.plane.sweep(SweepTimes(silent_s=1e-9, translated_s=0)) == 1
    assert bench.counters.n_i == counted - 1


def test_a_peer_that_does_not_scale_is_told_the_host_s_own_windows(bench: Bench) -> None:
    crowd(bench, 5)
    bench.handshake(LOCAL, theirs=Offer(scale=None))
    small = replace(LOCAL, window=700, payload=b"?")
    assert window_of(bench.ingress(small), small) == 700


def test_what_is_left_alone(bench: Bench) -> None:
    crowd(bench, 119, buffer_bytes=0)
    unknown_queue = syn(LOCAL)
    assert bench.ingress(unknown_queue) == unknown_queue.pack()
    bench.plane.configure(PORT, PortSettings(common_rtt_us=600), 100_000_000, QUEUE_BYTES)
    for offer in (b"\x01\x01\x01\x01" + Offer().pack(), b"", Offer(524, 7).pack(), Offer(mss=5).pack()):
        segment = replace(LOCAL, flags=SYN, seq=len(offer) + offer.count(b"\x02"), options=offer)
        assert bench.ingress(segment) == segment.pack()
    out = replace(reverse(LOCAL), flags=SYN, options=Offer().pack())
    assert bench.egress(out) == out.pack(), "what the host is told stays"
    bench.plane.configure_host(HostSettings(simple_count=True))
    assert bench.ingress(replace(unknown_queue, seq=76)) == replace(unknown_queue, seq=76).pack()
    bench.plane.configure_host(HostSettings())
    bench.plane.configure(PORT, PortSettings(), 100_000_000, QUEUE_BYTES)
    assert bench.ingress(replace(unknown_queue, seq=77)) == replace(unknown_queue, seq=77).pack()


def test_a_round_of_connections_that_have_ended_is_remembered(bench: Bench) -> None:
    crowd(bench, 119)
    for number in range(119):
        end(bench, number)
    assert bench.counters.n_i == 0
    assert mss_of(bench.ingress(syn(LOCAL)), syn(LOCAL)) == 1036

    forget(bench)
    later = syn(replace(LOCAL, seq=9))
    assert mss_of(bench.ingress(later), later) == 1420, "half of 120"


def forget(bench: Bench) -> None:
    """Let the time pass in which half of a crowd is forgotten."""
    for key, state in bench.plane._maps["port_states"].items():
        if state.crowd:
            state.crowd_ns = max(0, state.crowd_ns - CROWD_NS)
            bench.plane._maps["port_states"].put(key, state)


def test_a_crowd_that_grows_counts_twice(bench: Bench) -> None:
    crowd(bench, 45)
    for _ in range(8):
        forget(bench)
    assert mss_of(bench.ingress(syn(LOCAL)), syn(LOCAL)) == 1420, "ready for 92"
    bench.handshake(LOCAL)
    more = replace(LOCAL, src_port=50_000)
    assert mss_of(bench.ingress(syn(more)), syn(more)) == 1292, "ready for 94"


def test_a_burst_of_syns_counts_before_it_is_answered(bench: Bench) -> None:
    crowd(bench, 0)
    sizes = []
    for number in range(60):
        segment = syn(replace(LOCAL, src_port=1000 + number))
        sizes.append(mss_of(bench.ingress(segment), segment))
    assert bench.counters.n_i == 0
    assert sizes[0] == 1420
    assert sizes[-1] in (1036, 1420), "1036 unless the burst took more than 10 ms"
    assert sizes == sorted(sizes, reverse=True) or 1420 in sizes[-10:]


def all_share(bench: Bench) -> None:
    """All flows of N_i, whenever they sent."""
    for key, port in bench.plane._maps["ports"].items():
        port.turn_shift = 0
        bench.plane._maps["ports"].put(key, port)


@pytest.mark.parametrize(("flows", "segments"), [(1, 13), (2, 4), (3, 3), (5, 3), (6, 2), (10, 2), (11, 1)])
def test_segments_of_a_window_by_how_many_share(bench: Bench, flows: int, segments: int) -> None:
    """7,500 bytes a round trip and 9,375 more for one alone, segments of 1,408."""
    crowd(bench, flows)
    all_share(bench)
    first = replace(LOCAL, src_port=1)
    assert told(bench, first) == 512
    bench.egress(replace(reverse(first), payload=b"x"))
    assert told(bench, first) == max(segments, 2) * 1408, "two at least, once, for whole ones"
    assert told(bench, first) == segments * 1408


def test_one_segment_at_a_time_and_each_is_pushed(bench: Bench) -> None:
    crowd(bench, 119)
    bench.handshake(LOCAL)
    assert told(bench, LOCAL) == 512
    bench.let_wait(1514)  # a turn of 17 ms, for 1.2 are too few for 119 segments
    keep_sending(bench, 119)
    data = replace(reverse(LOCAL), payload=bytes(1024))
    bench.egress(data)
    assert told(bench, LOCAL) == 2048, "once, to have the sender make whole segments"
    assert told(bench, LOCAL) == 1024
    sent = bench.egress(data)
    assert tcp_of(sent, data)[13] == ACK | PSH
    assert checksum_is_right(sent, data)
    assert bench.egress(replace(data, flags=ACK | PSH)) == replace(data, flags=ACK | PSH).pack()
    assert told(bench, replace(LOCAL, payload=b"?")) == 1024


def test_a_port_whose_capacity_was_unknown_for_a_while_goes_on_as_before(bench: Bench) -> None:
    crowd(bench, 119)
    end(bench, 0)
    first, other = LOCAL, replace(LOCAL, src_port=50_000)
    for flow in (first, other):
        bench.handshake(flow)
        assert told(bench, flow) == 512
    bench.plane.configure(PORT, PortSettings(common_rtt_us=600), 0, QUEUE_BYTES)
    bench.egress(replace(reverse(first), payload=bytes(1024)))
    assert told(bench, first) > 10 * 1024, "as the host said"
    bench.plane.configure(PORT, PortSettings(common_rtt_us=600), 100_000_000, QUEUE_BYTES)
    all_share(bench)
    bench.egress(replace(reverse(other), payload=bytes(1024)))
    assert told(bench, other) == 2048


def told(bench: Bench, segment: Segment) -> int:
    """The window with which a segment goes on."""
    return window_of(bench.ingress(segment), segment) << TOLD_SCALE


def test_before_a_flow_sends_it_is_told_a_small_window_which_what_asks_can_raise(bench: Bench) -> None:
    """A window of 512 bytes is filled with one segment; the first of a connection, seen once."""
    request = replace(LOCAL, payload=b"?")
    crowd(bench, 5)
    bench.handshake(LOCAL)
    assert (told(bench, LOCAL), told(bench, request)) == (512, 2 * 1408)
    crowd(bench, 119)
    other = replace(LOCAL, src_port=50_000)
    bench.handshake(other)
    assert (told(bench, other), told(bench, replace(other, payload=b"?"))) == (512, 512)


def test_whole_segments_are_begun_one_flow_after_the_other(bench: Bench) -> None:
    """Each is told two at once for that; four segments take 35 s of a link of 1 kbit/s."""
    crowd(bench, 119)
    bench.plane.configure(PORT, PortSettings(common_rtt_us=60_000_000), 1000, QUEUE_BYTES)
    all_share(bench)
    end(bench, 0)
    flows = [replace(LOCAL, src_port=50_001 + number) for number in range(2)]
    for flow in flows:
        bench.handshake(flow)
        assert told(bench, flow) == 512
    for flow in flows:
        bench.egress(replace(reverse(flow), payload=bytes(512)))
    assert [told(bench, flow) for flow in flows] == [2048, 512], "the other with what it cannot halve"
    assert told(bench, flows[0]) == 1024


@pytest.mark.parametrize(("waiting", "window"), [(7, 2048), (8, 512)], ids=["an eighth is spare", "less"])
def test_whole_segments_are_begun_while_the_queue_has_room(bench: Bench, waiting: int, window: int) -> None:
    crowd(bench, 119)
    all_share(bench)
    end(bench, 0)
    bench.handshake(LOCAL)
    assert told(bench, LOCAL) == 512
    bench.egress(replace(reverse(LOCAL), payload=bytes(512)))
    bench.let_wait(waiting * QUEUE_BYTES // 8)
    assert told(bench, LOCAL) == window


def keep_sending(bench: Bench, flows: int) -> None:
    """A segment of each flow of `crowd`: those that send share."""
    for number in range(flows):
        bench.egress(replace(reverse(replace(LOCAL, src_port=1 + number)), payload=b"x"))


def test_where_few_share_each_has_its_share_rounded_up_and_one_segment_more(bench: Bench) -> None:
    crowd(bench, 119)
    bench.handshake(LOCAL)
    for number in range(117):
        end(bench, number)
    data = replace(reverse(LOCAL), payload=bytes(1024))
    assert bench.egress(data) == data.pack()
    keep_sending(bench, 0)
    windows = window_of(bench.ingress(LOCAL), LOCAL) << TOLD_SCALE
    assert windows in (18 * 1024, 5 * 1024, 4 * 1024), "as one, two or three of them have sent of late"
