"""Forged and malformed segments: only what the hosts would believe changes the state of a flow."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import HostSettings, PortSettings, SweepTimes
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from tests.support.data_plane.bench import BRIDGE, PORT, Bench, reverse, syn
from tests.support.data_plane.packets import (
    ACK,
    FIN,
    RST,
    SYN,
    Offer,
    Segment,
    checksum_is_right,
    tcp_of,
    window_of,
)

pytestmark = pytest.mark.beside_others

LOCAL = Segment(seq=1_000, ack=90_000)
OUT = reverse(LOCAL)
CLAMPED_TO = 4 * 1448
ECE_CWR = 0xC0


@pytest.fixture(params=["10.0.0.1", "fd00::1"])
def local(request: pytest.FixtureRequest) -> Segment:
    return replace(LOCAL, src=request.param, dst=request.param[:-1] + "2")


@pytest.fixture
def running(bench: Bench, local: Segment) -> Bench:
    """An established flow that is counted and whose windows are lowered."""
    bench.count_by_flags()
    for version in (4, 6):
        match = TcpMatch(ip_version=version)
        bench.put(Rule(0, 1, 0, match, WindowOp.SET_WINDOW, CLAMPED_TO))
    bench.handshake(local, Offer(scale=3), Offer(scale=3))
    assert is_running(bench, local)
    bench.plane.configure_host(HostSettings(report_kinds=0b11110))
    return bench


def is_running(bench: Bench, local: Segment) -> bool:
    """The flow is counted and its ACKs are lowered, with the scale of its handshake."""
    return bench.counters.n_i == 1 and window_of(bench.ingress(local), local) == CLAMPED_TO >> 3


def send(bench: Bench, segment: Segment) -> bytes:
    """By the way that the segment goes: from the local host or to it."""
    from_local = segment.src_port == LOCAL.src_port
    return bench.ingress(segment) if from_local else bench.egress(segment)


@pytest.mark.parametrize("way", ["in", "out"])
@pytest.mark.parametrize("flags", [SYN, SYN | ACK, RST, RST | ACK, FIN | ACK, SYN | FIN, SYN | RST])
@pytest.mark.parametrize("seq", [-500, 7_000_000, 1 << 31])
def test_a_segment_with_another_sequence_number_changes_nothing(
    running: Bench, local: Segment, way: str, flags: int, seq: int
) -> None:
    segment = local if way == "in" else reverse(local)
    options = Offer(mss=600, scale=0).pack() if flags & SYN else b""
    forged = replace(segment, flags=flags, seq=(segment.seq + seq) % (1 << 32), options=options)

    for _ in range(2):
        send(running, forged)

    assert is_running(running, local)
    assert running.plane.reports() == ({}, 0)
    running.egress(replace(reverse(local), flags=FIN | ACK))
    assert running.counters.n_i == 0, "a real end is still seen"


@pytest.mark.parametrize("way", ["in", "out"])
@pytest.mark.parametrize("flags", [SYN, RST, RST | ACK, FIN | ACK])
@pytest.mark.parametrize("payload", [b"", b"odd", bytes(1460), bytes(3000)])
def test_a_segment_with_a_wrong_checksum_changes_nothing(
    running: Bench, local: Segment, way: str, flags: int, payload: bytes
) -> None:
    segment = replace(local if way == "in" else reverse(local), flags=flags, payload=payload)
    before = running.counters.n_i
    frame = bytearray(segment.pack())
    frame[-1] ^= 1
    for program in ("weir_ingress", "weir_ingress_tc") if way == "in" else ("weir_egress",):
        assert running.run(program, bytes(frame)) == bytes(frame)

    assert (before, is_running(running, local)) == (1, True)
    assert running.counters.disbelieved == (2 if way == "in" else 1)
    assert running.plane.reports() == ({}, 0)


def test_a_right_checksum_over_a_long_payload_is_believed(running: Bench, local: Segment) -> None:
    running.egress(replace(reverse(local), flags=FIN | ACK, payload=b"odd" + bytes(3000)))
    assert running.counters.n_i == 0


@pytest.mark.parametrize("at", [24, 16])
def test_a_wrong_checksum_of_the_ipv4_header_changes_nothing(bench: Bench, at: int) -> None:
    bench.count_by_flags()
    bench.handshake(LOCAL)
    frame = bytearray(replace(OUT, flags=RST).pack())
    frame[14 + 10] ^= at
    bench.egress_raw(bytes(frame))
    assert bench.counters.n_i == 1


@pytest.mark.parametrize("way", ["in", "out"])
def test_a_reset_counts_at_the_number_that_the_receiver_expects(
    running: Bench, local: Segment, way: str
) -> None:
    """That is what it acknowledged last, or the next one of a sender of which all has arrived."""
    segment = local if way == "in" else reverse(local)
    send(running, replace(segment, payload=bytes(100)))
    send(running, replace(segment, flags=RST | ACK, seq=segment.seq + 50))
    assert is_running(running, local), "within the window: the receiver answers with a challenge ACK"
    send(running, replace(segment, flags=RST | ACK, seq=segment.seq + 100))
    assert running.counters.n_i == 0


def test_an_acknowledgement_of_what_was_never_sent_is_not_believed(running: Bench, local: Segment) -> None:
    """Else a forged ACK would choose the number at which a reset counts."""
    running.egress(replace(reverse(local), ack=local.seq + 5_000))
    running.ingress(replace(local, flags=RST | ACK, seq=local.seq + 5_000))
    assert is_running(running, local)
    running.ingress(replace(local, flags=RST | ACK))
    assert running.counters.n_i == 0


def test_a_refused_connection_ends_at_once(bench: Bench) -> None:
    """A RST that answers a SYN has to acknowledge it."""
    bench.egress(syn(OUT))
    bench.ingress(replace(LOCAL, flags=RST | ACK, seq=0, ack=OUT.seq + 1))
    assert [flow.state for flow in bench.plane.pinned.flows()] == ["opening"]
    bench.ingress(replace(LOCAL, flags=RST | ACK, seq=0, ack=OUT.seq))
    assert [flow.state for flow in bench.plane.pinned.flows()] == ["reset"]


@pytest.mark.parametrize("way", ["in", "out"])
def test_a_host_that_crashed_connects_again(running: Bench, local: Segment, way: str) -> None:
    """Nothing of the old connection has ended. The new one has other options."""
    again = replace(local, seq=7_000_000, ack=8_000_000)
    opener = again if way == "in" else reverse(again)
    send(running, syn(opener, Offer(scale=5)))
    assert is_running(running, local)
    send(running, replace(syn(reverse(opener), Offer(scale=5)), flags=SYN | ACK, ack=opener.seq - 5))
    assert is_running(running, local), "that SYN-ACK answers another SYN"
    send(running, replace(syn(reverse(opener), Offer(scale=5)), flags=SYN | ACK, ack=opener.seq))
    assert running.counters.n_i == 0, "until the handshake is complete"
    send(running, opener)
    assert running.counters.n_i == 1
    assert window_of(running.ingress(again), again) == CLAMPED_TO >> 5
    running.egress(replace(reverse(again), flags=RST))
    assert running.counters.n_i == 0


@pytest.mark.parametrize("end", [RST, FIN | ACK])
def test_ports_are_used_again_after_an_end(running: Bench, local: Segment, end: int) -> None:
    running.ingress(replace(local, flags=end))
    running.egress(replace(reverse(local), flags=end))
    assert running.counters.n_i == 0
    running.handshake_in(replace(local, seq=5, ack=6), Offer(scale=5), Offer(scale=5))
    assert running.counters.n_i == 1


def test_a_syn_that_nobody_answers_is_forgotten(running: Bench, local: Segment) -> None:
    again = replace(reverse(local), seq=7_000_000)
    running.egress(syn(again))
    running.plane.sweep(SweepTimes(opening_s=0))
    running.ingress(replace(syn(local), flags=SYN | ACK, ack=again.seq))
    assert is_running(running, local)


# -- lengths and options ---------------------------------------------------------------------------


def cut(frame: bytes, at: int, value: int) -> bytes:
    """The frame with another 16-bit word. A length is checked before a checksum."""
    return frame[:at] + struct.pack("!H", value) + frame[at + 2 :]


@pytest.mark.parametrize(
    "frame",
    [
        cut(LOCAL.pack(), 16, 1500),
        cut(LOCAL.pack(), 16, 39),
        cut(LOCAL.pack(), 16, 0),
        cut(replace(LOCAL, src="fd00::1", dst="fd00::2").pack(), 18, 1500),
        cut(replace(LOCAL, src="fd00::1", dst="fd00::2").pack(), 18, 19),
        cut(LOCAL.pack(), 46, 0xF010),
        cut(LOCAL.pack(), 46, 0x4010),
    ],
    ids=[
        "IP too long",
        "IP too short",
        "IP 0",
        "IPv6 too long",
        "IPv6 too short",
        "TCP too long",
        "TCP short",
    ],
)
@pytest.mark.parametrize("program", ["weir_ingress", "weir_ingress_tc"])
def test_lengths_beyond_the_frame_are_no_segment(bench: Bench, frame: bytes, program: str) -> None:
    for version in (4, 6):
        bench.put(Rule(0, 1, 0, TcpMatch(ip_version=version), WindowOp.SET_WINDOW, 1))
    bench.handshake(LOCAL)
    seen = bench.counters.acks_seen
    assert bench.run(program, frame) == frame
    assert bench.counters.acks_seen == seen


@pytest.fixture
def fitting(bench: Bench) -> Bench:
    """An SCCP port, which changes the MSS and the window scale of SYNs."""
    bench.plane.configure(PORT, PortSettings(common_rtt_us=600), 100_000_000, 20_000)
    bench.put(Rule(1, 100, 0, TcpMatch(flags=0, flags_mask=SYN), window_op=WindowOp.FAIR_SHARE))
    return bench


MSS, SCALE, STAMPS = b"\x02\x04\x05\xb4", b"\x01\x03\x03\x09", b"\x01\x01" + b"\x08\x0a" + bytes(8)


@pytest.mark.parametrize(
    "options", [MSS + STAMPS, SCALE + MSS + STAMPS, MSS + STAMPS + SCALE, MSS + SCALE, b""]
)
def test_a_repeated_syn_with_other_options_is_not_edited(fitting: Bench, options: bytes) -> None:
    first = replace(syn(LOCAL), options=MSS + SCALE + STAMPS)
    edited = fitting.ingress(first)
    assert edited != first.pack()
    other = replace(first, options=options)
    assert fitting.ingress(other) == other.pack()
    assert fitting.ingress(first) == edited


@pytest.mark.parametrize("kind", [19, 29], ids=["TCP-MD5", "TCP-AO"])
@pytest.mark.parametrize("form", ["ingress", "ingress_tc"])
def test_signed_flows_are_never_modified(fitting: Bench, kind: int, form: str) -> None:
    signature = bytes([1, 1, kind, 18]) + bytes(16)
    ours = replace(syn(LOCAL), options=MSS + SCALE + signature)
    ingress = getattr(fitting, form)
    assert ingress(ours) == ours.pack()
    fitting.egress(replace(syn(OUT), flags=SYN | ACK, ack=LOCAL.seq, options=MSS + SCALE + signature))
    for _ in range(2):
        ack = replace(LOCAL, options=signature)
        assert ingress(ack) == ack.pack()
        data = replace(OUT, payload=b"x" * 1000, options=signature)
        assert fitting.egress(data) == data.pack()


@pytest.mark.parametrize(
    ("option", "payload", "flags"),
    [
        (b"\x1e\x0c\x01\x81" + bytes(8), b"", SYN),
        (b"\x22\x0a" + bytes(8) + b"\x01\x01", b"early data", SYN),
        (b"", b"", SYN | ECE_CWR),
    ],
    ids=["MPTCP", "TFO", "ECN"],
)
def test_other_options_data_and_flags_of_a_syn_are_left_whole(
    fitting: Bench, option: bytes, payload: bytes, flags: int
) -> None:
    """The MSS and the window scale change, and nothing else."""
    offered = replace(syn(LOCAL), flags=flags, options=MSS + SCALE + option, payload=payload)
    tcp = tcp_of(frame := fitting.ingress(offered), offered)
    assert checksum_is_right(frame, offered)
    assert tcp[13] == flags
    assert tcp[28:] == option + payload
    assert tcp[20:28] != MSS + SCALE
    fitting.egress(replace(syn(OUT), flags=SYN | ACK, ack=LOCAL.seq + len(payload)))
    fitting.ingress(replace(LOCAL, seq=LOCAL.seq + len(payload)))
    assert [flow.state for flow in fitting.plane.pinned.flows()] == ["established"]


@pytest.mark.parametrize("protocol", [50, 51], ids=["ESP", "AH"])
def test_ipsec_is_left_whole(fitting: Bench, protocol: int) -> None:
    frame = bytearray(syn(LOCAL).pack())
    frame[14 + 9] = protocol
    assert fitting.run("weir_ingress", bytes(frame)) == bytes(frame)
    assert list(fitting.plane.pinned.flows()) == []


# -- floods ----------------------------------------------------------------------------------------


def test_a_flood_of_syns_costs_nobody_else_anything(bench: Bench) -> None:
    """5,000 SYNs, which the host behind the port answers. The table has room for 1,000 flows."""
    bench.plane.configure(PORT, PortSettings(common_rtt_us=600), 100_000_000, 150_000)
    bench.count_by_flags()
    bench.put(Rule(1, 100, 0, TcpMatch(flags=0, flags_mask=SYN), window_op=WindowOp.FAIR_SHARE))
    bench.handshake(LOCAL)
    for number in range(5_000):
        forged = replace(LOCAL, dst="10.9.0.1", dst_port=1 + number)
        bench.egress(syn(reverse(forged)))
        bench.ingress(replace(syn(forged), flags=SYN | ACK, ack=forged.ack))

    assert (bench.counters.n_i, bench.counters.untracked) == (1, 0)
    assert sum(1 for _ in bench.plane.pinned.flows()) <= 1_025, "the reserve is bounded"
    for number in range(900):
        bench.handshake_in(replace(LOCAL, dst="10.8.0.1", dst_port=1 + number))
    assert (bench.counters.n_i, bench.counters.untracked) == (901, 0), "real connections find room"
    bench.plane.sweep(SweepTimes(opening_s=0))
    assert sum(1 for _ in bench.plane.pinned.flows()) == 901
    assert [stats for _, stats in bench.plane.rules(BRIDGE)]


def test_half_open_flows_leave_after_their_time(bench: Bench) -> None:
    bench.egress(syn(OUT))
    assert bench.plane.sweep(SweepTimes(opening_s=60)) == 0
    assert bench.plane.sweep(SweepTimes(opening_s=0)) == 1
    assert list(bench.plane.pinned.flows()) == []
