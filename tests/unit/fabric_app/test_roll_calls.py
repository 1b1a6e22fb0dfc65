"""New roll calls after lost flow reports: soon after the first loss, and rarely while losses go on."""

from __future__ import annotations

from itertools import pairwise

from fabric_app.roll_calls import FIRST_WAIT_NS, LONGEST_WAIT_NS, NEVER_NS, RollCalls
from flowdb.flow import NS_PER_S


def begun(*dpids: int) -> RollCalls:
    """Switches whose first roll call has ended without a loss."""
    calls = RollCalls()
    for dpid in dpids:
        calls.begin(dpid)
        calls.ended(dpid)
    return calls


def test_a_loss_is_followed_by_one_roll_call_of_that_switch() -> None:
    calls = begun(1, 2)
    assert calls.due_ns == NEVER_NS
    for now_ns in (5, 6, 7):
        calls.lost(1, now_ns)
    assert calls.due_ns == 5 + FIRST_WAIT_NS
    assert calls.take_due(4 + FIRST_WAIT_NS) == []
    assert calls.take_due(5 + FIRST_WAIT_NS) == [1]
    assert calls.take_due(NEVER_NS - 1) == []


def test_a_switch_is_not_asked_during_a_roll_call() -> None:
    calls = RollCalls()
    calls.begin(1)
    calls.lost(1, 0)
    assert (calls.due_ns, calls.take_due(10 * FIRST_WAIT_NS)) == (NEVER_NS, [])
    calls.ended(1)
    assert calls.take_due(10 * FIRST_WAIT_NS) == [1]


def test_the_pauses_double_while_reports_are_lost_and_start_again_afterwards() -> None:
    """One hour in which a report is lost every second, and each roll call ends after a second."""
    calls, asked_s = begun(1), []
    for now_s in range(3600):
        calls.lost(1, now_s * NS_PER_S)
        if calls.take_due(now_s * NS_PER_S):
            asked_s.append(now_s)
        calls.ended(1)
    waits = [later - earlier for earlier, later in pairwise(asked_s)]
    assert waits[:6] == [3, 5, 9, 17, 33, 65], "the loss a second after a roll call begins the next pause"
    assert set(waits[6:]) == {LONGEST_WAIT_NS // NS_PER_S + 1}
    assert calls.take_due(7200 * NS_PER_S) == [1]
    calls.ended(1)
    calls.lost(1, 7200 * NS_PER_S)
    assert calls.due_ns == 7200 * NS_PER_S + FIRST_WAIT_NS


def test_a_switch_that_is_gone_is_not_asked() -> None:
    calls = begun(1)
    calls.lost(1, 0)
    calls.stop(1)
    calls.lost(1, 1)
    calls.ended(1)
    assert calls.take_due(NEVER_NS - 1) == []
