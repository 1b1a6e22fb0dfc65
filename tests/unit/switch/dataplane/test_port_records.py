"""Many ports read at once: runs of slots, drops that no tracepoint has seen, refused flows."""

from __future__ import annotations

import pytest

from openflow_ext.switch.dataplane.port_records import runs, unseen_drops, untracked
from openflow_ext.switch.dataplane.structs import ffi

U32 = 1 << 32


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        ([], []),
        ([7], [range(7, 8)]),
        ([9, 7, 8], [range(7, 10)]),
        ([1, 65, 4000, 4095], [range(1, 66), range(4000, 4001), range(4095, 4096)]),
    ],
)
def test_slots_are_read_in_few_runs(slots: list[int], expected: list[range]) -> None:
    assert list(runs(slots)) == expected


@pytest.mark.parametrize(
    ("drops", "seen", "unseen"),
    [(5, 5, 0), (9, 5, 4), (3, 5, 3), (0, 5, 0), (2, U32 - 3, 5)],
    ids=["none", "some", "a new qdisc", "a new qdisc without drops", "32 bits passed"],
)
def test_drops_since_a_tracepoint_saw_the_qdisc(drops: int, seen: int, unseen: int) -> None:
    assert unseen_drops(drops, seen) == unseen


def test_only_ports_that_refused_flows_are_named() -> None:
    states = {slot: ffi.new("struct weir_port_state *", {"untracked": slot}) for slot in (0, 3)}
    assert untracked({slot: bytes(ffi.buffer(state)) for slot, state in states.items()}) == {3: 3}
