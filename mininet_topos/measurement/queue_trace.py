"""A port's queue over time, in buckets of 1 ms, from the raw buckets of the queue probe."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_COUNTS = ("pkts_max", "bytes_max", "pkts_last", "bytes_last", "pkts_min", "drops_total")
BUCKET_TYPE = np.dtype([("sent_total", "<u8"), *((name, "<u4") for name in _COUNTS)])
Array = NDArray[Any]


def _growth(totals: Array, touched: Array, latest: Array) -> Array:
    """Return the growth of a counter in each bucket, without the time before the first touched bucket."""
    filled = np.where(latest >= 0, totals[latest], totals[touched][:1].sum()).astype(np.int64)
    return np.diff(filled, prepend=filled[:1])


class QueueTrace:
    """A port's queue over time, in buckets of 1 ms.

    ``pkts`` and ``bytes`` are the greatest length in each bucket, ``pkts_min`` the least. In a bucket without
    an event, the length is the one that the last event left. ``sent_bytes`` were dequeued in the bucket.
    ``drops`` are the packets that the queue refused; the probe sees them at the next packet that the queue
    accepts. ``is_cut``: the trace ends before the run does.
    """

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.is_cut = False
        self.fill(np.zeros(0, dtype=BUCKET_TYPE))

    def fill(self, buckets: Array) -> None:
        """Set the trace from raw buckets, whose ``pkts_min`` is the length plus 1, or 0 if untouched."""
        touched = buckets["pkts_min"] > 0
        latest = np.maximum.accumulate(np.where(touched, np.arange(len(buckets)), -1))
        known = latest >= 0  # before the first packet the queue counts as empty
        left_pkts = np.where(known, buckets["pkts_last"][latest], 0)
        self.pkts = np.where(touched, buckets["pkts_max"], left_pkts)
        self.bytes = np.where(
            touched, buckets["bytes_max"], np.where(known, buckets["bytes_last"][latest], 0)
        )
        self.pkts_min = np.where(touched, np.maximum(buckets["pkts_min"], 1) - 1, left_pkts)
        self.sent_bytes, self.drops = (
            _growth(buckets[name], touched, latest) for name in ("sent_total", "drops_total")
        )

    def write(self, path: Path) -> None:
        """Write the trace as CSV."""
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["time_ms", "pkts_max", "bytes_max", "pkts_min", "sent_bytes", "drops"])
            columns = (self.pkts, self.bytes, self.pkts_min, self.sent_bytes, self.drops)
            writer.writerows(zip(range(len(self.pkts)), *columns, strict=True))

    def busy_rate_bps(self, least_ms: int = 20) -> float | None:
        """Return the real rate of the port: its rate while the queue was not empty for at least `least_ms`.

        None if there was no such time.
        """
        busy = np.concatenate(([0], (self.pkts_min > 0).astype(np.int8), [0]))
        starts, ends = (np.flatnonzero(np.diff(busy) == sign) for sign in (1, -1))
        stretches = [(a, b) for a, b in zip(starts, ends, strict=True) if b - a >= least_ms]
        sent = sum(int(self.sent_bytes[a:b].sum()) for a, b in stretches)
        span_ms = sum(int(b - a) for a, b in stretches)
        return 8 * sent / (span_ms / 1000) if span_ms else None
