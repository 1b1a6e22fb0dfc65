"""A controller reads an entry back as it wrote it, and neither part of an entry outlives the other."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from openflow_ext import wire
from openflow_ext.switch.dataplane.rules import WindowOp
from openflow_ext.switch.openflow import flow_stats
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.flow_mods import FlowMod
from tests.support.agent.switch_bench import Bench, Controller, built_bench, datapaths
from tests.support.openflow.bundles import COMMIT, OPEN, adding, control
from tests.support.openflow.flow_mods import (
    APPLY,
    TCP4,
    WRITE,
    datapath,
    ext,
    flow_mod,
    instruction,
    ofproto,
    output,
    parsed,
    parser,
    serialized,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside_others

SET, MOD = ext(wire.SetWindow(1536)), ext(wire.ModWindow(30000, 5))
TCP6 = {"eth_type": 0x86DD, "ip_proto": 6}
EVERYTHING_DELETED = flow_mod({}, command=ofproto.OFPFC_DELETE, table_id=of.OFPTT_ALL)


@pytest.fixture(scope="module", params=datapaths())
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """One bridge for all tests, because the kernel takes more than a second to verify an agent's programs."""
    with built_bench(request.param) as bench:
        bench.ovs.vsctl("set", "bridge", bench.bridge, "protocols=OpenFlow13,OpenFlow15")
        yield bench


@pytest.fixture(scope="module", params=[of.OFP13, of.OFP15], ids=["1.3", "1.5"])
def controller(request: pytest.FixtureRequest, bench: Bench) -> Iterator[Controller]:
    """A controller with a running agent, for all tests of a version."""
    with closing(Controller(request.param)) as controller:
        bench.ready_agent(controller)
        controller.accept()
        yield controller
    bench.agents[-1].end(signal.SIGKILL)


@pytest.fixture
def joined(bench: Bench, controller: Controller) -> Controller:
    """The controller of a switch without entries."""
    controller.send(bytes([controller.version]) + EVERYTHING_DELETED[1:])
    controller.barrier()
    assert bench.rules() == []
    assert bench.ovs.flows(bench.bridge) == []
    return controller


def write(controller: Controller, *messages: bytes) -> None:
    """Send FLOW_MODs, in the session's version: 1.3 and 1.5 write these alike."""
    for message in messages:
        controller.send(bytes([controller.version]) + message[1:])
    assert controller.barrier() == []


def shown(controller: Controller) -> dict[int, bytes]:
    """The instructions of every entry, by priority, as the controller reads them."""
    return {
        flow.priority: flow.instructions for reply in controller.flows() for flow in flow_stats.flows(reply)
    }


def instructions(message: bytes) -> bytes:
    return FlowMod.parse(message).instructions


MATCHES: list[dict[str, Any]] = [
    TCP4,
    TCP6,
    {**TCP4, "ipv4_src": ("10.77.0.0", "255.255.0.0"), "ipv4_dst": "10.77.0.1", "tcp_dst": 80},
    {**TCP4, "ipv4_src": "10.1.1.1", "ipv4_dst": "10.77.0.1", "tcp_src": 80, "tcp_dst": 40000},
    {**TCP6, "ipv6_src": ("2001:db8::", "ffff:ffff::"), "tcp_src": 9},
    {**TCP4, "in_port": 1},
    {**TCP4, "tcp_flags": (2, 0x12)},
]


def test_entries_of_every_match_and_mix_of_actions_are_read_back(bench: Bench, joined: Controller) -> None:
    written = [
        flow_mod(match, [SET, output(2)], priority=100 + n, cookie=n) for n, match in enumerate(MATCHES)
    ]
    both = [instruction(APPLY, output(1), MOD, output(2)), instruction(WRITE, SET)]
    written.append(flow_mod(TCP4, instructions=both[:1], priority=200))
    written.append(flow_mod(TCP4, instructions=both[1:], priority=201))
    goto = [instruction(APPLY, MOD), parser.OFPInstructionGotoTable(3)]
    written.append(flow_mod(TCP4, instructions=goto, priority=202))
    write(joined, *written, flow_mod({}, [output(1)], priority=7))
    assert shown(joined) == {
        7: instructions(flow_mod({}, [output(1)])),
        **{FlowMod.parse(message).priority: instructions(message) for message in written},
    }
    before = bench.rules()
    assert len(before) == len(written)
    joined.accept()
    assert joined.barrier() == []
    wait_until(lambda: joined.flows(), "the agent has compared the entries")
    assert bench.rules() == before


