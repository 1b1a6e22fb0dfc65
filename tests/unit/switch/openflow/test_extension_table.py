"""The extension table: FLOW_MODs and their undo."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from openflow_ext import wire
from openflow_ext.switch.dataplane.interface import UnsupportedMatch
from openflow_ext.switch.dataplane.rules import Rule, WindowOp
from openflow_ext.switch.errors import Refused
from openflow_ext.switch.openflow.extension_table import PENDING_MAX, Change, ExtensionTable, PendingChanges
from openflow_ext.switch.openflow.flow_mods import FlowMod
from openflow_ext.switch.openflow.flow_stats import Flow
from openflow_ext.switch.openflow.modify_targets import ModifyTargets
from tests.support.agent.fake_data_plane import FakeDataPlane
from tests.support.openflow.flow_mods import TCP4, ext, flow_mod, ofproto, output

MOD = ext(wire.ModWindow(30000))
BRIDGE = 5


def flow(match: dict[str, Any], table_id: int, priority: int, cookie: int = 0, **fields: Any) -> Flow:
    """An entry of Open vSwitch."""
    raw = FlowMod.parse(flow_mod({**TCP4, **match})).match
    return Flow(table_id, priority, raw, cookie, **fields)


class Bench:
    def __init__(self, room: int = 1000) -> None:
        self.plane = FakeDataPlane(room)
        self.now_s = 100.0
        self.table = ExtensionTable(BRIDGE, self.plane, lambda: self.now_s)
        self.others: list[Flow] = []

    def send(self, match: dict[str, Any] | None = None, *actions: Any, **fields: Any) -> tuple[Change, ...]:
        message = flow_mod({**TCP4, **(match or {})}, list(actions), **fields)
        return self.send_raw(message)

    def send_raw(self, message: bytes) -> tuple[Change, ...]:
        return self.table.apply(FlowMod.parse(message))

    def modify(self, match: dict[str, Any], *actions: Any, **fields: Any) -> tuple[Change, ...]:
        """A MODIFY of all entries of one table, which Open vSwitch would report."""
        message = flow_mod({**TCP4, **match}, list(actions), **{"command": ofproto.OFPFC_MODIFY, **fields})
        rules = [entry.rule for entry in self.table if entry.rule.table_id == fields["table_id"]]
        flows = [flow({"tcp_dst": r.match.dst_port}, r.table_id, r.priority, r.cookie) for r in rules]
        targets = ModifyTargets()
        targets.learn([*flows, *self.others])
        modify = FlowMod.parse(message)
        return self.table.modify(modify, targets.changed_by(modify))

    def delete(self, match: dict[str, Any] | None = None, strict: bool = False, **fields: Any) -> None:
        command = ofproto.OFPFC_DELETE_STRICT if strict else ofproto.OFPFC_DELETE
        fields = {"table_id": ofproto.OFPTT_ALL, **fields}
        self.send_raw(flow_mod(match or {}, command=command, **fields))

    @property
    def rules(self) -> list[Rule]:
        held = [rule for rule, _ in self.plane.rules(BRIDGE)]
        assert sorted(map(str, held)) == sorted(str(entry.rule) for entry in self.table)
        return held

    @property
    def dst_ports(self) -> list[int | None]:
        return sorted(rule.match.dst_port or 0 for rule in self.rules)


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    for port in (80, 81, 82):
        bench.send({"tcp_dst": port}, MOD, output(port), priority=10, cookie=port, table_id=port % 2)
    return bench


def test_add_makes_a_rule_and_a_second_add_replaces_it(bench: Bench) -> None:
    changes = bench.send({"tcp_dst": 80}, ext(wire.SetWindow(1000)), priority=10)
    assert len(bench.rules) == 3
    assert changes[0].before is not None
    assert changes[0].after is not None
    assert changes[0].after.rule.window_op is WindowOp.SET_WINDOW


def test_add_without_extension_actions_removes_the_rule_of_the_entry(bench: Bench) -> None:
    bench.send({"tcp_dst": 80}, output(1), priority=10, table_id=1)
    bench.send({"tcp_dst": 80}, output(1), priority=11, table_id=0)
    assert bench.dst_ports == [80, 81, 82]
    bench.send({"tcp_dst": 80}, output(1), priority=10, table_id=0)
    assert bench.dst_ports == [81, 82]


@pytest.mark.parametrize(
    ("match", "fields", "left"),
    [
        ({}, {}, []),
        ({"eth_type": 0x0800}, {}, []),
        ({"eth_type": 0x86DD}, {}, [80, 81, 82]),
        ({"eth_src": "00:00:00:00:00:01"}, {}, [80, 81, 82]),
        ({**TCP4, "tcp_dst": 81}, {}, [80, 82]),
        ({}, {"table_id": 1}, [80, 82]),
        ({}, {"table_id": 7}, [80, 81, 82]),
        ({}, {"cookie": 82, "cookie_mask": 0xFFFFFFFFFFFFFFFF}, [80, 81]),
        ({}, {"cookie": 80, "cookie_mask": 0xFC}, []),
        ({}, {"out_port": 82}, [80, 81]),
        ({}, {"out_port": 9}, [80, 81, 82]),
        ({}, {"out_group": 9}, [80, 81, 82]),
    ],
)
def test_delete_removes_the_rules_that_it_covers(
    bench: Bench, match: dict[str, Any], fields: dict[str, Any], left: list[int]
) -> None:
    bench.delete(match, **fields)
    assert bench.dst_ports == left


@pytest.mark.parametrize(
    ("match", "priority", "left"),
    [
        ({**TCP4, "tcp_dst": 80}, 10, [81, 82]),
        ({**TCP4, "tcp_dst": 80}, 11, [80, 81, 82]),
        (TCP4, 10, [80, 81, 82]),
    ],
)
def test_delete_strict_removes_one_rule(
    bench: Bench, match: dict[str, Any], priority: int, left: list[int]
) -> None:
    bench.delete(match, strict=True, priority=priority)
    assert bench.dst_ports == left


def test_modify_changes_the_operation_and_nothing_else(bench: Bench) -> None:
    before = {rule.match.dst_port: rule for rule in bench.rules}
    bench.modify({}, ext(wire.SetWindow()), table_id=0, cookie=99, idle_timeout=99)
    after = {rule.match.dst_port: rule for rule in bench.rules}
    assert after[81] == before[81]
    for port in (80, 82):
        expected = dataclasses.replace(before[port], window_op=WindowOp.FAIR_SHARE, window_bytes=0, alpha=0)
        assert after[port] == expected


def test_modify_strict_changes_one_rule_and_removes_it_without_actions(bench: Bench) -> None:
    strict = {"command": ofproto.OFPFC_MODIFY_STRICT, "table_id": 0}
    bench.send({"tcp_dst": 80}, output(3), priority=9, **strict)
    assert bench.dst_ports == [80, 81, 82]
    bench.send({"tcp_dst": 80}, output(3), priority=10, **strict)
    assert bench.dst_ports == [81, 82]


def test_only_an_add_starts_the_hard_timeout_again(bench: Bench) -> None:
    def ends_s() -> float:
        return next(rule.hard_end_ns / 1e9 for rule in bench.rules if rule.match.dst_port == 80)

    bench.send({"tcp_dst": 80}, MOD, priority=10, hard_timeout=60)
    bench.now_s += 50
    modified = bench.modify({"tcp_dst": 80}, ext(wire.SetWindow()), table_id=0)
    assert ends_s() == 160
    bench.table.undo(modified)
    assert ends_s() == 160
    bench.table.undo(bench.send_raw(flow_mod({}, command=ofproto.OFPFC_DELETE, table_id=0)))
    assert ends_s() == 160
    added = bench.send({"tcp_dst": 80}, MOD, priority=10, hard_timeout=60)
    assert ends_s() == 210
    bench.table.undo(added)
    assert ends_s() == 160


def test_modify_makes_rules_for_entries_that_still_have_none(bench: Bench) -> None:
    bench.others = [
        flow({"tcp_dst": 90}, 0, 5, cookie=9, idle_timeout_s=7, hard_timeout_s=60, age_s=20.5),
        flow({"tcp_dst": 91}, 0, 6),
    ]
    added = bench.modify({}, MOD, output(4), table_id=0)
    assert len(added) == 4
    rules = {rule.match.dst_port: rule for rule in bench.rules}
    assert (rules[90].cookie, rules[90].priority) == (9, 5)
    assert (rules[90].idle_timeout_s, rules[90].hard_timeout_s) == (7, 40)
    assert rules[91].hard_timeout_s == 0
    assert (rules[90].hard_end_ns, rules[91].hard_end_ns) == (140e9, 0)
    bench.table.undo(added)
    assert bench.dst_ports == [80, 81, 82]


def test_modify_strict_selects_one_entry(bench: Bench) -> None:
    strict = {"command": ofproto.OFPFC_MODIFY_STRICT, "table_id": 0}
    bench.modify({"tcp_dst": 80}, ext(wire.SetWindow(7)), priority=11, **strict)
    bench.modify({"tcp_dst": 80}, ext(wire.SetWindow(8)), priority=10, **strict)
    assert sorted(rule.window_bytes for rule in bench.rules) == [8, 30000, 30000]


def test_modify_of_an_entry_without_a_possible_rule_changes_nothing(bench: Bench) -> None:
    before = bench.rules
    bench.others = [Flow(0, 0, FlowMod.parse(flow_mod({**TCP4, "eth_dst": "02:00:00:00:00:01"})).match)]
    with pytest.raises(Refused) as caught:
        bench.modify({}, ext(wire.SetWindow()), table_id=0)
    assert caught.value.error_type == ofproto.OFPET_BAD_MATCH
    assert bench.rules == before


def test_modify_with_a_bad_action_is_refused(bench: Bench) -> None:
    before = bench.rules
    for table_id in (0, 9):
        with pytest.raises(Refused):
            bench.modify({}, MOD, MOD, table_id=table_id)
    assert bench.rules == before


def test_an_entry_reads_back_as_it_was_written(bench: Bench) -> None:
    one = flow({"tcp_dst": 80}, 0, 10)
    written = FlowMod.parse(flow_mod(TCP4, [MOD, output(80)])).instructions
    assert bench.table.whole_instructions(one) == written
    other = flow({"tcp_dst": 99}, 0, 10)
    assert bench.table.whole_instructions(dataclasses.replace(other, instructions=b"theirs")) == b"theirs"


def test_an_adopted_entry_is_completed_by_open_vswitch_s_part(bench: Bench) -> None:
    again = ExtensionTable(BRIDGE, bench.plane)
    again.adopt()
    theirs = FlowMod.parse(flow_mod(TCP4, [output(80)])).instructions
    one = dataclasses.replace(flow({"tcp_dst": 80}, 0, 10), instructions=theirs)
    written = FlowMod.parse(flow_mod(TCP4, [MOD, output(80)])).instructions
    assert again.whole_instructions(one) == written
    by_port = FlowMod.parse(flow_mod({}, command=ofproto.OFPFC_DELETE, table_id=0, out_port=80))
    assert again.apply(by_port) == ()
    assert again.learn(one) is not None
    assert len(again.apply(by_port)) == 1
    assert again.learn(flow({"tcp_dst": 99}, 0, 10)) is None


def test_a_removed_entry_loses_its_rule_unless_it_was_added_again(bench: Bench) -> None:
    bench.now_s += 10
    bench.send({"tcp_dst": 81}, MOD, priority=10, table_id=1)
    bench.table.removed(flow({"tcp_dst": 80}, 0, 10, age_s=10))
    bench.table.removed(flow({"tcp_dst": 81}, 1, 10, age_s=10))
    bench.table.removed(flow({"tcp_dst": 99}, 1, 10, age_s=10))
    assert bench.dst_ports == [81, 82]


def test_entries_that_changed_meanwhile_are_not_forgotten(bench: Bench) -> None:
    before = list(bench.table)
    bench.send({"tcp_dst": 80}, MOD, priority=10)
    assert bench.table.forget(before) == 2
    assert bench.dst_ports == [80]


def test_a_full_table_refuses_new_rules_and_keeps_its_own() -> None:
    bench = Bench(room=1)
    bench.send({"tcp_dst": 1}, MOD)
    with pytest.raises(Refused) as caught:
        bench.send({"tcp_dst": 2}, MOD)
    assert caught.value.error_type == ofproto.OFPET_FLOW_MOD_FAILED
    assert caught.value.code == ofproto.OFPFMFC_TABLE_FULL
    assert bench.dst_ports == [1]
    bench.send({"tcp_dst": 1}, ext(wire.SetWindow()))


def test_a_command_that_fails_half_way_changes_no_rule(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(map(str, bench.rules))
    put = bench.plane.put

    def picky(bridge: int, rule: Rule) -> None:
        if rule.match.dst_port == 82 and rule.window_op is WindowOp.FAIR_SHARE:
            raise UnsupportedMatch("not this one")
        put(bridge, rule)

    monkeypatch.setattr(bench.plane, "put", picky)
    with pytest.raises(Refused) as caught:
        bench.modify({}, ext(wire.SetWindow()), table_id=0)
    assert caught.value.error_type == ofproto.OFPET_BAD_MATCH
    assert sorted(map(str, bench.rules)) == before


def test_each_command_can_be_undone(bench: Bench) -> None:
    before = sorted(map(str, bench.rules))
    replaced = bench.send({"tcp_dst": 80}, ext(wire.SetWindow(1)), priority=10)
    added = bench.send({"tcp_dst": 90}, MOD)
    deleted = bench.send_raw(flow_mod({}, command=ofproto.OFPFC_DELETE, table_id=ofproto.OFPTT_ALL))
    assert bench.rules == []
    for changes in (deleted, added, replaced):
        bench.table.undo(changes)
    assert sorted(map(str, bench.rules)) == before


def test_undo_keeps_newer_changes(bench: Bench) -> None:
    added = bench.send({"tcp_dst": 90}, MOD)
    bench.send({"tcp_dst": 90}, ext(wire.SetWindow(7)))
    bench.table.undo(added)
    assert 90 in bench.dst_ports
    deleted = bench.send_raw(flow_mod({}, command=ofproto.OFPFC_DELETE, table_id=0))
    bench.send({"tcp_dst": 80}, ext(wire.SetWindow(8)), priority=10)
    bench.table.undo(deleted)
    assert [r.window_bytes for r in bench.rules if r.match.dst_port == 80] == [8]


def test_a_new_table_can_adopt_or_purge_earlier_rules(bench: Bench) -> None:
    again = ExtensionTable(BRIDGE, bench.plane)
    again.adopt()
    assert sorted(str(e.rule) for e in again) == sorted(map(str, bench.rules))
    again.purge()
    assert bench.plane.held == {}
    assert len(again) == 0


def test_expired_rules_are_removed(bench: Bench) -> None:
    gone = bench.rules[0]
    bench.table.expire(gone)
    bench.table.expire(gone)
    assert gone not in bench.rules


def test_pending_changes_are_found_once_by_the_bytes_that_an_error_quotes() -> None:
    pending = PendingChanges(lambda: 0.0)
    change = (Change(None, None),)
    pending.remember(b"A" * 70, b"whole" * 20, change)
    assert pending.take(b"B" * 64) is None
    assert pending.take(b"A" * 64) == (change, (b"whole" * 20)[:64])
    assert pending.take(b"A" * 64) is None


def test_pending_changes_are_limited_in_number_and_age() -> None:
    now = [0.0]
    pending = PendingChanges(lambda: now[0])
    sent = [number.to_bytes(64, "big") for number in range(PENDING_MAX + 1)]
    for message in sent:
        pending.remember(message, message, ())
    assert pending.take(sent[0]) is None
    now[0] = 31.0
    pending.remember(b"new", b"new", ())
    assert pending.take(sent[-1]) is None
    assert pending.take(b"new") is not None
