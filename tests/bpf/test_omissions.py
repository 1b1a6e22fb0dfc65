"""SCCP as published, and ports that do without one of Weir's additions to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import HostSettings, PortSettings
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from openflow_ext.switch.dataplane.structs import constants
from openflow_ext.wire import OMISSIONS, PortConfigFlags
from tests.support.data_plane.bench import PORT, Bench, reverse, syn
from tests.support.data_plane.packets import (
    ACK,
    FIN,
    PSH,
    RST,
    SYN,
    Offer,
    Segment,
    checksum_is_right,
    tcp_of,
    window_of,
)

pytestmark = pytest.mark.beside_others

LOCAL = Segment()
DATA = replace(reverse(LOCAL), payload=bytes(1024))
CAPACITY_BPS, QUEUE_BYTES = 100_000_000, 150_000
BDP_BYTES = 75_000
COMMON_RTT_US = BDP_BYTES * 8_000_000 // CAPACITY_BPS
MSS = 1448
SCALE = 4
"""Of which both a segment and the shares are multiples."""


def begin(
    bench: Bench, omits: PortConfigFlags, flows: int, rtt_us: int = COMMON_RTT_US, **more: bool
) -> None:
    """A port with Table I and open flows, which have not sent."""
    settings = PortSettings(common_rtt_us=rtt_us, omits=int(omits), **more)
    bench.plane.configure(PORT, settings, CAPACITY_BPS, QUEUE_BYTES)
    bench.count_by_flags()
    bench.put(Rule(1, 100, 0, TcpMatch(ip_version=4, flags=0, flags_mask=SYN), window_op=WindowOp.FAIR_SHARE))
    for number in range(flows):
        bench.handshake_in(replace(LOCAL, src_port=1 + number), Offer(scale=SCALE), Offer(scale=SCALE))


def window_bytes(bench: Bench, segment: Segment, scale: int = SCALE) -> int:
    return window_of(bench.ingress(segment), segment) << scale


def test_the_flags_of_the_wire_are_those_of_the_programs() -> None:
    assert {flag.name: flag.value for flag in OMISSIONS} == {
        name.removeprefix("WEIR_"): getattr(constants, name)
        for name in dir(constants)
        if name.startswith("WEIR_OMIT_")
    }


@pytest.mark.parametrize("flows", [1, 2, 5, 60])
def test_as_published_a_window_is_the_bdp_divided_by_the_integer(bench: Bench, flows: int) -> None:
    """Equation (1), with a least window of one MSS, from the first ACK on; nothing depends on who sends."""
    bench.plane.configure_host(HostSettings(simple_count=True))
    begin(bench, OMISSIONS, flows)
    assert bench.counters.n_i == flows
    first = replace(LOCAL, src_port=1)
    segments = BDP_BYTES // flows // MSS
    expected = segments * MSS if segments >= 2 else (MSS // 2**SCALE + 1) << SCALE
    for _ in range(2):
        assert window_bytes(bench, first) == pytest.approx(expected, abs=1 << SCALE)
        sent = replace(reverse(first), payload=bytes(MSS))
        assert bench.egress(sent) == sent.pack()
    assert bench.counters.unscaled == 0


def test_the_integer_counts_packets_and_windows_follow_it(bench: Bench) -> None:
    """A repeated SYN counts again, and each FIN or RST takes one off, whether a host believes it or not."""
    bench.plane.configure_host(HostSettings(simple_count=True))
    begin(bench, OMISSIONS, 1)
    first = replace(LOCAL, src_port=1)
    bench.egress(syn(reverse(first)))
    bench.egress(replace(syn(reverse(first)), seq=4711))
    assert bench.counters.n_i == 3
    assert window_bytes(bench, first) == pytest.approx(BDP_BYTES // 3 // MSS * MSS, abs=1 << SCALE)
    bench.egress(replace(reverse(first), flags=FIN | ACK, seq=99_999))
    bench.egress(replace(reverse(first), flags=RST))
    assert bench.counters.n_i == 1


def test_syns_pass_unchanged_without_fitting(bench: Bench) -> None:
    begin(bench, PortConfigFlags.OMIT_FITTING, 119)
    assert bench.ingress(syn(LOCAL)) == syn(LOCAL).pack()
    answer = replace(LOCAL, src_port=60_000, flags=SYN | ACK, options=Offer().pack())
    bench.egress(syn(reverse(answer)))
    assert bench.ingress(answer) == answer.pack()


def test_only_the_scale_is_unchanged_without_the_finer_scale(bench: Bench) -> None:
    """The segment is a whole number of the host's own steps of 512 bytes."""
    begin(bench, PortConfigFlags.OMIT_FINER_SCALE, 119)
    offered = syn(LOCAL, Offer(scale=9, timestamps=False))
    frame = bench.ingress(offered)
    options = tcp_of(frame, offered)[20:]
    assert (int.from_bytes(options[2:4]), options[6]) == (512, 9)
    assert checksum_is_right(frame, offered)


