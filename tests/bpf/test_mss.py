"""Segment fitting on SCCP ports: MSS, finer window scale, windows of one segment, PSH."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import HostSettings, PortSettings, SweepTimes
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from tests.support.data_plane.bench import PORT, Bench, reverse, syn
from tests.support.data_plane.packets import (
    ACK,
    PSH,
    RST,
    SYN,
    Offer,
    Segment,
    checksum_is_right,
    mss_of,
    tcp_of,
    timestamps,
    window_of,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside_others

LOCAL = Segment()
QUEUE_BYTES = 150_000
TIMESTAMPS = 12
STAMPS = timestamps(1, 1)
HEADERS = 86
BURST_S = 0.01
CROWD_NS = 10**10
OWN_SCALE, TOLD_SCALE = 9, 7


def crowd(bench: Bench, flows: int, buffer_bytes: int = QUEUE_BYTES) -> None:
    """An SCCP port of 100 Mbit/s with open flows; one more flow has ended."""
    bench.plane.configure(PORT, PortSettings(common_rtt_us=600), 100_000_000, buffer_bytes)
    bench.count_by_flags()
    for version in (4, 6):
        share = TcpMatch(ip_version=version, flags=0, flags_mask=SYN)
        bench.put(Rule(1, 100, 0, share, window_op=WindowOp.FAIR_SHARE))
    for number in range(flows + 1):
        bench.handshake(replace(LOCAL, src_port=1 + number))
    end_flow(bench, flows)
    time.sleep(1.2 * BURST_S)


def end_flow(bench: Bench, number: int) -> None:
    bench.ingress(replace(LOCAL, src_port=1 + number, flags=RST | ACK))


def advertised_scale(frame: bytes, segment: Segment) -> int:
    """The window scale option, where Offer.pack puts it: after the MSS and the timestamps, if any."""
    options = tcp_of(frame, segment)[20:]
    at = options.index(b"\x03\x03", 14 if options[4] == 8 else 4)
    return options[at + 2]


@pytest.mark.parametrize(
    ("flows", "scale", "segment_bytes"),
    [
        (10, 9, 1408),
        (59, 9, 1408),
        (90, 9, 1024),
        (99, 9, 896),
        (119, 9, 768),
        (220, 9, 384),
        (399, 9, 256),
        (399, 7, 256),
        (199, 0, 465),
        (10, 14, 1448),
        (119, 14, 1448),
    ],
)
def test_fitted_mss_by_number_of_flows(bench: Bench, flows: int, scale: int, segment_bytes: int) -> None:
    """The segments of a quarter more flows fit into seven eighths of queue and link, from 256 bytes on.

    Steps of 2 KB (scale 14 is advertised as 11) hold no whole segment.
    """
    crowd(bench, flows)
    for run in (bench.ingress, bench.ingress_tc):
        time.sleep(1.2 * BURST_S)
        offered = syn(replace(LOCAL, seq=1 + len(run.__name__)), Offer(scale=scale))
        frame = run(offered)
        assert mss_of(frame, offered) == segment_bytes + TIMESTAMPS
        assert checksum_is_right(frame, offered)


@pytest.mark.parametrize("src", ["10.0.0.1", "fd00::1"])
def test_repeated_syn_gets_the_same_offer(bench: Bench, src: str) -> None:
    crowd(bench, 119)
    offered = syn(replace(LOCAL, src=src, dst=src[:-1] + "2"))
    first = bench.ingress(offered)
    assert (mss_of(first, offered), checksum_is_right(first, offered)) == (780, True)
    for number in range(200):
        bench.handshake(replace(LOCAL, src_port=20_000 + number))
    assert bench.ingress(offered) == first, "a repeated SYN gets the offer of the first"


@pytest.mark.parametrize("src", ["10.0.0.1", "fd00::1"])
@pytest.mark.parametrize(
    ("own", "advertised", "timestamps"),
    [(0, 0, True), (7, 7, True), (8, 7, False), (9, 7, True), (10, 7, False), (11, 8, True), (14, 11, False)],
)
def test_windows_are_translated_to_the_finer_scale(
    bench: Bench, src: str, own: int, advertised: int, timestamps: bool
) -> None:
    """The byte with the scale is the first or the second of its word, depending on the timestamps option."""
    crowd(bench, 5)
    flow = replace(LOCAL, src=src, dst=src[:-1] + "2")
    for number, run in enumerate((bench.ingress, bench.ingress_tc)):
        offered = syn(replace(flow, src_port=3000 + number), Offer(scale=own, timestamps=timestamps))
        frame = run(offered)
        assert (advertised_scale(frame, offered), checksum_is_right(frame, offered)) == (advertised, True)
    bench.handshake(flow, Offer(scale=own))
    for field in (0, 1, 5, 0xFFFF):
        with bench.unclamped():
            ack = replace(flow, window=field)
            frame = bench.ingress(ack)
        assert window_of(frame, ack) == min(field << own - advertised, 0xFFFF)
        assert checksum_is_right(frame, ack)


def test_silent_flow_leaves_n_i_and_its_windows_are_still_translated(bench: Bench) -> None:
    """If the switch forgot the flow, its windows would be an eighth of what the host means."""
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


def test_windows_are_not_translated_if_the_peer_does_not_scale(bench: Bench) -> None:
    crowd(bench, 5)
    bench.handshake(LOCAL, theirs=Offer(scale=None))
    small = replace(LOCAL, window=700, payload=b"?")
    assert window_of(bench.ingress(small), small) == 700


def test_syn_is_not_changed(bench: Bench) -> None:
    crowd(bench, 119, buffer_bytes=0)
    unknown_queue = syn(LOCAL)
    assert bench.ingress(unknown_queue) == unknown_queue.pack()
    bench.plane.configure(PORT, PortSettings(common_rtt_us=600), 100_000_000, QUEUE_BYTES)
    for offer in (b"\x01\x01\x01\x01" + Offer().pack(), b"", Offer(524, 7).pack(), Offer(mss=5).pack()):
        segment = replace(LOCAL, flags=SYN, seq=len(offer) + offer.count(b"\x02"), options=offer)
        assert bench.ingress(segment) == segment.pack()
    out = syn(reverse(LOCAL))
    assert bench.egress(out) == out.pack(), "the host receives it unchanged"
    bench.plane.configure_host(HostSettings(simple_count=True))
    assert bench.ingress(replace(unknown_queue, seq=76)) == replace(unknown_queue, seq=76).pack()
    bench.plane.configure_host(HostSettings())
    bench.plane.configure(PORT, PortSettings(), 100_000_000, QUEUE_BYTES)
    assert bench.ingress(replace(unknown_queue, seq=77)) == replace(unknown_queue, seq=77).pack()


def test_crowd_of_ended_connections_is_remembered(bench: Bench) -> None:
    crowd(bench, 119)
    for number in range(119):
        end_flow(bench, number)
    assert bench.counters.n_i == 0
    assert mss_in_a_burst(bench, LOCAL) == 780

    halve_crowd(bench)
    assert mss_in_a_burst(bench, replace(LOCAL, src_port=50_000)) == 1420, "the crowd of 120 is halved"


@pytest.mark.parametrize(("flows", "part_of_queue"), [(100, 7 / 8), (120, 1)])
def test_a_crowd_that_grows_fits_into_the_queue(bench: Bench, flows: int, part_of_queue: float) -> None:
    """A quarter more flows leave the spare eighth free, and half as many again do not overflow the queue."""
    crowd(bench, 79)
    for number in range(79):
        end_flow(bench, number)
    held_bytes = 0
    for number in range(flows):
        segment = replace(LOCAL, src_port=1000 + number)
        held_bytes += mss_in_a_burst(bench, segment) - TIMESTAMPS + HEADERS
        bench.handshake(segment)
    assert held_bytes <= QUEUE_BYTES * part_of_queue


def mss_in_a_burst(bench: Bench, segment: Segment) -> int:
    """The MSS that a SYN offers which follows another SYN, within the time of a burst."""
    for attempt in range(10):
        offered = syn(replace(segment, src_port=segment.src_port + 2 * attempt))
        begun_s = time.monotonic()
        bench.ingress(replace(offered, src_port=offered.src_port + 1))
        frame = bench.ingress(offered)
        if time.monotonic() - begun_s < BURST_S:
            return mss_of(frame, offered)
    raise AssertionError("the machine was too slow for a burst, ten times")


def test_a_single_flow_after_a_crowd_keeps_its_mss(bench: Bench) -> None:
    crowd(bench, 119)
    for number in range(119):
        end_flow(bench, number)
    assert mss_of(bench.ingress(syn(LOCAL)), syn(LOCAL)) == 1420


def halve_crowd(bench: Bench) -> None:
    """Move the crowd into the past by the time after which it is halved."""
    for key, state in bench.plane.pinned.maps["port_states"].items():
        if state.crowd:
            state.crowd_ns = max(0, state.crowd_ns - CROWD_NS)
            bench.plane.pinned.maps["port_states"].put(key, state)


def test_port_expects_twice_as_many_flows_as_a_growing_crowd(bench: Bench) -> None:
    crowd(bench, 45)
    for _ in range(8):
        halve_crowd(bench)
    assert mss_of(bench.ingress(syn(LOCAL)), syn(LOCAL)) == 1420, "the port expects 92 flows"
    bench.handshake(LOCAL)
    more = replace(LOCAL, src_port=50_000)
    assert mss_of(bench.ingress(syn(more)), syn(more)) == 1292, "the port expects 94 flows"


def test_burst_of_syns_counts_before_any_is_answered(bench: Bench) -> None:
    crowd(bench, 0)
    sizes = []
    for number in range(60):
        segment = syn(replace(LOCAL, src_port=1000 + number))
        sizes.append(mss_of(bench.ingress(segment), segment))
    assert bench.counters.n_i == 0
    assert sizes[0] == 1420
    assert sizes[-1] in (1036, 1420), "1036 unless the burst took more than 10 ms"
    assert sizes == sorted(sizes, reverse=True) or 1420 in sizes[-10:]


def turn_off_turns(bench: Bench) -> None:
    """Turn off turns, so that all flows of N_i share the port."""
    for key, port in bench.plane.pinned.maps["ports"].items():
        port.turn_shift = 0
        bench.plane.pinned.maps["ports"].put(key, port)


@pytest.mark.parametrize(("flows", "segments"), [(1, 13), (2, 4), (3, 3), (5, 3), (6, 2), (10, 2), (11, 1)])
def test_segments_per_window_by_number_of_active_senders(bench: Bench, flows: int, segments: int) -> None:
    """A BDP of 7,500 bytes, 9,375 bytes more for a lone flow, segments of 1,408 bytes."""
    crowd(bench, flows)
    turn_off_turns(bench)
    first = replace(LOCAL, src_port=1)
    assert window_bytes(bench, first) == 512
    bench.egress(replace(reverse(first), payload=b"x"))
    assert window_bytes(bench, first) == max(segments, 2) * 1408, (
        "at least two segments once, so that the sender sends whole segments"
    )
    assert window_bytes(bench, first) == segments * 1408


@pytest.mark.parametrize(("payload", "held"), [(640, 640), (1408, 1408), (2000, 1408)])
def test_a_window_holds_the_largest_segment_that_the_other_host_has_sent(
    bench: Bench, payload: int, held: int
) -> None:
    """A switch on the way has made that host's own offer smaller, which limits the other direction alone."""
    crowd(bench, 0)
    first = replace(LOCAL, src_port=9000)
    bench.handshake(first, theirs=Offer(mss=652))
    for number in range(30):
        bench.handshake(replace(LOCAL, src_port=1 + number))
    turn_off_turns(bench)
    bench.egress(replace(reverse(first), payload=bytes(payload)))
    for _ in range(3):
        window = window_bytes(bench, first)
    assert window == held


