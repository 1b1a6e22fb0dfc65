"""One line about a peer in an interval; the next one says how many were held back."""

from __future__ import annotations

from weir_base.log_limit import LogLimit


def test_lines_about_a_key_are_held_back_and_counted() -> None:
    limit = LogLimit(1.0)
    assert [limit.passes("a", now) for now in (10.0, 10.2, 10.9, 11.0, 11.5)] == [0, None, None, 2, None]
    assert limit.passes("b", 10.5) == 0


def test_keys_are_bounded_and_the_oldest_is_forgotten() -> None:
    limit = LogLimit(1.0, most_keys=2)
    for key in "abc":
        assert limit.passes(key, 10.0) == 0
    assert limit.passes("a", 10.1) == 0
    assert limit.passes("c", 10.1) is None
    limit.clear()
    assert limit.passes("c", 10.1) == 0
