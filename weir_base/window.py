"""The window arithmetic in integers, rounded down: bandwidth-delay product, fair share, window limits.

The data plane computes the same in C (`openflow_ext/bpf/weir_window.h`). `test_window_arithmetic.py`
compiles that header and compares both.

A window is in bytes. A *field* is the 16-bit window of a TCP header, and `field << scale` is the window in
bytes (RFC 7323, section 2.2).
"""

from __future__ import annotations

from collections.abc import Sequence

NS_PER_S = 1_000_000_000
MAX_WINDOW_SCALE = 14
"""RFC 7323, section 2.3."""
MAX_WINDOW_FIELD = 0xFFFF
LARGEST_WINDOW_BYTES = MAX_WINDOW_FIELD << MAX_WINDOW_SCALE
"""No receiver can advertise a larger window."""
LARGEST_SHARE_BYTES = 2**32 - 1
"""The data plane keeps a share in 32 bits."""

_BITS_US_PER_BYTE_S = 8 * 1_000_000


def bdp_bytes(capacity_bps: int, rtt_us: int) -> int:
    """The bandwidth-delay product: the bytes that a path of `capacity_bps` holds in `rtt_us`."""
    return capacity_bps * rtt_us // _BITS_US_PER_BYTE_S


def fair_share_bytes(port_bdp_bytes: int, flows: int) -> int:
    """SCCP, equation (1): the share of each of `flows` flows. The whole BDP if there is none."""
    return min(port_bdp_bytes // max(flows, 1), LARGEST_SHARE_BYTES)


def active_senders(sent_in_turn: Sequence[int], turn: int, turns_passed: int, n_i: int) -> int:
    """The flows among which a port is shared: the most that sent in one of the last two turns, at most N_i.

    `sent_in_turn` holds the flows that sent in the last even and in the last odd turn. `turns_passed` is the
    number of whole turns since the current `turn` began. 0 if no flow has sent; the data plane
    then divides by N_i.
    """
    this_turn = sent_in_turn[turn % 2] if turns_passed < 2 else 0
    last_turn = sent_in_turn[(turn + 1) % 2] if turns_passed < 1 else 0
    return min(max(this_turn, last_turn), n_i)


STARVED_FRACTION = 256
"""Less idle time than this part of an interval does not count."""
FIRST_GROWTH_FRACTION = 4
"""The most growth after one starved interval: this part of the allowance."""


def next_allowance_bytes(
    allowance_bytes: int,
    length_ns: int,
    starved_ns: int,
    departed_bytes: int,
    queue_min_bytes: int,
    starved_before: bool,
    target_bytes: int,
    least_bytes: int,
    most_bytes: int,
) -> int:
    """The allowance of a port after an interval: the bytes that may be in flight towards it.

    `length_ns`: of the interval. `starved_ns`: the part in which the link was idle while flows waited for a
    window. `queue_min_bytes`: the least length of the queue. `starved_before`: so was the interval before.
    The comment on `weir_next_allowance` in
    `weir_window.h` states the law.
    """
    following = allowance_bytes
    if starved_ns > length_ns // STARVED_FRACTION:
        more = allowance_bytes
        if length_ns > 2 * starved_ns:
            more = allowance_bytes * starved_ns // (length_ns - starved_ns)
        if not starved_before:
            more = min(more, allowance_bytes // FIRST_GROWTH_FRACTION)
        following += min(more, departed_bytes, max(most_bytes - allowance_bytes, 0))
    elif queue_min_bytes > target_bytes:
        following = max(allowance_bytes - (queue_min_bytes - target_bytes), 0)
    return max(following, least_bytes)


def mod_window_next_bytes(window_bytes: int, alpha: int, mss_bytes: int) -> int:
    """SDTCP, equation (4): the window after one more ACK, `alpha` MSS smaller, at least one MSS."""
    return max(window_bytes - alpha * mss_bytes, mss_bytes)


def drain_ns(queued_bytes: int, capacity_bps: int) -> int:
    """The time in ns in which a link of `capacity_bps` (not 0) sends `queued_bytes`."""
    return queued_bytes * 8 * NS_PER_S // capacity_bps