def test_a_reply_that_outgrows_a_message_is_divided(bench: Bench, joined: Controller) -> None:
    match = {**TCP4, "ipv4_src": "10.1.1.1", "ipv4_dst": "10.1.1.2", "tcp_src": 80}
    many = [flow_mod({**match, "tcp_dst": n + 1}, [SET, output(2)], priority=n) for n in range(700)]
    write(joined, *many)
    replies = joined.flows()
    assert len(replies) > 1
    assert all(reply[11] == of.OFPMPF_MORE for reply in replies[:-1])
    assert shown(joined) == {n: instructions(many[0]) for n in range(700)}


def test_an_entry_that_times_out_in_open_vswitch_ends_in_the_agent(bench: Bench, joined: Controller) -> None:
    flags = {"idle_timeout": 1, "flags": ofproto.OFPFF_SEND_FLOW_REM}
    write(joined, flow_mod(TCP4, [SET, output(2)], priority=5, **flags))
    removed = joined.next_of(of.OFPT_FLOW_REMOVED)
    assert flow_stats.removed(removed)[0].priority == 5
    assert bench.rules() == []


def test_modify_changes_entries_that_were_written_without_extension_actions(
    bench: Bench, joined: Controller
) -> None:
    write(
        joined,
        flow_mod({**TCP4, "tcp_dst": 80}, [output(2)], priority=5, cookie=9, idle_timeout=60),
        flow_mod({**TCP4, "tcp_dst": 81}, [SET, output(2)], priority=6),
        flow_mod({}, [output(1)], priority=1),
    )
    modify = flow_mod(TCP4, [MOD, output(1)], command=ofproto.OFPFC_MODIFY)
    write(joined, modify)
    assert {rule.priority: rule.window_op for rule in bench.rules()} == {
        5: WindowOp.MOD_WINDOW,
        6: WindowOp.MOD_WINDOW,
    }
    ours = next(rule for rule in bench.rules() if rule.priority == 5)
    assert (ours.cookie, ours.idle_timeout_s) == (9, 60)
    assert shown(joined)[5] == shown(joined)[6] == instructions(modify)
    assert "actions=output:1" in "".join(bench.ovs.flows(bench.bridge))
    strict = {"command": ofproto.OFPFC_MODIFY_STRICT, "priority": 5}
    write(joined, flow_mod({**TCP4, "tcp_dst": 80}, [SET], **strict), flow_mod(TCP4, [SET], **strict))
    assert {rule.priority: rule.window_op for rule in bench.rules()} == {
        5: WindowOp.SET_WINDOW,
        6: WindowOp.MOD_WINDOW,
    }


def test_modify_of_an_entry_that_cannot_be_extended_changes_nothing(bench: Bench, joined: Controller) -> None:
    write(joined, flow_mod({}, [output(1)], priority=1))
    modify = flow_mod({}, [MOD, output(2)], command=ofproto.OFPFC_MODIFY, xid=9)
    answer = joined.ask(bytes([joined.version]) + modify[1:])
    assert (answer[1], answer[9]) == (of.OFPT_ERROR, of.OFPET_BAD_MATCH)
    assert shown(joined) == {1: instructions(flow_mod({}, [output(1)]))}
    assert bench.rules() == []


def test_rules_end_when_open_vswitch_restarts_without_its_entries(bench: Bench, joined: Controller) -> None:
    write(joined, flow_mod(TCP4, [SET, output(2)], priority=5))
    assert bench.rules()
    bench.ovs.stop("ovs-vswitchd")
    bench.ovs.start_vswitchd()
    joined.accept()
    wait_until(lambda: bench.rules() == [], "the entries are gone here too")


def test_an_adopted_entry_is_read_back_and_deleted_by_its_port(bench: Bench, joined: Controller) -> None:
    whole = flow_mod(TCP4, [SET, output(2)], priority=5)
    write(joined, whole)
    bench.agents[-1].end(signal.SIGKILL)
    bench.ready_agent(joined)
    joined.accept()
    assert shown(joined) == {5: instructions(whole)}
    delete = {"command": ofproto.OFPFC_DELETE, "table_id": ofproto.OFPTT_ALL}
    write(joined, flow_mod({}, out_port=1, **delete))
    assert len(bench.rules()) == 1
    write(joined, flow_mod({}, out_port=2, **delete))
    assert bench.rules() == []
    assert bench.ovs.flows(bench.bridge) == []