@pytest.mark.parametrize(("omits", "flags"), [(0, ACK | PSH), (PortConfigFlags.OMIT_PSH, ACK)])
def test_segments_keep_their_flags_without_psh(bench: Bench, omits: PortConfigFlags, flags: int) -> None:
    begin(bench, PortConfigFlags(omits) | PortConfigFlags.OMIT_ACTIVE_SENDERS, 119, rtt_us=600)
    bench.handshake(LOCAL)
    bench.egress(DATA)
    for _ in range(2):
        window_bytes(bench, LOCAL)
    assert tcp_of(bench.egress(DATA), DATA)[13] == flags


@pytest.mark.parametrize("corrects", [False, True], ids=["fixed", "auto"])
def test_all_of_n_i_share_the_port_without_active_senders(bench: Bench, corrects: bool) -> None:
    omits = PortConfigFlags.OMIT_ACTIVE_SENDERS | PortConfigFlags.OMIT_FITTING
    begin(bench, omits, 5, corrects_allowance=corrects)
    first = replace(LOCAL, src_port=1)
    waiting = window_bytes(bench, first)
    bench.egress(replace(reverse(first), payload=bytes(100)))
    sending = window_bytes(bench, first)
    assert bench.counters.n_i == 5
    assert bench.counters.fair_share_bytes == pytest.approx(bench.counters.allowance_bytes / 5, abs=1)
    share = bench.counters.fair_share_bytes
    assert waiting <= share + MSS
    assert sending == pytest.approx(waiting, abs=MSS), "it is the only flow that has sent"
    assert share // MSS * MSS - (1 << SCALE) <= waiting


@pytest.mark.parametrize(
    ("omits", "flows"), [(PortConfigFlags.NONE, 120), (PortConfigFlags.OMIT_CROWD, 1)], ids=["crowd", "none"]
)
def test_a_port_forgets_ended_flows_without_the_crowd(
    bench: Bench, omits: PortConfigFlags, flows: int
) -> None:
    begin(bench, omits | PortConfigFlags.OMIT_FITTING, 120)
    for number in range(1, 120):
        bench.ingress(replace(LOCAL, src_port=1 + number, flags=RST | ACK))
    assert bench.counters.n_i == 1
    waiting = window_bytes(bench, replace(LOCAL, src_port=1))
    assert waiting == pytest.approx(max(BDP_BYTES // flows // MSS, 1) * MSS, abs=1 << SCALE)


@pytest.mark.parametrize(
    ("omits", "segments"), [(PortConfigFlags.NONE, 2), (PortConfigFlags.OMIT_TWO_SEGMENTS, 1)]
)
def test_the_least_window_is_one_segment_without_the_second(
    bench: Bench, omits: PortConfigFlags, segments: int
) -> None:
    begin(bench, omits | PortConfigFlags.OMIT_FITTING | PortConfigFlags.OMIT_ACTIVE_SENDERS, 60)
    first = replace(LOCAL, src_port=1)
    bench.egress(replace(reverse(first), payload=bytes(MSS)))
    assert window_bytes(bench, first) == pytest.approx(segments * MSS, abs=1 << SCALE)