def test_window_holds_one_segment_which_is_pushed(bench: Bench) -> None:
    crowd(bench, 95)
    bench.handshake(LOCAL)
    assert window_bytes(bench, LOCAL) == 512
    bench.set_queue_bytes(1514)  # a queue makes turns last 17 ms; 1.2 ms are too short for 95 segments
    keep_sending(bench, 95)
    data = replace(reverse(LOCAL), options=STAMPS, payload=bytes(1024))
    bench.egress(data)
    assert window_bytes(bench, LOCAL) == 2048, "once, so that the sender sends whole segments"
    assert window_bytes(bench, LOCAL) == 1024
    sent = bench.egress(data)
    assert tcp_of(sent, data)[13] == ACK | PSH
    assert checksum_is_right(sent, data)
    assert bench.egress(replace(data, flags=ACK | PSH)) == replace(data, flags=ACK | PSH).pack()
    assert window_bytes(bench, replace(LOCAL, payload=b"?")) == 1024
    keep_alive = replace(data, seq=data.seq - 1, payload=data.payload[:1])
    assert bench.egress(data) == keep_alive.pack(), "PSH has no effect after a request at once"


def test_port_continues_after_its_capacity_was_unknown(bench: Bench) -> None:
    crowd(bench, 95)
    end_flow(bench, 0)
    first, other = LOCAL, replace(LOCAL, src_port=50_000)
    for flow in (first, other):
        bench.handshake(flow)
        assert window_bytes(bench, flow) == 512
    bench.plane.configure(PORT, PortSettings(common_rtt_us=600), 0, QUEUE_BYTES)
    bench.egress(replace(reverse(first), payload=bytes(1024)))
    assert window_bytes(bench, first) > 10 * 1024, "the window of the host is not lowered"
    bench.plane.configure(PORT, PortSettings(common_rtt_us=600), 100_000_000, QUEUE_BYTES)
    turn_off_turns(bench)
    bench.egress(replace(reverse(other), payload=bytes(1024)))
    assert window_bytes(bench, other) == 2048


