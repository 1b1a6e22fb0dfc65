"""Equations (1) to (3) and (5) of SDTCP (section III.D), in integers: every division rounds down.

| symbol | name | unit | equation |
|---|---|---|---|
| C | capacity_bps | bit/s | 1, 2 |
| RTT | rtt_us | µs | 1, 2 |
| Q(t) | queue_bytes | bytes | 1, 2 |
| N | n | flows | 1, 2 |
| C x RTT, or the allowance | link_bytes | bytes | 1, 2 |
| W_c | wc_bytes | bytes | 2, 3, 5 |
| W_r | wr_bytes | bytes | 3, 5 |
| MSS | mss_bytes | bytes | 3, 4, 5 |
| alpha | alpha | MSS per ACK | 4 |
| W_r' | window_bytes | bytes | 3, 4, 5 |

A port that corrects its allowance measures what may be in flight. This value then takes the place of C x RTT,
so that neither a configured nor a measured RTT is needed.

The switch applies equation (4) itself (`weir_base/window.py`, `mod_window_next_bytes`).

W_r: in the paper the controller reads it from ACKs. Here no ACK reaches the controller. The switch lowers a
window only if the ACK advertises a larger one, so min(..., W_r) is exact there, with the W_r of each ACK. The
W_r given here is an upper bound: the largest window that the receiver's scale allows. None: unknown.

Q(t) of equation (5): when all flows are punished, the windows of (5) add up to C x RTT + Q(t), the number of
bytes in flight. A queue that is far above K would stay there, and so would the alarm. So (5) takes the queue
that it aims for: K packets of the mean size of the waiting packets.
"""

from __future__ import annotations

from weir_base.window import LARGEST_WINDOW_BYTES


def average_window_bytes(link_bytes: int, queue_bytes: int, n: int) -> int:
    """Equation (2): W_c, the average send window of ``n`` (at least 1) flows.

    Its dividend is equation (1): the bytes that all flows together have in flight, on the links and in the
    queue. ``link_bytes``: C x RTT, or the allowance of a port that corrects it.
    """
    return (link_bytes + queue_bytes) // n


def punished_window_bytes(wc_bytes: int, wr_bytes: int | None, mss_bytes: int) -> int:
    """Equation (3): the window of the punished flow."""
    return max(_smaller(wc_bytes // 2, wr_bytes), mss_bytes)


def shared_window_bytes(wc_bytes: int, wr_bytes: int | None, mss_bytes: int) -> int:
    """Equation (5): the window of each flow when all are punished, an equal and constant share."""
    return max(_smaller(wc_bytes, wr_bytes), mss_bytes)


def settled_queue_bytes(queue_bytes: int, queue_pkts: int, k_pkts: int) -> int:
    """Q(t) for equation (5): the queue, or K packets of its mean packet size if it is longer."""
    return queue_bytes * k_pkts // queue_pkts if queue_pkts > k_pkts else queue_bytes


def _smaller(window_bytes: int, wr_bytes: int | None) -> int:
    return min(window_bytes, LARGEST_WINDOW_BYTES if wr_bytes is None else wr_bytes)
