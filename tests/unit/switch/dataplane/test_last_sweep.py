"""When a sweep of the flow table may find anything to do."""

from __future__ import annotations

import pytest

from openflow_ext.switch.dataplane.interface import SweepTimes
from openflow_ext.switch.dataplane.last_sweep import LONGEST_NS, LastSweep

TIMES = SweepTimes(idle_s=1.0)
STATES = {3: b"as it was"}
LAST = LastSweep(TIMES, STATES, began_ns=1000, due_ns=5000, visited=7)


def test_nothing_is_due_while_nothing_happens() -> None:
    assert not LAST.is_due(TIMES, STATES, 4999)


@pytest.mark.parametrize(
    ("times", "states", "now_ns"),
    [
        (TIMES, STATES, 5000),
        (TIMES, {3: b"a segment passed"}, 1001),
        (TIMES, STATES | {4: b"a new port"}, 1001),
        (SweepTimes(idle_s=0.5), STATES, 1001),
    ],
    ids=["a time has come", "traffic", "a new port", "other times"],
)
def test_a_sweep_is_due(times: SweepTimes, states: dict[int, bytes], now_ns: int) -> None:
    assert LAST.is_due(times, states, now_ns)


def test_a_sweep_is_due_at_least_every_ten_seconds() -> None:
    far = LastSweep(TIMES, STATES, began_ns=1000, due_ns=1 << 63, visited=7)
    assert not far.is_due(TIMES, STATES, 1000 + LONGEST_NS - 1)
    assert far.is_due(TIMES, STATES, 1000 + LONGEST_NS)