def window_bytes(bench: Bench, segment: Segment) -> int:
    """The window that the segment leaves with, in bytes."""
    return window_of(bench.ingress(segment), segment) << TOLD_SCALE


def test_first_window_is_small_and_the_request_raises_it(bench: Bench) -> None:
    """A sender fills a window of 512 bytes with one segment. Only the first ACK of a connection gets it."""
    request = replace(LOCAL, payload=b"?")
    crowd(bench, 5)
    bench.handshake(LOCAL)
    assert (window_bytes(bench, LOCAL), window_bytes(bench, request)) == (512, 2 * 1408)
    crowd(bench, 119)
    other = replace(LOCAL, src_port=50_000)
    bench.handshake(other)
    assert (window_bytes(bench, other), window_bytes(bench, replace(other, payload=b"?"))) == (512, 512)


@pytest.mark.parametrize("form", ["ingress", "ingress_tc"])
@pytest.mark.parametrize(("flows", "window"), [(0, 65_535), (9, 8 * 1408), (44, 512)])
def test_a_syn_ack_advertises_what_the_queue_can_hold_of_each_flow(
    bench: Bench, flows: int, window: int, form: str
) -> None:
    """A host that has connected may send that much at once. The window has no scale; the host's is 64 KB."""
    crowd(bench, flows)
    answer = replace(LOCAL, src_port=60_000, flags=SYN | ACK, window=65_535, options=Offer().pack())
    bench.egress(syn(reverse(answer)))
    frame = getattr(bench, form)(answer)
    assert window_of(frame, answer) == window
    assert checksum_is_right(frame, answer)