@pytest.mark.parametrize("controller", [of.OFP13], indirect=True)
def test_deleting_a_group_deletes_its_entries(bench: Bench, joined: Controller) -> None:
    buckets = [parser.OFPBucket(actions=[output(2)])]
    group = (ofproto.OFPGT_INDIRECT, 77)
    write(joined, serialized(parser.OFPGroupMod(datapath, ofproto.OFPGC_ADD, *group, buckets)))
    write(joined, flow_mod(TCP4, [SET, parser.OFPActionGroup(77)], priority=5))
    assert len(bench.rules()) == 1
    write(joined, serialized(parser.OFPGroupMod(datapath, ofproto.OFPGC_DELETE, *group, [])))
    wait_until(lambda: bench.rules() == [], "the entry is gone with its group")


def test_a_match_on_the_window_is_refused(bench: Bench, joined: Controller) -> None:
    field = wire.encode_field(wire.TcpWindow(1000))
    for actions in ([SET, output(2)], [output(2)]):
        whole = with_field(flow_mod(TCP4, actions, xid=8), field)
        answer = joined.ask(bytes([joined.version]) + whole[1:])
        assert answer[1] == of.OFPT_ERROR
        assert answer[8:12] == bytes([0, of.OFPET_BAD_MATCH, 0, of.OFPBMC_BAD_FIELD])
    assert bench.rules() == []
    assert bench.ovs.flows(bench.bridge) == []


def with_field(message: bytes, field: bytes) -> bytes:
    """A FLOW_MOD with one more OXM field in its match."""
    at = FlowMod.MATCH_AT
    length = int.from_bytes(message[at + 2 : at + 4], "big")
    match = message[at : at + 2] + (length + len(field)).to_bytes(2, "big") + message[at + 4 : at + length]
    match += field
    whole = message[:at] + match + bytes(-len(match) % 8) + FlowMod.parse(message).instructions
    return whole[:2] + len(whole).to_bytes(2, "big") + whole[4:]


@pytest.mark.parametrize("controller", [of.OFP13], indirect=True)
def test_extension_actions_outside_of_entries_are_refused(joined: Controller) -> None:
    bucket = parser.OFPBucket(actions=[SET, output(2)])
    add = parser.OFPGroupMod(datapath, ofproto.OFPGC_ADD, ofproto.OFPGT_INDIRECT, 7, [bucket])
    error = parsed(joined.ask(serialized(add, xid=9)))
    assert (error.type, error.code) == (ofproto.OFPET_BAD_ACTION, ofproto.OFPBAC_BAD_EXPERIMENTER)


def test_a_bundle_changes_both_parts_when_it_is_committed(bench: Bench, joined: Controller) -> None:
    write(joined, flow_mod(TCP4, [SET, output(2)], priority=5), flow_mod(TCP4, [SET, output(2)], priority=6))
    plain = flow_mod(TCP4, [output(1)], priority=5, xid=9)
    whole = flow_mod(TCP4, [SET, output(1)], priority=7, xid=9)

    def ask(kind: int) -> bytes:
        return joined.ask(control(kind, joined.version))

    assert ask(OPEN)[1] != of.OFPT_ERROR
    joined.send(adding(plain, joined.version))
    joined.send(adding(whole, joined.version))
    assert joined.barrier() == []
    assert sorted(rule.priority for rule in bench.rules()) == [5, 6]
    assert ask(COMMIT)[1] != of.OFPT_ERROR
    assert joined.barrier() == []
    assert sorted(rule.priority for rule in bench.rules()) == [6, 7]
    assert shown(joined)[5] == instructions(plain)
    assert shown(joined)[7] == instructions(whole)


