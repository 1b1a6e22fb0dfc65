"""Timeouts of exact rules: when each rule is checked, and that other rules are not read."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from libbpf_cffi.libbpf import Map
from openflow_ext.switch.dataplane import rule_structs
from openflow_ext.switch.dataplane.rule_maps import RuleMaps
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from tests.support.data_plane.bench import BRIDGE, Bench, reflex_entry
from tests.support.data_plane.packets import ACK, Segment

pytestmark = pytest.mark.beside_others

LOCAL = Segment()

MS_NS = 1_000_000


@pytest.fixture(autouse=True)
def _timeouts_in_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_structs, "NS_PER_S", MS_NS)


def rule(port: int, **timeouts: int) -> Rule:
    match = reflex_entry(replace(LOCAL, src_port=port)).match
    return Rule(0, 1, 0, match, WindowOp.SET_WINDOW, 1000, **timeouts)


def expired(rules: Any) -> list[tuple[Rule, bool]]:
    return [(one, hard) for bridge, one, _, hard in rules.expired() if bridge == BRIDGE]


def test_expired_rules_are_reported_until_they_are_removed(bench: Bench) -> None:
    hard, idle, long = rule(1, hard_timeout_s=1), rule(2, idle_timeout_s=1), rule(3, hard_timeout_s=60_000)
    for one in (hard, idle, long, rule(4)):
        bench.put(one)
    time.sleep(0.01)
    for _ in range(2):
        assert expired(bench.plane) == [(hard, True), (idle, False)]
    bench.plane.remove(BRIDGE, hard)
    assert expired(bench.plane) == [(idle, False)]
    bench.put(replace(idle, idle_timeout_s=60_000))
    assert expired(bench.plane) == []


@pytest.mark.parametrize(
    "match", [rule(1).match, replace(rule(1).match, src_port=None)], ids=["exact", "listed"]
)
def test_a_rule_that_is_put_again_keeps_its_end(bench: Bench, match: TcpMatch) -> None:
    """As by a MODIFY, also after the agent has started again and read the rule from the maps."""
    bench.put(replace(rule(1, hard_timeout_s=60), match=match))
    [(read, _)] = bench.plane.rules(BRIDGE)
    bench.put(replace(read, window_bytes=2000))
    [(again, _)] = bench.plane.rules(BRIDGE)
    assert (again.window_bytes, again.hard_end_ns) == (2000, read.hard_end_ns)
    assert read.hard_end_ns > 0


def test_use_keeps_a_rule_with_an_idle_timeout(bench: Bench) -> None:
    kept = rule(LOCAL.src_port, idle_timeout_s=60)
    bench.handshake(LOCAL)
    assert expired(bench.plane) == []
    bench.put(kept)
    for _ in range(4):
        time.sleep(0.03)
        bench.ingress(replace(LOCAL, flags=ACK))
        assert expired(bench.plane) == []
    time.sleep(0.07)
    assert expired(bench.plane) == [(kept, False)]


def test_new_agent_finds_the_rules_of_the_previous_one(bench: Bench) -> None:
    left = rule(1, hard_timeout_s=1)
    bench.put(left)
    time.sleep(0.01)
    maps = bench.plane.pinned.maps
    names = ("exact_rules", "lists", "list_flags", "tallies", "list_counts")
    assert expired(RuleMaps(*(maps[name] for name in names))) == [(left, True)]


def test_rules_that_cannot_have_expired_are_not_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert expired(bench.plane) == []
    for port in range(1, 1001):
        bench.put(rule(port, hard_timeout_s=50_000 if port % 2 else 0))
    reads: Counter[str] = Counter()

    def watch(name: str) -> None:
        real = getattr(Map, name)

        def counted(self: Map, *args: Any) -> Any:
            reads[f"{name} {self.name}"] += 1
            return real(self, *args)

        monkeypatch.setattr(Map, name, counted)

    watch("get")
    watch("items")
    assert expired(bench.plane) == []
    assert reads == {"items lists": 1}


def test_armed_entries_are_read_without_a_walk_through_the_map(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [reflex_entry(replace(LOCAL, src_port=port)) for port in (9, 7, 8)]
    bench.plane.arm(1, BRIDGE, rules)
    with monkeypatch.context() as patched:
        patched.setattr(Map, "items", lambda _self: pytest.fail("the map was walked through"))
        assert [one for one, _ in bench.plane.armed(1)] == rules
        bench.plane.arm(1, BRIDGE, [])
        assert bench.plane.armed(1) == []
