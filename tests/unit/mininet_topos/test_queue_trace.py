"""The queue trace: lengths in untouched buckets, and the busy rate."""

from __future__ import annotations

import numpy as np
import pytest

from mininet_topos.measurement.queue_trace import BUCKET_TYPE, QueueTrace


def _trace(**columns: list[int]) -> QueueTrace:
    buckets = np.zeros(len(columns["pkts_min"]), dtype=BUCKET_TYPE)
    for name, values in columns.items():
        buckets[name] = values
    trace = QueueTrace(0)
    trace.fill(buckets)
    return trace


def test_untouched_buckets_keep_the_last_length() -> None:
    trace = _trace(
        pkts_min=[0, 3, 0, 1], pkts_max=[0, 9, 0, 4], pkts_last=[0, 4, 0, 0], sent_total=[0, 50, 0, 80]
    )
    assert trace.pkts.tolist() == [0, 9, 4, 4]
    assert trace.pkts_min.tolist() == [0, 2, 4, 0]
    assert trace.sent_bytes.tolist() == [0, 0, 0, 30]


def test_the_busy_rate_ignores_times_with_an_empty_queue() -> None:
    busy, idle = 30, 10
    trace = _trace(
        pkts_min=[2] * busy + [1] * idle,
        sent_total=[12_500 * (n + 1) for n in range(busy)] + [12_500 * busy] * idle,
    )
    assert trace.busy_rate_bps(20) == pytest.approx(100e6 * (busy - 1) / busy)
    assert trace.busy_rate_bps(least_ms=busy + 1) is None
