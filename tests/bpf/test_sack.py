"""A lowered window counts from what arrived last, while a lost segment is being repaired (weir_sack.h)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from tests.support.data_plane.bench import PORT, Bench, reverse
from tests.support.data_plane.packets import Offer, Segment, checksum_is_right, sack, timestamps, window_of

pytestmark = pytest.mark.beside_others

CAPACITY_BPS, BUFFER_BYTES, COMMON_RTT_US = 100_000_000, 150_000, 1600
SCALE, MSS = 7, 1448
FLOW = Segment(src_port=1)
FIRST_SEQ = 2**32 - 30_000
LOST = FIRST_SEQ + 10 * MSS
"""The sequence number of the segment that is lost; later ones wrap."""
TIMESTAMPS = timestamps(1, 1)


class Repaired:
    """A flow of 50 segments, of which one is lost. Its ACKs are lowered."""

    def __init__(self, bench: Bench, corrects_allowance: bool = True) -> None:
        self.bench = bench
        settings = PortSettings(common_rtt_us=COMMON_RTT_US, corrects_allowance=corrects_allowance)
        bench.plane.configure(PORT, settings, CAPACITY_BPS, BUFFER_BYTES)
        bench.count_by_flags()
        bench.put(Rule(1, 50, 0, TcpMatch(flags=0x10, flags_mask=0x10), WindowOp.FAIR_SHARE))
        syn = replace(reverse(FLOW), flags=0x02, seq=FIRST_SEQ - 1, options=Offer(scale=SCALE).pack())
        bench.egress(syn)
        answer = replace(FLOW, flags=0x12, seq=0, ack=FIRST_SEQ, options=Offer(scale=SCALE).pack())
        bench.ingress(answer)
        bench.egress(replace(reverse(FLOW), seq=FIRST_SEQ, ack=1, options=TIMESTAMPS))
        for number in range(50):
            data = replace(reverse(FLOW), seq=(FIRST_SEQ + number * MSS) % 2**32, ack=1)
            bench.egress(replace(data, options=TIMESTAMPS, payload=b"x" * MSS))
            if number % 2:
                self.acknowledge(FIRST_SEQ + min(number, 10) * MSS)

    def acknowledge(self, ack: int, options: bytes = b"", window: int = 65535) -> int:
        """The receiver's ACK. Returns its window in bytes."""
        segment = replace(FLOW, ack=ack % 2**32, options=TIMESTAMPS + options, window=window)
        changed = self.bench.ingress(segment)
        assert checksum_is_right(changed, segment)
        return window_of(changed, segment) << SCALE


@pytest.fixture
def repaired(bench: Bench) -> Repaired:
    return Repaired(bench)


@pytest.mark.parametrize("arrived", [2, 6])
def test_the_window_grows_by_what_is_no_longer_in_flight(repaired: Repaired, arrived: int) -> None:
    before = repaired.acknowledge(LOST)
    last = LOST + arrived * MSS
    window = repaired.acknowledge(LOST, sack(last - MSS, last))
    assert window - before == pytest.approx(arrived * MSS, abs=1 << SCALE)


def test_it_grows_to_twice_itself_at_most(repaired: Repaired) -> None:
    before = repaired.acknowledge(LOST)
    assert repaired.acknowledge(LOST, sack(LOST + 38 * MSS, LOST + 39 * MSS)) == 2 * before


def test_it_never_exceeds_the_receivers_own_window(repaired: Repaired) -> None:
    own = (repaired.acknowledge(LOST) >> SCALE) + 3
    last = LOST + 6 * MSS
    assert repaired.acknowledge(LOST, sack(last - MSS, last), window=own) == own << SCALE


@pytest.mark.parametrize(
    ("left", "right"),
    [(LOST - 3 * MSS, LOST - 2 * MSS), (LOST - MSS, LOST), (LOST + 60 * MSS, LOST + 61 * MSS)],
    ids=["duplicate", "acknowledged", "never sent"],
)
def test_a_block_elsewhere_changes_nothing(repaired: Repaired, left: int, right: int) -> None:
    before = repaired.acknowledge(LOST)
    assert repaired.acknowledge(LOST, sack(left, right)) == before


def test_a_port_that_does_not_correct_its_allowance_keeps_the_papers_window(bench: Bench) -> None:
    repaired = Repaired(bench, corrects_allowance=False)
    before = repaired.acknowledge(LOST)
    last = LOST + 6 * MSS
    assert repaired.acknowledge(LOST, sack(last - MSS, last)) == before


@pytest.mark.parametrize("options", [b"\x01\x01\x05\x0a\x00\x00\x00\x01", b"\x01\x01\x05\x02", b"\x05" * 12])
def test_a_broken_option_changes_nothing(repaired: Repaired, options: bytes) -> None:
    before = repaired.acknowledge(LOST)
    assert repaired.acknowledge(LOST, options) == before
