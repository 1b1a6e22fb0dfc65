"""Which sessions a controller admits, probes and ends."""

from __future__ import annotations

import pytest

from openflow_ext.sessions.core import Claim, Limits, Sessions

LIMITS = Limits(
    most_sessions=6, most_half_open=4, most_half_open_of_address=3, most_ids=20, most_ids_of_address=12
)


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(LIMITS)


def joined(sessions: Sessions, name: str, dpid: int, now: float = 0.0) -> None:
    assert sessions.opened(name, "10.0.0.1", now) == []
    assert sessions.claim(name, dpid, now) == (Claim.GRANTED, None)


def ended(sessions: Sessions, now: float) -> list[object]:
    return [end.session for end in sessions.look(now)[1]]


def test_a_live_session_keeps_its_datapath_id(sessions: Sessions) -> None:
    joined(sessions, "first", 7)
    sessions.opened("second", "10.0.0.2", 1.0)
    assert sessions.claim("second", 7, 1.0) == (Claim.WAIT, "first")
    assert sessions.claim("second", 7, 1.1) == (Claim.WAIT, None)
    sessions.heard("first", 1.2, answers=True)
    assert sessions.claim("second", 7, 1.6) == (Claim.REFUSED, None)


def test_a_dead_session_loses_its_datapath_id_in_three_seconds(sessions: Sessions) -> None:
    joined(sessions, "first", 7)
    sessions.opened("second", "10.0.0.2", 1.0)
    assert sessions.claim("second", 7, 1.0) == (Claim.WAIT, "first")
    for now in (1.5, 2.0, 2.5, 3.0, 3.5, 3.9):
        assert sessions.claim("second", 7, now) == (Claim.WAIT, None)
    assert sessions.claim("second", 7, 4.1) == (Claim.GRANTED, "first")
    sessions.closed("first")
    sessions.opened("third", "10.0.0.2", 5.0)
    assert sessions.claim("third", 7, 5.0) == (Claim.WAIT, "second")


def test_a_session_that_ends_meanwhile_leaves_its_datapath_id(sessions: Sessions) -> None:
    joined(sessions, "first", 7)
    sessions.opened("second", "10.0.0.2", 1.0)
    assert sessions.claim("second", 7, 1.0) == (Claim.WAIT, "first")
    sessions.closed("first")
    assert sessions.claim("second", 7, 1.1) == (Claim.GRANTED, None)


def test_last_messages_of_a_session_do_not_keep_its_switch_out(sessions: Sessions) -> None:
    joined(sessions, "first", 7)
    sessions.opened("second", "10.0.0.1", 1.0)
    assert sessions.claim("second", 7, 1.0) == (Claim.WAIT, "first")
    sessions.heard("first", 1.1)
    assert sessions.claim("second", 7, 1.1) == (Claim.WAIT, None)
    sessions.closed("first")
    assert sessions.claim("second", 7, 1.2) == (Claim.GRANTED, None)


def test_last_messages_that_are_read_late_are_no_answer(sessions: Sessions) -> None:
    """A busy controller reads them after the claim."""
    joined(sessions, "first", 7)
    sessions.opened("second", "10.0.0.1", 1.0)
    assert sessions.claim("second", 7, 1.0) == (Claim.WAIT, "first")
    for now in (1.5, 2.0, 2.5, 3.0, 3.5):
        sessions.heard("first", min(now, 2.9))
        assert sessions.claim("second", 7, now) == (Claim.WAIT, None)
    assert sessions.claim("second", 7, 4.1) == (Claim.GRANTED, "first")


def test_a_live_session_whose_answer_is_under_way_keeps_its_datapath_id(sessions: Sessions) -> None:
    joined(sessions, "first", 7)
    sessions.opened("second", "10.0.0.1", 1.0)
    assert sessions.claim("second", 7, 1.0) == (Claim.WAIT, "first")
    for now in (1.5, 2.0, 2.5, 3.0, 3.5):
        sessions.heard("first", now)
        assert sessions.claim("second", 7, now) == (Claim.WAIT, None)
    assert sessions.claim("second", 7, 4.1) == (Claim.REFUSED, None)


def test_a_session_cannot_change_its_datapath_id(sessions: Sessions) -> None:
    joined(sessions, "first", 7)
    assert sessions.claim("first", 7, 1.0) == (Claim.GRANTED, None)
    assert sessions.claim("first", 8, 1.0) == (Claim.CHANGED, None)
    assert sessions.claim("unknown", 9, 1.0) == (Claim.CHANGED, None)


def test_invented_datapath_ids_are_bounded(sessions: Sessions) -> None:
    def states(name: str, address: str, dpid: int) -> Claim:
        sessions.opened(name, address, 0.0)
        claim, _ = sessions.claim(name, dpid, 0.0)
        sessions.closed(name)
        return claim

    joined(sessions, "first", 1)
    liar = [states("liar", "10.0.0.9", dpid) for dpid in range(100, 115)]
    assert liar == [Claim.GRANTED] * 12 + [Claim.TOO_MANY] * 3, "of one address"
    assert states("again", "10.0.0.9", 111) is Claim.GRANTED, "a known id may return"
    others = [states("other", f"10.0.1.{dpid}", dpid) for dpid in range(200, 210)]
    assert others == [Claim.GRANTED] * 7 + [Claim.TOO_MANY] * 3, "of all addresses"
    sessions.closed("first")
    assert states("first again", "10.0.0.9", 1) is Claim.GRANTED