def test_a_syn_ack_with_a_smaller_window_is_left_alone(bench: Bench) -> None:
    crowd(bench, 119)
    bench.egress(syn(reverse(LOCAL)))
    answer = replace(LOCAL, flags=SYN | ACK, window=100, options=Offer().pack())
    assert window_of(bench.ingress(answer), answer) == 100


def test_flows_receive_two_segments_one_after_the_other(bench: Bench) -> None:
    """Each flow receives a window of two segments once. The link of 1 kbit/s needs 35 s for four segments."""
    crowd(bench, 95)
    bench.plane.configure(PORT, PortSettings(common_rtt_us=60_000_000), 1000, QUEUE_BYTES)
    turn_off_turns(bench)
    end_flow(bench, 0)
    flows = [replace(LOCAL, src_port=50_001 + number) for number in range(2)]
    for flow in flows:
        bench.handshake(flow)
        assert window_bytes(bench, flow) == 512
    for flow in flows:
        bench.egress(replace(reverse(flow), payload=bytes(512)))
    assert [window_bytes(bench, flow) for flow in flows] == [2048, 512], (
        "the other flow gets a window for one small segment"
    )
    assert window_bytes(bench, flows[0]) == 1024


@pytest.mark.parametrize(("of_another_port", "next_window"), [(1536, 1408), (1024, 512)])
def test_no_small_window_follows_one_of_which_it_is_less_than_half(
    bench: Bench, of_another_port: int, next_window: int
) -> None:
    """The sender would wait for half of the largest window that it has seen. Another port has lowered it."""
    crowd(bench, 20)
    bench.plane.configure(PORT, PortSettings(common_rtt_us=600), 1_000_000, QUEUE_BYTES)
    turn_off_turns(bench)
    flow = replace(LOCAL, src_port=50_001)
    bench.handshake(flow)
    bench.egress(replace(reverse(flow), payload=bytes(512)))
    lowered = replace(flow, window=of_another_port >> OWN_SCALE)
    assert window_bytes(bench, lowered) == of_another_port
    with bench.changed_state() as state:
        state.next_growth_ns = (1 << 63) - 1
    assert window_bytes(bench, flow) == next_window