def test_a_bundle_that_open_vswitch_refuses_changes_neither_part(bench: Bench, joined: Controller) -> None:
    whole = flow_mod(TCP4, [SET, output(1)], priority=7, xid=9)
    to_a_group_that_is_not_there = flow_mod(TCP4, [parser.OFPActionGroup(99)], priority=8, xid=9)
    joined.ask(control(OPEN, joined.version))
    joined.send(adding(whole, joined.version))
    joined.send(adding(to_a_group_that_is_not_there, joined.version))
    assert joined.barrier() == []
    joined.send(control(COMMIT, joined.version))
    assert joined.barrier() != []
    assert bench.rules() == []
    assert shown(joined) == {}


def test_a_message_that_open_vswitch_refuses_in_a_bundle_has_no_effect(
    bench: Bench, joined: Controller
) -> None:
    good = flow_mod(TCP4, [SET, output(1)], priority=7, xid=9)
    backwards = [instruction(APPLY, SET, output(1)), parser.OFPInstructionGotoTable(0)]
    bad = flow_mod(TCP4, instructions=backwards, table_id=3, priority=8, xid=10)
    joined.ask(control(OPEN, joined.version))
    joined.send(adding(good, joined.version))
    joined.send(adding(bad, joined.version, xid=10) + control(COMMIT, joined.version))
    assert [message[1] == of.OFPT_ERROR for message in joined.barrier()] == [True, False]
    assert [rule.priority for rule in bench.rules()] == [7]
    assert set(shown(joined)) == {7}


KEPT = [
    flow_mod({"eth_type": 0x0800, "ip_proto": 17, **more}, table_id=table)
    for table in (0, 1)
    for more in ({}, {"udp_dst": 9})
]
"""Entries with the masks of all others. In a bundle, Open vSwitch 3.1 applies a non-strict MODIFY or DELETE
only to entries whose mask existed before the bundle."""


def commands(seed: int) -> list[bytes]:
    """Random FLOW_MODs of all kinds on few entries, so that many match; some have extension actions."""
    dice = random.Random(seed)
    matches = [TCP4, {**TCP4, "tcp_dst": 80}, {**TCP4, "tcp_dst": 81}, {**TCP6, "tcp_dst": 80}]
    kinds = [ofproto.OFPFC_ADD, ofproto.OFPFC_ADD, ofproto.OFPFC_MODIFY, ofproto.OFPFC_MODIFY_STRICT]
    kinds += [ofproto.OFPFC_MODIFY, ofproto.OFPFC_DELETE, ofproto.OFPFC_DELETE_STRICT]

    def one() -> bytes:
        kind, match = dice.choice(kinds), dice.choice(matches)
        deletes = kind in (ofproto.OFPFC_DELETE, ofproto.OFPFC_DELETE_STRICT)
        actions = [] if deletes else [output(dice.choice((1, 2)))]
        if not deletes and dice.random() < 0.6:
            actions.insert(0, dice.choice((SET, MOD)))
        fields: dict[str, int] = {"priority": 1 + matches.index(match), "table_id": dice.choice((0, 0, 1))}
        if kind == ofproto.OFPFC_ADD:
            fields["cookie"] = dice.choice((1, 2))
        else:
            fields |= dice.choice([{}, {}, {"cookie": 1, "cookie_mask": 3}])
        if deletes:
            fields |= dice.choice([{}, {"out_port": 1}])
        return flow_mod(match, actions, command=kind, xid=9, **fields)

    return [one() for _ in range(20)]


def test_a_bundle_has_the_effect_of_its_commands_one_by_one(bench: Bench, joined: Controller) -> None:
    def outcome() -> tuple[list[tuple[int, int, int, bytes]], list[str]]:
        told = [flow for reply in joined.flows() for flow in flow_stats.flows(reply)]
        return (
            sorted((flow.table_id, flow.priority, flow.cookie, flow.instructions) for flow in told),
            sorted(map(str, bench.rules())),
        )

    lengths = set()
    for seed in range(12):
        before, within = [*KEPT, *commands(2 * seed)], commands(2 * seed + 1)
        write(joined, EVERYTHING_DELETED, *before, *within)
        one_by_one = outcome()
        write(joined, EVERYTHING_DELETED, *before)
        joined.ask(control(OPEN, joined.version))
        for message in within:
            joined.send(adding(message, joined.version))
        assert joined.ask(control(COMMIT, joined.version))[1] != of.OFPT_ERROR
        assert joined.barrier() == []
        assert outcome() == one_by_one, seed
        lengths.add(len(one_by_one[1]))
    assert len(lengths) > 2, "the commands leave different numbers of rules"
