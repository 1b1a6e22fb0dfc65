"""Which samples become rows: nothing that changed is lost, and an idle port costs a row in ten seconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flowdb.flow import NS_PER_S, PortKey
from telemetry_app.core import PortSample
from telemetry_app.row_choice import KEEP_ALIVE_NS, RowChoice
from tests.support.controllers.port_samples import a_sample

PORT, OTHER = PortKey(1, 1), PortKey(1, 2)


def sampled(choice: RowChoice, second: int, n_i: int, port: PortKey = PORT) -> list[tuple[int, int]]:
    """A sample at a second: the rows that follow, each as (second, N_i)."""
    rows = choice.choose(port.dpid, [a_sample(port, at_ns=second * NS_PER_S, n_i=n_i)])
    return [as_row(row) for row in rows]


def as_row(row: PortSample) -> tuple[int, int]:
    return row.at_ns // NS_PER_S, row.counters.n_i


def test_a_port_without_changes_gets_a_row_every_ten_seconds() -> None:
    choice = RowChoice()
    rows = [row for second in range(35) for row in sampled(choice, second, 7)]
    assert rows == [(0, 7), (10, 7), (20, 7), (30, 7)]


def test_a_change_is_written_with_the_sample_before_it() -> None:
    choice = RowChoice()
    rows = [row for second, n_i in enumerate([7, 7, 7, 8, 9, 9]) for row in sampled(choice, second, n_i)]
    assert rows == [(0, 7), (2, 7), (3, 8), (4, 9)]


def test_the_last_sample_of_a_switch_that_disconnects_is_written() -> None:
    choice = RowChoice()
    for second in range(4):
        sampled(choice, second, 7)
    assert [as_row(row) for row in choice.switch_gone(1)] == [(3, 7)]
    assert list(choice.switch_gone(1)) == []
    assert sampled(choice, 9, 7) == [(9, 7)], "a switch that connects again begins anew"


def test_a_port_that_is_gone_is_forgotten_and_others_go_on() -> None:
    choice = RowChoice()
    both = [a_sample(port, at_ns=0) for port in (PORT, OTHER)]
    assert list(choice.choose(1, both)) == both
    assert sampled(choice, 1, 0) == []
    later = [a_sample(port, at_ns=2 * NS_PER_S) for port in (PORT, OTHER)]
    assert list(choice.choose(1, later)) == later[1:], "the other port was gone for a second"


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60))
def test_the_rows_hold_both_ends_of_every_time_without_a_change(values: list[int]) -> None:
    """Every sample equals the rows beside it, so readers can draw a line between two rows."""
    choice = RowChoice()
    rows = [row for second, n_i in enumerate(values) for row in sampled(choice, second, n_i)]
    rows += [as_row(row) for row in choice.switch_gone(1)]
    known = dict(rows)
    assert len(known) == len(rows), "each sample becomes at most one row"
    for second, n_i in enumerate(values):
        before = max(at for at in known if at <= second)
        after = min(at for at in known if at >= second)
        assert {known[before], known[after]} == {n_i}
        assert after - before <= KEEP_ALIVE_NS // NS_PER_S
