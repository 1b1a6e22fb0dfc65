"""The entries that a MODIFY changes, and the effect of each command on them."""

from __future__ import annotations

from typing import Any

import pytest

from openflow_ext.switch.errors import Refused
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.flow_mods import FlowMod
from openflow_ext.switch.openflow.flow_stats import Flow
from openflow_ext.switch.openflow.modify_targets import ModifyTargets
from tests.support.openflow.flow_mods import TCP4, flow_mod, ofproto, output

ADD, MODIFY, MODIFY_STRICT = ofproto.OFPFC_ADD, ofproto.OFPFC_MODIFY, ofproto.OFPFC_MODIFY_STRICT
DELETE, DELETE_STRICT = ofproto.OFPFC_DELETE, ofproto.OFPFC_DELETE_STRICT
WEB = {**TCP4, "tcp_dst": 80}


def command(kind: int, match: dict[str, Any] | None = None, port: int = 0, **fields: Any) -> FlowMod:
    actions = [output(port)] if port else []
    return FlowMod.parse(flow_mod(TCP4 if match is None else match, actions, command=kind, **fields))


def entry(table_id: int, priority: int, match: dict[str, Any], cookie: int, port: int) -> Flow:
    mod = command(ADD, match, port)
    return Flow(table_id, priority, mod.match, cookie, instructions=mod.instructions)


@pytest.fixture
def targets() -> ModifyTargets:
    """Three entries with the cookies 1, 2 and 3."""
    made = ModifyTargets()
    made.learn([entry(0, 5, WEB, 1, port=1), entry(0, 6, WEB, 2, port=2), entry(1, 5, TCP4, 3, port=1)])
    return made


def left(targets: ModifyTargets) -> list[int]:
    everything = command(MODIFY, {}, table_id=of.OFPTT_ALL)
    return sorted(flow.cookie for flow in targets.changed_by(everything))


@pytest.mark.parametrize(
    ("kind", "match", "fields", "changed"),
    [
        (MODIFY, {}, {}, [1, 2]),
        (MODIFY, {}, {"table_id": 1}, [3]),
        (MODIFY, {}, {"table_id": of.OFPTT_ALL}, [1, 2, 3]),
        (MODIFY, WEB, {"table_id": of.OFPTT_ALL}, [1, 2]),
        (MODIFY, {**TCP4, "tcp_dst": 81}, {}, []),
        (MODIFY, {}, {"cookie": 2, "cookie_mask": 3}, [2]),
        (MODIFY_STRICT, WEB, {"priority": 5}, [1]),
        (MODIFY_STRICT, WEB, {"priority": 7}, []),
        (MODIFY_STRICT, TCP4, {"priority": 5}, []),
        (MODIFY_STRICT, TCP4, {"priority": 5, "table_id": of.OFPTT_ALL}, [3]),
        (MODIFY_STRICT, WEB, {"priority": 5, "cookie": 2, "cookie_mask": 3}, []),
    ],
)
def test_a_modify_changes_the_entries_that_it_selects(
    targets: ModifyTargets, kind: int, match: dict[str, Any], fields: dict[str, int], changed: list[int]
) -> None:
    assert sorted(flow.cookie for flow in targets.changed_by(command(kind, match, **fields))) == changed


@pytest.mark.parametrize(
    ("kind", "match", "fields", "after"),
    [
        (DELETE, {}, {}, [3]),
        (DELETE, {}, {"table_id": of.OFPTT_ALL, "out_port": 1}, [2]),
        (DELETE, {}, {"table_id": of.OFPTT_ALL, "out_group": 1}, [1, 2, 3]),
        (DELETE_STRICT, WEB, {"priority": 6}, [1, 3]),
        (DELETE_STRICT, WEB, {"priority": 6, "out_port": 1}, [1, 2, 3]),
        (ADD, WEB, {"priority": 6, "cookie": 9}, [1, 3, 9]),
        (ADD, WEB, {"priority": 7, "cookie": 9}, [1, 2, 3, 9]),
        (MODIFY, {}, {"cookie": 9}, [1, 2, 3]),
    ],
)
def test_a_command_removes_the_entries_that_it_selects(
    targets: ModifyTargets, kind: int, match: dict[str, Any], fields: dict[str, int], after: list[int]
) -> None:
    targets.act(command(kind, match, **fields))
    assert left(targets) == after


def test_a_delete_by_port_sees_the_ports_of_an_earlier_modify(targets: ModifyTargets) -> None:
    targets.act(command(MODIFY_STRICT, WEB, port=7, priority=5))
    targets.act(command(DELETE, {}, table_id=of.OFPTT_ALL, out_port=1))
    assert left(targets) == [1, 2]


def test_an_added_entry_is_as_it_was_written(targets: ModifyTargets) -> None:
    targets.act(command(ADD, WEB, port=4, priority=9, cookie=8, idle_timeout=3, hard_timeout=5))
    (flow,) = targets.changed_by(command(MODIFY_STRICT, WEB, priority=9))
    assert (flow.table_id, flow.priority, flow.cookie, flow.age_s) == (0, 9, 8, 0.0)
    assert (flow.idle_timeout_s, flow.hard_timeout_s) == (3, 5)
    assert flow.instructions == command(ADD, WEB, port=4).instructions


def test_a_modify_is_refused_if_the_entries_are_unknown(targets: ModifyTargets) -> None:
    targets.failure = "Open vSwitch does not report its flow entries"
    with pytest.raises(Refused, match="does not report its flow entries"):
        targets.changed_by(command(MODIFY, {}))
