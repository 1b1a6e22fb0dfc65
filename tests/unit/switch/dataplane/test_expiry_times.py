"""ExpiryTimes compared with a plain dict of times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from openflow_ext.switch.dataplane.expiry_times import SLACK, ExpiryTimes

KEYS = st.sampled_from([b"a", b"b", b"c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), KEYS, st.integers(0, 20)),
        st.tuples(st.just("forget"), KEYS, st.just(0)),
        st.tuples(st.just("due"), st.just(b""), st.integers(0, 20)),
    ),
    max_size=40,
)


@given(STEPS)
def test_it_holds_the_earliest_time_of_each_key(steps: list[tuple[str, bytes, int]]) -> None:
    times, model = ExpiryTimes(), dict[bytes, int]()
    for step, key, at in steps:
        if step == "add":
            times.add(key, at)
            model[key] = min(at, model.get(key, at))
        elif step == "forget":
            times.forget(key)
            model.pop(key, None)
        else:
            late = sorted((end, name) for name, end in model.items() if end <= at)
            found = times.due(at)
            assert sorted(found) == sorted(name for _, name in late)
            assert [model.pop(name) for name in found] == [end for end, _ in late]
        assert len(times) == len(model)


def test_keys_that_are_added_and_forgotten_leave_the_heap_small() -> None:
    times = ExpiryTimes()
    for number in range(10 * SLACK):
        times.add(number.to_bytes(4, "big"), 1 << 60)
        times.forget(number.to_bytes(4, "big"))
    assert len(times) == 0
    assert len(times._heap) <= SLACK + 1
