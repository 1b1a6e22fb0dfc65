"""Notes of many switches in bounded memory."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from weir_base.bounded_notes import BoundedNotes


def test_notes_are_found_replaced_and_removed() -> None:
    notes: BoundedNotes[str, int] = BoundedNotes(10)
    assert notes.get("a") is None
    assert notes.pop("a") is None
    notes.put("a", 0, 1)
    notes.put("a", 5, 2)
    assert (notes.get("a"), len(notes)) == (5, 1)
    assert notes.pop("a") == 5
    assert (notes.get("a"), len(notes), notes.displaced) == (None, 0, 0)


def test_a_switch_with_many_notes_displaces_its_own_oldest() -> None:
    notes: BoundedNotes[tuple[int, int], int] = BoundedNotes(10)
    for number in range(3):
        notes.put((2, number), number, 2)
    for number in range(100):
        notes.put((1, number), number, 1)
    assert [notes.get((2, number)) for number in range(3)] == [0, 1, 2]
    assert [number for number in range(100) if notes.get((1, number)) is not None] == list(range(93, 100))
    assert notes.displaced == 93


def test_a_switch_with_few_notes_displaces_one_of_the_switch_with_most() -> None:
    notes: BoundedNotes[tuple[int, int], int] = BoundedNotes(10)
    for number in range(10):
        notes.put((1, number), number, 1)
    for number in range(5):
        notes.put((2, number), number, 2)
    assert [number for number in range(10) if notes.get((1, number)) is not None] == [5, 6, 7, 8, 9]
    assert all(notes.get((2, number)) == number for number in range(5))


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 60), st.booleans()), max_size=300))
def test_the_memory_is_bounded_and_a_switch_below_an_equal_share_loses_nothing(
    steps: list[tuple[int, int, bool]],
) -> None:
    most = 12
    notes: BoundedNotes[tuple[int, int], int] = BoundedNotes(most)
    model: dict[tuple[int, int], int] = {}
    for step, (dpid, name, adds) in enumerate(steps):
        key = dpid, name
        if not adds:
            assert notes.pop(key) == model.pop(key, None)
            continue
        model.pop(key, None)
        held = Counter(owner for owner, _ in model)
        notes.put(key, step, dpid)
        lost = [one for one in model if notes.get(one) is None]
        assert len(lost) == (len(model) == most)
        for one in lost:
            assert held[one[0]] * len(held) >= most, "its switch had an equal share or more"
            assert one == next(other for other in model if other[0] == one[0]), "its oldest"
            del model[one]
        model[key] = step
        assert len(notes) == len(model) <= most
        assert all(notes.get(one) == value for one, value in model.items())
