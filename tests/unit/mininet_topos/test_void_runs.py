"""How often void runs are repeated."""

from __future__ import annotations

import time

from mininet_topos.records.result_folder import MOST_ATTEMPTS
from mininet_topos.running.experiment_runner import MOST_VOID_IN_A_ROW, VoidRuns

LATER, EARLIER = time.monotonic() + 3600, time.monotonic() - 1


def test_a_void_run_is_repeated_until_its_last_attempt() -> None:
    void_runs = VoidRuns(LATER)
    assert [void_runs.may_repeat(attempt) for attempt in (1, MOST_ATTEMPTS)] == [True, False]


def test_no_void_run_is_repeated_after_the_time() -> None:
    assert not VoidRuns(EARLIER).may_repeat(1)


def test_no_void_run_is_repeated_after_many_in_a_row() -> None:
    assert VoidRuns(LATER, MOST_VOID_IN_A_ROW - 1).may_repeat(1)
    assert not VoidRuns(LATER, MOST_VOID_IN_A_ROW).may_repeat(1)