def test_a_half_open_session_ends_after_ten_seconds_even_if_it_talks(sessions: Sessions) -> None:
    sessions.opened("stranger", "10.0.0.9", 0.0)
    joined(sessions, "switch", 1)
    for now in range(1, 11):
        sessions.heard("stranger", now)
        sessions.heard("switch", now)
        assert ended(sessions, now) == []
    assert ended(sessions, 11.0) == ["stranger"]
    assert len(sessions) == 1


def test_half_open_sessions_of_one_address_replace_each_other(sessions: Sessions) -> None:
    joined(sessions, "switch", 1)
    for number in range(3):
        assert sessions.opened(number, "10.0.0.9", number) == []
    assert [end.session for end in sessions.opened(3, "10.0.0.9", 3.0)] == [0]
    assert sessions.opened("other", "10.0.0.8", 3.0) == []
    assert [end.session for end in sessions.opened("another", "10.0.0.7", 3.0)] == [1]
    assert sessions.claim("other", 2, 4.0) == (Claim.GRANTED, None)


def test_sessions_are_bounded(sessions: Sessions) -> None:
    for number in range(6):
        joined(sessions, f"s{number}", number)
    assert [end.session for end in sessions.opened("one more", "10.0.0.1", 1.0)] == ["one more"]
    assert len(sessions) == 6


def test_a_silent_session_is_probed_and_then_ended(sessions: Sessions) -> None:
    joined(sessions, "answers", 1)
    joined(sessions, "dead", 2)
    now = 0.0
    for now in range(1, 17):
        probes, ends = sessions.look(now)
        assert ends == []
        assert probes == (["answers", "dead"] if now == 16 else [])
    sessions.heard("answers", 16.5)
    for now in range(17, 31):
        assert sessions.look(now) == ([], [])
    assert ended(sessions, 31.0) == ["dead"]


def test_a_pause_of_the_controller_ends_nobody(sessions: Sessions) -> None:
    joined(sessions, "switch", 1)
    sessions.opened("stranger", "10.0.0.9", 0.0)
    sessions.blocked("switch", 0.0)
    sessions.look(1.0)
    assert sessions.look(500.0) == ([], [])
    assert [ended(sessions, now) for now in (501.0, 502.0, 503.0)] == [[], [], ["switch"]]


def test_a_pause_of_the_controller_does_not_take_a_datapath_id_from_its_holder(sessions: Sessions) -> None:
    joined(sessions, "first", 7)
    sessions.opened("second", "10.0.0.2", 1.0)
    assert sessions.claim("second", 7, 1.0) == (Claim.WAIT, "first")
    assert sessions.claim("second", 7, 1.1) == (Claim.WAIT, None)
    assert sessions.claim("second", 7, 500.0) == (Claim.WAIT, None)
    sessions.heard("first", 500.1, answers=True)
    assert sessions.claim("second", 7, 500.2) == (Claim.REFUSED, None)


@pytest.mark.parametrize("answered", [True, False])
def test_a_pause_does_not_change_whether_a_holder_has_answered(sessions: Sessions, answered: bool) -> None:
    joined(sessions, "first", 7)
    sessions.opened("second", "10.0.0.2", 1.0)
    assert sessions.claim("second", 7, 1.0) == (Claim.WAIT, "first")
    if answered:
        sessions.heard("first", 1.1, answers=True)
    assert sessions.look(500.0) == ([], [])
    claim, _ = sessions.claim("second", 7, 500.1)
    assert claim is (Claim.REFUSED if answered else Claim.WAIT)


def test_a_claim_after_a_pause_waits_for_an_answer_after_it(sessions: Sessions) -> None:
    joined(sessions, "first", 7)
    sessions.opened("second", "10.0.0.2", 1.0)
    sessions.look(1.0)
    assert sessions.claim("second", 7, 500.0) == (Claim.WAIT, "first")
    sessions.heard("first", 500.1, answers=True)
    assert sessions.look(500.2) == ([], [])
    assert sessions.claim("second", 7, 500.6) == (Claim.REFUSED, None)


def test_a_pause_of_the_controller_is_no_wait_of_a_message(sessions: Sessions) -> None:
    joined(sessions, "switch", 1)
    for began in (0.0, 20.0):
        sessions.look(began)
        sessions.blocked("switch", began)
        assert sessions.look(began + 10) == ([], [])
        sessions.took("switch", True, 10.1, began + 10.1)
        assert ended(sessions, began + 10.2) == []


def test_a_switch_that_takes_no_message_is_ended(sessions: Sessions) -> None:
    joined(sessions, "slow", 1)
    joined(sessions, "busy", 2)
    for now in range(1, 6):
        sessions.blocked("slow", 0.5)
        sessions.blocked("busy", now - 0.2)
        assert sessions.took("busy", True, 0.2, now) == []
        assert ended(sessions, now) == []
    assert ended(sessions, 6.0) == ["slow"]


def test_a_switch_that_takes_a_message_now_and_then_is_ended(sessions: Sessions) -> None:
    joined(sessions, "drips", 1)
    for now in range(1, 13):
        sessions.heard("drips", now)
        if now % 4 == 0:
            sessions.took("drips", True, 4.0, now)
        assert ended(sessions, now) == (["drips"] if now == 12 else [])


def test_a_session_to_which_the_engine_sends_nothing_more_is_ended(sessions: Sessions) -> None:
    joined(sessions, "slow", 1)
    assert [end.session for end in sessions.took("slow", False, 5.0, 5.0)] == ["slow"]
    assert sessions.took("slow", False, 5.0, 5.0) == []
    assert len(sessions) == 0