@pytest.mark.parametrize(("waiting", "window"), [(7, 2048), (8, 512)], ids=["an eighth is spare", "less"])
def test_flow_receives_two_segments_only_while_the_queue_has_room(
    bench: Bench, waiting: int, window: int
) -> None:
    crowd(bench, 95)
    turn_off_turns(bench)
    end_flow(bench, 0)
    bench.handshake(LOCAL)
    assert window_bytes(bench, LOCAL) == 512
    bench.egress(replace(reverse(LOCAL), payload=bytes(512)))
    bench.set_queue_bytes(waiting * QUEUE_BYTES // 8)
    assert window_bytes(bench, LOCAL) == window


def keep_sending(bench: Bench, flows: int) -> None:
    """Send a segment of each flow of `crowd`, so that it is an active sender."""
    for number in range(flows):
        bench.egress(replace(reverse(replace(LOCAL, src_port=1 + number)), payload=b"x"))


def test_few_flows_get_their_share_rounded_up_plus_one_segment(bench: Bench) -> None:
    crowd(bench, 95)
    bench.handshake(LOCAL)
    for number in range(93):
        end_flow(bench, number)
    data = replace(reverse(LOCAL), payload=bytes(1024))
    bench.egress(data)
    one_two_or_three = (18 * 1024, 5 * 1024, 4 * 1024)
    wait_until(
        lambda: window_of(bench.ingress(LOCAL), LOCAL) << TOLD_SCALE in one_two_or_three,
        "the share of as many active senders",
    )
    assert bench.egress(data) == data.pack(), "it is not pushed"


DELAYED_S = 0.03
"""The receiver has delayed its ACK."""


@pytest.mark.parametrize("is_pushed", [False, True])
def test_a_delayed_ack_counts_only_for_a_segment_with_psh(bench: Bench, is_pushed: bool) -> None:
    """While a window becomes small, the last segment of the larger one has no PSH: its ACK may be late."""
    crowd(bench, 0)
    bench.handshake(LOCAL)
    for number in range(60):
        bench.handshake(replace(LOCAL, src_port=1 + number))
    bench.set_queue_bytes(1514)
    keep_sending(bench, 60)
    if is_pushed:  # by these ACKs the switch knows that the flow may have one segment in flight
        window_bytes(bench, LOCAL)
        window_bytes(bench, LOCAL)
    data = replace(reverse(LOCAL), options=STAMPS, payload=bytes(1408))
    assert bool(tcp_of(bench.egress(data), data)[13] & PSH) is is_pushed
    time.sleep(DELAYED_S)
    bench.ingress(replace(LOCAL, ack=1 + 1408))
    bench.egress(replace(data, seq=1 + 1408))
    window_bytes(bench, LOCAL)
    window_bytes(bench, replace(LOCAL, ack=1 + 2 * 1408))
    followed = len(bench.egress(replace(data, seq=1 + 2 * 1408))) < 1408
    assert followed is is_pushed, "a keep-alive follows"


def test_keep_alives_follow_segments_while_two_of_each_flow_do_not_fit(bench: Bench) -> None:
    """Two segments take 1,964 bytes. Queue and link hold 1,306 of each flow, then 2,613."""
    crowd(bench, 71, buffer_bytes=100_000)
    bench.handshake(LOCAL)
    bench.set_queue_bytes(1514)
    keep_sending(bench, 71)
    data = replace(reverse(LOCAL), options=STAMPS, payload=bytes(896))
    bench.egress(data)
    window_bytes(bench, LOCAL)
    request = replace(LOCAL, ack=1 + 896, payload=b"?")
    assert window_bytes(bench, request) == 896
    later = replace(data, seq=1 + 896)
    assert bench.egress(replace(later, seq=1 + 896 + 1))[-896:] == later.payload, (
        "not all before is acknowledged"
    )
    assert bench.egress(later) == replace(later, seq=896, payload=later.payload[:1]).pack()
    for number in range(36):
        end_flow(bench, number)
    window_bytes(bench, request)
    assert window_bytes(bench, replace(LOCAL, ack=1 + 896)) == 2 * 896
