"""Rules in the maps: a rule that replaces another leaves no part of it, wherever both are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.rules import CountOp, Rule, TcpMatch, WindowOp
from tests.support.data_plane.bench import BRIDGE, Bench, reflex_entry, reverse
from tests.support.data_plane.packets import RST, Segment, window_of

pytestmark = pytest.mark.beside_others

LOCAL = Segment()
ON_RST = Rule(1, 100, 0, TcpMatch(flags=RST, flags_mask=RST), WindowOp.FAIR_SHARE)
COUNTED_RST = replace(ON_RST, count_op=CountOp.DECREMENT_NI)
CLAMP = reflex_entry(LOCAL)
COUNTED_CLAMP = replace(CLAMP, count_op=CountOp.INCREMENT_NI)
OTHER_CLAMP = replace(CLAMP, priority=1)


def rules(bench: Bench) -> list[Rule]:
    return [rule for rule, _ in bench.plane.rules(BRIDGE)]


def places(bench: Bench) -> list[str]:
    """The maps that hold the bridge's rules."""
    maps = bench.plane.pinned.maps
    lists = [f"list {key.direction}" for key, value in maps["lists"].items() for _ in range(value.len)]
    return sorted(lists + ["exact" for _ in maps["exact_rules"].items()])


def test_a_rule_that_counts_no_longer_leaves_n_i_alone(bench: Bench) -> None:
    """As SCCP's entry for RST after `counts_resets` has become false."""
    bench.count_by_flags()
    bench.plane.remove(BRIDGE, Rule(1, 100, 0, ON_RST.match))
    bench.put(COUNTED_RST)
    bench.put(ON_RST)
    bench.handshake_in(LOCAL)
    assert bench.counters.n_i == 1
    bench.egress(replace(reverse(LOCAL), flags=RST))
    assert bench.counters.n_i == 1


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        (COUNTED_RST, ON_RST, ["list 0"]),
        (COUNTED_RST, replace(COUNTED_RST, window_op=WindowOp.NONE), ["list 1"]),
        (ON_RST, COUNTED_RST, ["list 0", "list 1"]),
        (CLAMP, COUNTED_CLAMP, ["list 0", "list 1"]),
        (COUNTED_CLAMP, CLAMP, ["exact"]),
    ],
)
def test_a_replaced_rule_is_only_where_the_new_one_acts(
    bench: Bench, before: Rule, after: Rule, place: list[str]
) -> None:
    bench.put(before)
    bench.put(after)
    assert (rules(bench), places(bench)) == ([after], place)
    bench.plane.remove(BRIDGE, after)
    assert (rules(bench), places(bench)) == ([], [])


def test_a_clamp_that_was_in_a_list_is_removed_after_its_refresh(bench: Bench) -> None:
    """The hash has one entry for each 5-tuple. A refreshed clamp moves into it when that entry is free."""
    bench.handshake(LOCAL)
    bench.put(OTHER_CLAMP)
    bench.put(CLAMP)
    assert places(bench) == ["exact", "list 0"]
    bench.plane.remove(BRIDGE, OTHER_CLAMP)
    bench.put(CLAMP)
    assert places(bench) == ["exact"]
    bench.plane.remove(BRIDGE, CLAMP)
    assert places(bench) == []
    assert window_of(bench.ingress(LOCAL), LOCAL) == LOCAL.window
