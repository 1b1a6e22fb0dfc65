"""weir_ap.h, compiled for the host, against the model of Adaptive Pacing in Python."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.data_plane.host_c import compiled
from transports.adaptive_pacing import interval_s
from transports.pacing_paths import FlowsFrom

DECLARATIONS = """
struct weir_ap_path {
    uint64_t buffer_bytes, bytes_per_s, n_updated_ns, n_lifetime_ns;
    uint32_t flows, k, source, allowance_bytes;
};
int weir_ap_is_usable(const struct weir_ap_path *path);
int weir_ap_has_flows(const struct weir_ap_path *path, uint64_t now_ns);
uint32_t weir_ap_flows(const struct weir_ap_path *path, uint32_t counted, uint32_t window_bytes,
                       uint32_t is_old, uint32_t mss, uint64_t now_ns, uint32_t *source);
uint32_t weir_ap_interval_ns(const struct weir_ap_path *path, uint32_t flows, uint32_t window,
                             uint32_t packet_bytes, uint32_t rtt_us);
uint32_t weir_ap_unpaced_window(const struct weir_ap_path *path, uint32_t flows, uint32_t packet_bytes);
uint64_t weir_ap_random_interval_ns(uint32_t interval_ns, uint32_t random);
uint64_t weir_ap_rate(uint32_t mss, uint64_t interval_ns);
"""
U32, U64 = (2**bits - 1 for bits in (32, 64))
PACKET = 1514


@pytest.fixture(scope="module")
def ap(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compiled("weir_ap.h", DECLARATIONS, tmp_path_factory.mktemp("ap"))


def path(ap: Any, **fields: int) -> Any:
    """A bottleneck of 100 Mbit/s with a queue of 100 packets."""
    usual = {"buffer_bytes": 100 * PACKET, "bytes_per_s": 12_500_000, "k": 256}
    return ap[0].new("struct weir_ap_path *", usual | fields)


@given(
    flows=st.integers(1, 65_536),
    window=st.integers(1, 65_535),
    packet=st.integers(64, 65_535),
    rtt_us=st.integers(0, 1_000_000),
    k=st.integers(1, 4096),
    buffer_bytes=st.integers(1, 1 << 40),
    bytes_per_s=st.integers(1, 1 << 34),  # on faster links an excess of over 18 GB is spread over a whole RTT
)
@example(60, 2, PACKET, 300, 256, 100 * PACKET, 12_500_000)
def test_interval_is_that_of_the_model_rounded_down(
    ap: Any,
    flows: int,
    window: int,
    packet: int,
    rtt_us: int,
    k: int,
    buffer_bytes: int,
    bytes_per_s: int,
) -> None:
    """The buffer in the model counts packets, so it is divided by their size. So is the rate."""
    held = path(ap, buffer_bytes=buffer_bytes, bytes_per_s=bytes_per_s, k=k)
    ours = ap[1].weir_ap_interval_ns(held, flows, window, packet, rtt_us)
    model = interval_s(
        Fraction(flows), Fraction(window), Fraction(buffer_bytes, packet), Fraction(bytes_per_s, packet),
        Fraction(k, 256), Fraction(rtt_us, 10**6),
    )  # fmt: skip
    exact_ns = model * 10**9
    assert ours <= exact_ns
    assert exact_ns - ours < 1 + Fraction(10**9, bytes_per_s)


@given(
    flows=st.integers(1, 65_536),
    packet=st.integers(64, 65_535),
    k=st.integers(1, 4096),
    buffer_bytes=st.integers(1, U64),
)
@example(48, PACKET, 256, 99 * PACKET)
@example(1, PACKET, 256, U64)
def test_the_first_window_is_the_largest_that_needs_no_pacing(
    ap: Any, flows: int, packet: int, k: int, buffer_bytes: int
) -> None:
    held = path(ap, buffer_bytes=buffer_bytes, k=k)
    window = ap[1].weir_ap_unpaced_window(held, flows, packet)
    assert 1 <= window <= 65_535
    if window > 1:
        assert ap[1].weir_ap_interval_ns(held, flows, window, packet, 1000) == 0
    if window < 65_535:
        arriving = Fraction(flows * packet * k, 256) * (window + 1)
        assert arriving > buffer_bytes


@pytest.mark.parametrize(
    ("flows", "window", "rtt_us", "interval_ns"),
    [
        (50, 2, 300, 0),  # 100 packets fit
        (51, 2, 300, 150_000),  # 2 packets too many take 242 us; RTT / w is less
        (51, 2, 1000, 242_240),
        (1000, 1, 300, 300_000),
        (100, 1, 300, 0),
        (60, 2, 0, 0),  # no RTT is known
    ],
)
def test_interval_by_hand(ap: Any, flows: int, window: int, rtt_us: int, interval_ns: int) -> None:
    assert ap[1].weir_ap_interval_ns(path(ap), flows, window, PACKET, rtt_us) == interval_ns


def test_windows_and_numbers_beyond_the_limits_never_exceed_an_rtt(ap: Any) -> None:
    for flows in (0, 1, U32):
        for window in (0, 1, U32):
            for rtt_us in (0, U32):
                held = path(ap, buffer_bytes=1, bytes_per_s=1, k=4096)
                interval_ns = ap[1].weir_ap_interval_ns(held, flows, window, U32, rtt_us)
                assert interval_ns <= min(rtt_us, 1_000_000) * 1000


@pytest.mark.parametrize(
    "absurd",
    [{"buffer_bytes": 0}, {"bytes_per_s": 0}, {"bytes_per_s": U64}, {"k": 0}, {"k": 4097}],
    ids=str,
)
def test_path_with_absurd_values_is_not_usable(ap: Any, absurd: dict[str, int]) -> None:
    assert ap[1].weir_ap_is_usable(path(ap))
    assert not ap[1].weir_ap_is_usable(path(ap, **absurd))


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({"flows": 60}, True),
        ({"flows": 0}, False),
        ({"flows": 65_537}, False),
        ({"flows": 60, "n_updated_ns": 900, "n_lifetime_ns": 100}, True),
        ({"flows": 60, "n_updated_ns": 899, "n_lifetime_ns": 100}, False),
        ({"flows": 60, "n_updated_ns": 1001, "n_lifetime_ns": 100}, False),  # not yet true
    ],
    ids=str,
)
def test_n_counts_if_it_is_possible_and_fresh(ap: Any, fields: dict[str, int], counts: bool) -> None:
    assert bool(ap[1].weir_ap_has_flows(path(ap, **fields), 1000)) is counts


NETWORK = {"source": FlowsFrom.NETWORK, "n_updated_ns": 900, "n_lifetime_ns": 200}
COUNTED = 3
"""What the host counts itself, in the next test."""


@pytest.mark.parametrize(
    ("fields", "window", "flows", "source"),
    [
        ({"flows": 60}, 2896, 60, FlowsFrom.NETWORK),
        ({"flows": 0}, 2896, COUNTED, FlowsFrom.COUNTED),
        ({"flows": 65_537}, 2896, COUNTED, FlowsFrom.COUNTED),
        ({"flows": 60, "n_lifetime_ns": 50}, 2896, COUNTED, FlowsFrom.COUNTED),
        ({"flows": 60, "allowance_bytes": 300_000}, 10_000, 30, FlowsFrom.WINDOW),
        ({"flows": 0, "allowance_bytes": 300_000}, 10_000, 30, FlowsFrom.WINDOW),
        ({"flows": 60, "allowance_bytes": 300_000}, 0, 60, FlowsFrom.NETWORK),
        ({"flows": 60, "allowance_bytes": 300_000}, 300_001, 60, FlowsFrom.NETWORK),  # the host's own window
        ({"flows": 60, "allowance_bytes": 300_000, "n_lifetime_ns": 50}, 10_000, COUNTED, FlowsFrom.COUNTED),
        ({"flows": 600, "allowance_bytes": 300_000}, 1448, 600, FlowsFrom.NETWORK),  # the least window
        ({"flows": 60, "allowance_bytes": 300_000}, 1448, 207, FlowsFrom.WINDOW),
        ({"flows": 60, "allowance_bytes": U32}, 1, 65_536, FlowsFrom.WINDOW),
    ],
    ids=str,
)
def test_n_comes_from_the_window_then_the_network_then_the_host(
    ap: Any, fields: dict[str, int], window: int, flows: int, source: FlowsFrom
) -> None:
    found = ap[0].new("uint32_t *")
    held = path(ap, **(NETWORK | fields))
    assert ap[1].weir_ap_flows(held, COUNTED, window, False, 1448, 1000, found) == flows
    assert FlowsFrom(found[0]) is source


@pytest.mark.parametrize(
    ("stated", "flows", "source"),
    [(60, 60, FlowsFrom.NETWORK), (20, 30, FlowsFrom.WINDOW), (0, 30, FlowsFrom.WINDOW)],
)
def test_the_larger_n_counts_if_the_window_is_old(
    ap: Any, stated: int, flows: int, source: FlowsFrom
) -> None:
    """A connection that paused has the share of its last round. The host's count does not compete with it."""
    found = ap[0].new("uint32_t *")
    held = path(ap, **(NETWORK | {"flows": stated, "allowance_bytes": 300_000}))
    assert ap[1].weir_ap_flows(held, COUNTED, 10_000, True, 1448, 1000, found) == flows
    assert FlowsFrom(found[0]) is source


