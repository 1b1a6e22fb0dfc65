"""The receive buffer with which a host advertises at most a given window.

The attribute `window` of a route and the socket option TCP_WINDOW_CLAMP do not last: Linux (6.18,
tcp_measure_rcv_mss) sets the largest window anew from the buffer when the first full segment arrives.
"""

from __future__ import annotations

SEGMENT_BYTES = 1448
SEGMENT_IN_BUFFER_BYTES = 2304
"""What a full segment takes of a buffer: 2,048 bytes of data, and struct sk_buff."""


def buffer_bytes(window_bytes: int) -> int:
    """Return the receive buffer of a window in whole segments.

    Linux advertises the part of the free buffer that payload can use, rounded down to whole segments. Half a
    segment more than the window is therefore enough, and too little for another segment.
    """
    return (window_bytes + SEGMENT_BYTES // 2) * SEGMENT_IN_BUFFER_BYTES // SEGMENT_BYTES
