"""Timeouts of exact rules: who is looked at when, and that the others are not read."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from openflow_ext.switch import ruleforms
from openflow_ext.switch.libbpf import Map
from openflow_ext.switch.rulemaps import RuleMaps
from openflow_ext.switch.rules import Rule, WindowOp
from tests.bpf.conftest import BRIDGE, Bench
from tests.bpf.packets import ACK
from tests.bpf.test_reflex import LOCAL, entry

MS_NS = 1_000_000


@pytest.fixture(autouse=True)
def _timeouts_in_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ruleforms, "NS", MS_NS)


def rule(port: int, **timeouts: int) -> Rule:
    match = entry(replace(LOCAL, src_port=port)).match
    return Rule(0, 1, 0, match, WindowOp.SET_WINDOW, 1000, **timeouts)


def expired(rules: Any) -> list[tuple[Rule, bool]]:
    return [(one, hard) for bridge, one, _, hard in rules.expired() if bridge == BRIDGE]


def test_rules_end_by_either_timeout_and_are_told_until_they_are_removed(bench: Bench) -> None:
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


def test_use_keeps_an_idle_rule(bench: Bench) -> None:
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


def test_a_new_agent_finds_the_rules_of_the_one_before(bench: Bench) -> None:
    left = rule(1, hard_timeout_s=1)
    bench.put(left)
    time.sleep(0.01)
    maps = bench.plane._maps
    names = ("exact_rules", "lists", "list_flags", "tallies", "list_counts")
    assert expired(RuleMaps(*(maps[name] for name in names))) == [(left, True)]


def test_rules_whose_time_has_not_come_are_not_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_is_armed_is_read_back_without_a_walk(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [entry(replace(LOCAL, src_port=port)) for port in (9, 7, 8)]
    bench.plane.arm(1, BRIDGE, rules)
    with monkeypatch.context() as patched:
        patched.setattr(Map, "items", lambda _self: pytest.fail("the map was walked through"))
        assert [one for one, _ in bench.plane.armed(1)] == rules
        bench.plane.arm(1, BRIDGE, [])
        assert bench.plane.armed(1) == []
