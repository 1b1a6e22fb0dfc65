"""EndTimes against the plainest form of it: a dict that is walked through."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from openflow_ext.switch.endtimes import SLACK, EndTimes

KEYS = st.sampled_from([b"a", b"b", b"c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("note"), KEYS, st.integers(0, 20)),
        st.tuples(st.just("forget"), KEYS, st.just(0)),
        st.tuples(st.just("due"), st.just(b""), st.integers(0, 20)),
    ),
    max_size=40,
)


@given(STEPS)
def test_it_is_a_dict_of_soonest_times(steps: list[tuple[str, bytes, int]]) -> None:
    ends, model = EndTimes(), dict[bytes, int]()
    for step, key, at in steps:
        if step == "note":
            ends.note(key, at)
            model[key] = min(at, model.get(key, at))
        elif step == "forget":
            ends.forget(key)
            model.pop(key, None)
        else:
            late = sorted((end, noted) for noted, end in model.items() if end <= at)
            found = ends.due(at)
            assert sorted(found) == sorted(noted for _, noted in late)
            assert [model.pop(noted) for noted in found] == [end for end, _ in late]
        assert len(ends) == len(model)


def test_entries_that_come_and_go_leave_nothing() -> None:
    ends = EndTimes()
    for number in range(10 * SLACK):
        ends.note(number.to_bytes(4, "big"), 1 << 60)
        ends.forget(number.to_bytes(4, "big"))
    assert len(ends) == 0
    assert len(ends._heap) <= SLACK + 1
