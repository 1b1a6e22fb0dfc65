"""A flow that reconnects keeps the age and the volume of its earlier connections."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from flowdb.flow import NS_PER_S, FiveTuple, Flow, Hop
from flowdb.index import by_age
from sdtcp_app.standing import BULK_BYTES, MOST, Standings

KEEP_S = 10.0


def flow(number: int, opened_s: float, sent_bytes: int = 0, **key: object) -> Flow:
    """A flow of the same hosts to the same port as the others, from a port of its own."""
    there = replace(FiveTuple("10.0.0.1", "10.0.0.2", 40_000 + number % 20_000, 80), **key)
    return Flow(number, there, (Hop(1, 1, 2),), round(opened_s * NS_PER_S), 1460, 7, sent_bytes=sent_bytes)


def close(standings: Standings, ended: Flow, at_s: float, punished: bool = False) -> int | None:
    return standings.closed(ended, punished, round(at_s * NS_PER_S))


def test_the_next_flow_of_the_same_hosts_and_port_takes_over_the_standing() -> None:
    standings = Standings(KEEP_S)
    assert not standings.opened(flow(1, 1))
    close(standings, flow(1, 1, BULK_BYTES), 5)
    assert not standings.opened(flow(2, 6, src="10.0.0.9"))
    assert not standings.opened(flow(3, 6, dst_port=81))
    assert standings.opened(flow(4, 6))
    counted = standings.counted(flow(4, 6, 7))
    assert (counted.opened_ns, counted.sent_bytes) == (NS_PER_S, BULK_BYTES + 7)
    assert not standings.opened(flow(5, 6)), "one flow takes it over"


def test_a_server_s_flow_is_known_by_its_own_port() -> None:
    standings = Standings(KEEP_S)
    back = [replace(one, key=one.key.reverse) for one in (flow(1, 1, BULK_BYTES), flow(2, 6))]
    close(standings, back[0], 5)
    assert standings.opened(back[1])


def test_short_flows_stay_young_unless_they_were_punished() -> None:
    standings = Standings(KEEP_S)
    for number in range(1, 100):
        assert not standings.opened(flow(number, number))
        assert close(standings, flow(number, number, BULK_BYTES - 1), number + 0.5) is None
    close(standings, flow(99, 99), 100, punished=True)
    assert standings.opened(flow(100, 101))


def test_a_standing_is_remembered_for_a_while() -> None:
    standings = Standings(KEEP_S)
    close(standings, flow(1, 1, BULK_BYTES), 5)
    assert not standings.opened(flow(2, 5.1 + KEEP_S))
    close(standings, flow(3, 16, BULK_BYTES), 20)
    assert standings.opened(flow(4, 20 + KEEP_S))
    none = Standings(0)
    close(none, flow(1, 1, BULK_BYTES), 5)
    assert not none.opened(flow(2, 5))


def test_a_connection_that_opens_before_the_earlier_one_ends_takes_over_as_well() -> None:
    standings = Standings(KEEP_S)
    standings.opened(flow(1, 1))
    standings.opened(flow(2, 4))
    assert close(standings, flow(1, 1, BULK_BYTES), 5) == 2
    assert standings.counted(flow(2, 4)).opened_ns == NS_PER_S
    standings.opened(flow(3, 30))
    assert close(standings, flow(2, 4, BULK_BYTES), 60) is None, "flow 3 is no successor of flow 2"


@given(st.lists(st.floats(0.01, KEEP_S), min_size=1, max_size=20), st.booleans())
def test_no_pattern_of_reconnections_makes_a_bulk_flow_young(pauses: list[float], overlaps: bool) -> None:
    """The flow opens at 1 s. Another flow opens at 2 s: it never comes first."""
    standings, now_s, other = Standings(KEEP_S), 3.0, flow(30_000, 2, src="10.0.0.9")
    rank = standings.ranked(by_age)
    last = flow(1, 1, BULK_BYTES)
    standings.opened(last)
    for number, pause in enumerate(pauses, 2):
        now_s += pause
        again = flow(number, now_s, BULK_BYTES)
        if overlaps:
            standings.opened(again)
        close(standings, last, now_s)
        if not overlaps:
            standings.opened(again)
        last = again
        assert rank(last) < rank(other)


def test_the_memory_is_bounded() -> None:
    standings = Standings(KEEP_S)
    for number in range(1, MOST + 1000):
        one = flow(number, 1, BULK_BYTES, src=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
        standings.opened(one)
        close(standings, one, 2)
    assert standings.remembered <= 2 * MOST
