"""The smallest share of a path reaches the sender; beside a clamp of SDTCP, the smaller window does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from libbpf_cffi import libbpf
from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from tests.support.data_plane.bench import BRIDGE, PORT, Bench, reflex_entry
from tests.support.data_plane.packets import Offer, Segment, window_of

pytestmark = pytest.mark.beside_others

ACK_BACK = Segment(window=60_000)
GBIT = 1_000_000_000
SEGMENT_BYTES = 500


def share_fairly(bench: Bench) -> None:
    """A port of figure 2: 1 Gbit/s and a common RTT of 200 µs give a BDP of 25,000 bytes."""
    bench.plane.configure(PORT, PortSettings(common_rtt_us=200), GBIT)
    bench.handshake(ACK_BACK, *[Offer(mss=SEGMENT_BYTES, scale=0, timestamps=False)] * 2)
    bench.put(Rule(1, 100, 0, TcpMatch(), WindowOp.FAIR_SHARE))


def set_n_i(bench: Bench, n_i: int) -> None:
    with bench.changed_state() as state:
        state.n_i = n_i


def through(bench: Bench, frame: bytes) -> bytes:
    return libbpf.run(bench.plane.program("weir_ingress"), packet=frame)[1]


def test_path_of_the_paper_gives_its_smallest_share(bench: Bench) -> None:
    """Figure 2: the ACK passes ports with 5, 10 and 4 flows on its way from the receiver."""
    share_fairly(bench)
    frame, windows = ACK_BACK.pack(), []
    for n_i in (4, 10, 5):
        set_n_i(bench, n_i)
        frame = through(bench, frame)
        windows.append(window_of(frame, ACK_BACK))
    assert windows == [6_250 // SEGMENT_BYTES * SEGMENT_BYTES, 2_500, 2_500]


@pytest.mark.parametrize(("n_i", "clamp_bytes", "expected"), [(10, 4_000, 2_500), (5, 4_000, 4_000)])
def test_entries_of_sdtcp_and_sccp_both_act(bench: Bench, n_i: int, clamp_bytes: int, expected: int) -> None:
    """SDTCP has an entry for the flow's ACKs in table 0, SCCP has Table I in table 1; both act."""
    share_fairly(bench)
    set_n_i(bench, n_i)
    punished = reflex_entry(ACK_BACK).match
    bench.put(Rule(0, 65_535, 0, punished, WindowOp.SET_WINDOW, clamp_bytes))
    bench.put(Rule(0, 65_535, 0, replace(punished, src_port=9), WindowOp.SET_WINDOW, 1))
    assert window_of(through(bench, ACK_BACK.pack()), ACK_BACK) == expected
    assert [
        stats.clamped for rule, stats in bench.plane.rules(BRIDGE) if rule.window_op is WindowOp.FAIR_SHARE
    ] == [int(expected == 2_500)]