@given(allowance=st.integers(1, U32), flows=st.integers(1, 65_536))
def test_share_of_n_flows_tells_n_and_never_more_than_its_rounding(
    ap: Any, allowance: int, flows: int
) -> None:
    """A share is rounded down, so the quotient may be larger; it is the n of exactly that share."""
    share = allowance // flows
    if not share:
        return
    found = ap[0].new("uint32_t *")
    told = ap[1].weir_ap_flows(path(ap, allowance_bytes=allowance), 1, share, False, 1, 1000, found)
    assert told == min(allowance // share, 65_536) >= min(flows, 65_536)


@given(window=st.integers(1, 65_535), buffer_bytes=st.integers(1, 1 << 40), rate=st.integers(1, 1 << 40))
def test_sender_that_is_told_n_is_1_is_paced_only_if_its_window_exceeds_the_buffer(
    ap: Any, window: int, buffer_bytes: int, rate: int
) -> None:
    held = path(ap, buffer_bytes=buffer_bytes, bytes_per_s=rate)
    interval_ns = ap[1].weir_ap_interval_ns(held, 1, window, PACKET, 300)
    assert interval_ns == 0 or window * PACKET > buffer_bytes
    assert interval_ns <= 300_000 // window


@given(interval_ns=st.integers(0, 1_000_000_000), random=st.integers(0, U32))
def test_random_interval_is_between_0_and_2_t(ap: Any, interval_ns: int, random: int) -> None:
    ours = ap[1].weir_ap_random_interval_ns(interval_ns, random)
    assert ours == floor(Fraction(interval_ns * 2 * random, 2**32))


def test_rate_sends_a_packet_in_each_interval(ap: Any) -> None:
    assert ap[1].weir_ap_rate(1448, 144_800) == 10_000_000
    assert ap[1].weir_ap_rate(1448, 0) == 1448 * 10**9, "at once"
