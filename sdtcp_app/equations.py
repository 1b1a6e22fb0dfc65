"""Equations (1) to (5) of SDTCP (section III.D), in integers: every division rounds down.

| symbol | name | unit | equation |
|---|---|---|---|
| C | capacity_bps | bit/s | 1, 2 |
| RTT | rtt_us | µs | 1, 2 |
| Q(t) | queue_bytes | bytes | 1, 2 |
| N | n | flows | 1, 2 |
| sum of W_i(t) | total_window_bytes | bytes | 1 |
| W_c | wc_bytes | bytes | 2, 3, 5 |
| W_r | wr_bytes | bytes | 3, 5 |
| MSS | mss_bytes | bytes | 3, 4, 5 |
| alpha | alpha | MSS an ACK | 4 |
| W_r' | window_bytes | bytes | 3, 4, 5 |

W_r. The paper reads it from ACKs that come to the controller; here none do. The switch itself applies a
window only where it is smaller than the ACK's own, so min(..., W_r) is exact there, with the W_r of each
ACK. The W_r given here is a bound, the largest window that the receiver's scale allows; None: unknown.

Q(t) of equation (5). With all flows punished the windows of (5) add up to C x RTT + Q(t), which is just what
is on its way: a queue that ran far above K while they were chosen one by one would be held there, and the
alarm with it. So (5) takes the queue at which it shall settle: K packets of the mean size of those waiting.
"""

from __future__ import annotations

LARGEST_WINDOW_BYTES = 0xFFFF << 14
"""No receiver can advertise more (RFC 7323, section 2.3)."""

_US_BITS_PER_BYTE = 8 * 1_000_000


def total_window_bytes(capacity_bps: int, rtt_us: int, queue_bytes: int) -> int:
    """Equation (1): what all flows together have on the way, in the pipe and in the queue."""
    return capacity_bps * rtt_us // _US_BITS_PER_BYTE + queue_bytes


def average_window_bytes(capacity_bps: int, rtt_us: int, queue_bytes: int, n: int) -> int:
    """Equation (2): W_c, the send window of one of ``n`` (at least 1) flows."""
    return total_window_bytes(capacity_bps, rtt_us, queue_bytes) // n


def punished_window_bytes(wc_bytes: int, wr_bytes: int | None, mss_bytes: int) -> int:
    """Equation (3): the window of the flow that is chosen."""
    return max(_smaller(wc_bytes // 2, wr_bytes), mss_bytes)


def next_window_bytes(window_bytes: int, alpha: int, mss_bytes: int) -> int:
    """Equation (4): the window after one more ACK. The data plane does this (MOD_WINDOW); tests compare."""
    return max(min(window_bytes - alpha * mss_bytes, window_bytes), mss_bytes)


def shared_window_bytes(wc_bytes: int, wr_bytes: int | None, mss_bytes: int) -> int:
    """Equation (5): the window of each flow when all are punished, an equal share that stays."""
    return max(_smaller(wc_bytes, wr_bytes), mss_bytes)


def settled_queue_bytes(queue_bytes: int, queue_pkts: int, k_pkts: int) -> int:
    """Q(t) for equation (5): the queue as it is up to K packets, the K packets' share of it beyond."""
    return queue_bytes * k_pkts // queue_pkts if queue_pkts > k_pkts else queue_bytes


def _smaller(window_bytes: int, wr_bytes: int | None) -> int:
    return min(window_bytes, LARGEST_WINDOW_BYTES if wr_bytes is None else wr_bytes)
