"""Flow entries over real sockets: MODIFYs, flow statistics, bundles, lost entries, slaves."""

from __future__ import annotations

import struct

import pytest

from openflow_ext import wire
from openflow_ext.switch.openflow import flow_stats
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.flow_mods import FlowMod
from tests.support.agent.proxy_bench import (
    FEATURES,
    Bench,
    End,
    Play,
    barrier,
    echo,
    port_descriptions,
)
from tests.support.openflow.bundles import (
    COMMIT,
    COMMITTED,
    DISCARD,
    DISCARDED,
    MASTER,
    OPEN,
    ROLE_REPLY,
    ROLE_REQUEST,
    SLAVE,
    adding,
    bundle,
    control,
    role,
)
from tests.support.openflow.flow_mods import TCP4, ext, flow_mod, ofproto, output, parsed
from tests.support.openflow.flow_stats import MATCH, entry_13, entry_15, reply

SET = ext(wire.SetWindow())
WHOLE = flow_mod(TCP4, [SET, output(3)], priority=5)
PLAIN = flow_mod(TCP4, [output(3)], priority=5)
MODIFY = flow_mod(actions=[SET, output(3)], command=ofproto.OFPFC_MODIFY, table_id=3, xid=77)


async def own_request(switch: End) -> int:
    """The xid of the agent's own request for flow entries, the next message to Open vSwitch."""
    request = await switch.message()
    assert (request[1], request[8:10]) == (of.OFPT_MULTIPART_REQUEST, b"\0\x01")
    return of.HEADER.unpack_from(request)[3]


def answer(xid: int, *entries: bytes, more: bool = False, version: int = 4) -> bytes:
    message = reply(version, *entries, more=more)
    return message[:4] + xid.to_bytes(4, "big") + message[8:]


def test_messages_behind_a_modify_wait_for_the_entries_that_it_selects(play: Play) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join()
        controller.send(MODIFY, barrier(78), MODIFY, echo(79))
        xid = await own_request(switch)
        switch.send(echo(1))
        assert await controller.message() == echo(1)
        assert not bench.plane.held
        switch.send(answer(xid, entry_13(5), more=True), answer(xid, entry_13(6)))
        rest = flow_mod(actions=[output(3)], command=ofproto.OFPFC_MODIFY, table_id=3, xid=77)
        assert await switch.message() == rest
        assert sorted(rule.priority for rule in bench.plane.held.values()) == [5, 6]
        assert await switch.message() == barrier(78)
        xid = await own_request(switch)
        switch.send(of.error(flow_stats.request(4, xid), 1, 1))
        error = parsed(await controller.message())
        assert (error.type, error.xid) == (ofproto.OFPET_FLOW_MOD_FAILED, 77)
        assert await switch.message() == echo(79)

    play(script)


def test_a_modify_that_open_vswitch_refuses_is_undone(play: Play) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join()
        controller.send(MODIFY)
        switch.send(answer(await own_request(switch), entry_13(5)))
        sent = await switch.message()
        assert len(bench.plane.held) == 1
        switch.send(of.error(sent, ofproto.OFPET_BAD_ACTION, ofproto.OFPBAC_BAD_OUT_PORT))
        assert bytes(parsed(await controller.message()).data) == MODIFY[:64]
        assert not bench.plane.held

    play(script)


def test_a_session_can_end_while_it_holds_messages(play: Play) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join()
        controller.send(MODIFY, echo(2))
        await own_request(switch)
        controller.writer.close()
        switch.writer.close()
        assert await controller.ends()

    play(script)


def test_entries_that_open_vswitch_lost_are_removed_at_reconnection(play: Play) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join()
        for priority in (5, 6, 7):
            controller.send(flow_mod(actions=[SET, output(3)], priority=priority, table_id=3))
            await switch.message()
        for entry in list(bench.bridge.table)[:2]:
            object.__setattr__(entry, "since", -100.0)
        again, other = await bench.join()
        again.send(FEATURES)
        assert await other.message() == FEATURES
        ports = await again.message()
        again.send(port_descriptions(of.HEADER.unpack_from(ports)[3]))
        again.send(answer(await own_request(again), entry_13(6)), echo(9))
        assert await other.message() == echo(9)
        assert sorted(rule.priority for rule in bench.plane.held.values()) == [6, 7]

    play(script)


def test_an_error_instead_of_the_entries_removes_none_and_ends_no_session(play: Play) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join()
        controller.send(flow_mod(actions=[SET, output(3)], table_id=3))
        await switch.message()
        object.__setattr__(next(iter(bench.bridge.table)), "since", -100.0)
        again, other = await bench.join()
        again.send(FEATURES)
        assert await other.message() == FEATURES
        again.send(port_descriptions(of.HEADER.unpack_from(await again.message())[3]))
        again.send(of.error(flow_stats.request(4, await own_request(again)), 1, 1), echo(9))
        assert await other.message() == echo(9)
        assert len(bench.plane.held) == 1

    play(script)


def removal(reason: int, age_ms: int) -> bytes:
    """FLOW_REMOVED of an entry that Open vSwitch had for so long."""
    body = struct.pack("!QHBBIIHHQQ", 0, 5, reason, 3, 0, age_ms * 1_000_000, 0, 0, 1, 2) + MATCH
    return of.HEADER.pack(of.OFP13, of.OFPT_FLOW_REMOVED, 8 + len(body), 0) + body


@pytest.mark.parametrize(("entries", "left"), [((entry_13(5),), 1), ((), 0)])
def test_an_entry_that_is_deleted_and_added_at_once_keeps_its_rule(
    play: Play, monkeypatch: pytest.MonkeyPatch, entries: tuple[bytes, ...], left: int
) -> None:
    """FLOW_REMOVED arrives after the second entry was added, and both entries are equally young.

    So the agent asks Open vSwitch. Only an entry that it does not report loses its rule.
    """
    monkeypatch.setattr("openflow_ext.switch.openflow.flow_entries.SETTLED_S", 0.0)

    async def script(bench: Bench) -> None:
        switch, controller = await bench.join()
        add = flow_mod(TCP4, [SET, output(3)], priority=5, table_id=3)
        delete = flow_mod(TCP4, command=ofproto.OFPFC_DELETE_STRICT, priority=5, table_id=3)
        for message in (add, delete, add):
            controller.send(message)
            await switch.message()
        switch.send(removal(of.OFPRR_DELETE, age_ms=1))
        assert (await controller.message())[1] == of.OFPT_FLOW_REMOVED
        assert len(bench.plane.held) == 1
        (session,) = bench.proxy.sessions
        session.send_due_request()
        switch.send(answer(await own_request(switch), *entries), echo(9))
        assert await controller.message() == echo(9)
        assert len(bench.plane.held) == left

    play(script)


def test_flow_statistics_show_both_parts_of_an_entry(play: Play) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join()
        whole = flow_mod(actions=[SET, output(3)], priority=5, table_id=3)
        controller.send(whole)
        await switch.message()
        switch.send(reply(4, entry_13(5), entry_13(6)))
        ours, others = flow_stats.flows(await controller.message())
        assert ours.instructions == FlowMod.parse(whole).instructions
        assert others.with_instructions(others.instructions) == entry_13(6)
        malformed = reply(4, entry_13(5))[:-4]
        malformed = malformed[:2] + len(malformed).to_bytes(2, "big") + malformed[4:]
        switch.send(malformed)
        assert await controller.message() == malformed

    play(script)


def test_a_slave_session_changes_nothing(play: Play) -> None:
    config, other = (
        wire.encode_message(wire.PortConfig(1, wire.PortConfigFlags.WINDOW, common_rtt_us=rtt_us), xid=3)
        for rtt_us in (9, 77)
    )

    async def is_refused(ends: tuple[End, End]) -> bool:
        ends[1].send(config)
        message = await ends[1].message()
        return message[1] == of.OFPT_ERROR and message[8:12] == b"\0\x01\0\x0a"

    async def become(ends: tuple[End, End], value: int) -> None:
        ends[1].send(role(ROLE_REQUEST, value))
        assert await ends[0].message() == role(ROLE_REQUEST, value)
        ends[0].send(role(ROLE_REPLY, value))
        assert await ends[1].message() == role(ROLE_REPLY, value)

    async def script(bench: Bench) -> None:
        first, second = await bench.join(), await bench.join()
        assert not await is_refused(first)
        await become(first, MASTER)
        await become(second, SLAVE)
        assert [await is_refused(first), await is_refused(second)] == [False, True]
        before = dict(bench.plane.held), dict(bench.plane.configured)
        second[1].send(role(ROLE_REQUEST, MASTER), other, WHOLE, barrier(5))
        assert await second[0].message() == role(ROLE_REQUEST, MASTER)
        second[0].send(echo(1))
        assert await second[1].message() == echo(1)
        assert (bench.plane.held, bench.plane.configured) == before
        second[0].send(of.error(role(ROLE_REQUEST, MASTER), 11, 0))
        assert (await second[1].message())[8:10] == b"\0\x0b"
        assert (await second[1].message())[8:12] == b"\0\x01\0\x0a"
        assert [await second[0].message(), await second[0].message()] == [WHOLE, barrier(5)]
        assert (bench.plane.held, bench.plane.configured) == before
        assert await is_refused(second)
        second[1].send(role(ROLE_REQUEST, MASTER))
        assert await second[0].message() == role(ROLE_REQUEST, MASTER)
        first[1].send(other, WHOLE, barrier(6))  # Open vSwitch may just have made the second one the MASTER
        first[0].send(echo(2))
        assert await first[1].message() == echo(2)
        assert (bench.plane.held, bench.plane.configured) == before
        second[0].send(role(ROLE_REPLY, MASTER))
        assert await second[1].message() == role(ROLE_REPLY, MASTER)
        assert (await first[1].message())[8:12] == b"\0\x01\0\x0a"
        assert [await first[0].message(), await first[0].message()] == [WHOLE, barrier(6)]
        assert (bench.plane.held, bench.plane.configured) == before
        assert [await is_refused(first), await is_refused(second)] == [True, False]

    play(script)


def test_a_master_goes_on_when_another_session_fails_to_replace_it(play: Play) -> None:
    async def script(bench: Bench) -> None:
        (switch, controller), (others, rival) = await bench.join(), await bench.join()
        controller.send(role(ROLE_REQUEST, MASTER))
        await switch.message()
        switch.send(role(ROLE_REPLY, MASTER))
        await controller.message()
        for end in (lambda: others.send(of.error(role(ROLE_REQUEST, MASTER), 11, 0)), others.writer.close):
            rival.send(role(ROLE_REQUEST, MASTER))
            await others.message()
            controller.send(WHOLE, barrier(7))
            switch.send(echo(3))
            assert await controller.message() == echo(3)
            assert len(bench.plane.held) == 0
            end()
            assert [await switch.message(), await switch.message()] == [PLAIN, barrier(7)]
            assert len(bench.plane.held) == 1
            bench.plane.held.clear()

    play(script)


def test_an_error_about_another_message_does_not_answer_a_role_request(play: Play) -> None:
    """The controller gives all its messages one xid."""

    async def script(bench: Bench) -> None:
        (switch, controller), (others, rival) = await bench.join(), await bench.join()
        controller.send(role(ROLE_REQUEST, MASTER))
        await switch.message()
        switch.send(role(ROLE_REPLY, MASTER))
        await controller.message()
        rival.send(barrier(4), role(ROLE_REQUEST, MASTER), barrier(5))
        assert [await others.message(), await others.message()] == [barrier(4), role(ROLE_REQUEST, MASTER)]
        controller.send(WHOLE)
        others.send(of.error(barrier(4), 1, 1), echo(1))
        assert [await rival.message(), await rival.message()] == [of.error(barrier(4), 1, 1), echo(1)]
        switch.send(echo(2))
        assert await controller.message() == echo(2)
        assert not bench.plane.held, "Open vSwitch may just have made the rival the MASTER"
        others.send(role(ROLE_REPLY, MASTER))
        assert await others.message() == barrier(5)
        assert await switch.message() == WHOLE
        assert not bench.plane.held

    play(script)


class Ends:
    """Both ends of a session."""

    def __init__(self, switch: End, controller: End) -> None:
        self.switch = switch
        self.controller = controller

    async def passes(self, *messages: bytes) -> None:
        """The controller's messages reach the switch unchanged."""
        for message in messages:
            await self.becomes(message, message)

    async def becomes(self, sent: bytes, received: bytes) -> None:
        self.controller.send(sent)
        assert await self.switch.message() == received

    async def commits(self, version: int, xid: int = 9, refused: bytes = b"", becomes: bytes = b"") -> None:
        """The controller commits a bundle of which Open vSwitch has ``refused`` messages."""
        self.controller.send(control(COMMIT, version, xid))
        request = await self.switch.message()
        assert (request[1], request[8:10]) == (of.OFPT_MULTIPART_REQUEST, b"\0\0")
        if refused:
            await self.hears(refused)
        description = (
            of.HEADER.pack(version, of.OFPT_MULTIPART_REPLY, 1072, 0)[:4] + request[4:8] + bytes(1064)
        )
        self.switch.send(description)
        assert await self.switch.message() == (becomes or control(COMMIT, version, xid))

    async def hears(self, *messages: bytes) -> None:
        """The switch's messages reach the controller unchanged."""
        self.switch.send(*messages)
        for message in messages:
            assert await self.controller.message() == message


@pytest.mark.parametrize("version", [4, 5, 6])
def test_bundles_act_when_they_are_committed(play: Play, version: int) -> None:
    async def script(bench: Bench) -> None:
        ends = Ends(*await bench.join())
        await ends.passes(control(OPEN, version))
        await ends.becomes(adding(WHOLE, version), adding(PLAIN, version))
        assert not bench.plane.held
        await ends.commits(version)
        assert len(bench.plane.held) == 1
        await ends.passes(adding(PLAIN, version), control(DISCARD, version))
        await ends.commits(version)
        assert len(bench.plane.held) == 1
        await ends.passes(adding(PLAIN, version, xid=10))
        refusal = of.error(adding(PLAIN, version, xid=10), 1, 1)
        await ends.hears(refusal)
        await ends.commits(version)
        assert len(bench.plane.held) == 1
        await ends.passes(adding(PLAIN, version, xid=10))
        await ends.commits(version, refused=refusal)
        assert len(bench.plane.held) == 1
        await ends.passes(adding(PLAIN, version), bundle(33, bytes(2), version))
        await ends.commits(version)
        assert not bench.plane.held
        await ends.passes(adding(PLAIN, version), control(COMMIT, version))

    play(script)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_a_bundle_that_is_opened_again_is_empty(play: Play, version: int) -> None:
    """Open vSwitch ends a bundle after a timeout, of which the agent learns nothing."""

    async def script(bench: Bench) -> None:
        ends = Ends(*await bench.join())
        await ends.passes(control(OPEN, version))
        await ends.becomes(adding(WHOLE, version), adding(PLAIN, version))
        await ends.passes(control(OPEN, version), adding(PLAIN, version), control(COMMIT, version))
        assert not bench.plane.held

    play(script)


def failed(about: bytes, version: int, code: int) -> bytes:
    """OFPET_BUNDLE_FAILED in the form of the OpenFlow version."""
    if version > of.OFP13:
        return of.error(about, of.OFPET_BUNDLE_FAILED, code)
    standard = of.error(about, of.OFPET_EXPERIMENTER, 2300 + code)
    return of.resized(standard[:12] + bytes.fromhex("4f4e4600") + standard[12:])


@pytest.mark.parametrize("version", [4, 5, 6])
def test_a_commit_that_open_vswitch_refuses_is_undone(play: Play, version: int) -> None:
    async def script(bench: Bench) -> None:
        ends = Ends(*await bench.join())
        commit = control(COMMIT, version, xid=11)
        await ends.becomes(adding(WHOLE, version), adding(PLAIN, version))
        await ends.commits(version, xid=11)
        inner, rest = (adding(one, version)[len(bundle(34, bytes(8), version)) :] for one in (WHOLE, PLAIN))
        ends.switch.send(of.error(rest, 5, 1))
        assert await ends.controller.message() == of.error(inner, 5, 1)
        await ends.hears(failed(commit, version, 13))
        assert not bench.plane.held

    play(script)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_a_refusal_concerns_the_message_that_it_quotes(play: Play, version: int) -> None:
    """The controller gives all its messages one xid."""
    others = [flow_mod(TCP4, [*actions, output(3)], priority=6) for actions in ([SET], [])]

    async def script(bench: Bench) -> None:
        ends = Ends(*await bench.join())
        await ends.becomes(adding(WHOLE, version), adding(PLAIN, version))
        whole, plain = (adding(other, version) for other in others)
        await ends.becomes(whole, plain)
        await ends.hears(of.error(barrier(9), 1, 1))
        ends.switch.send(of.error(plain, 5, 1))
        assert await ends.controller.message() == of.error(whole, 5, 1)
        await ends.commits(version)
        assert [rule.priority for rule in bench.plane.held.values()] == [5]

    play(script)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_a_bundle_is_discarded_if_a_refusal_may_concern_several_messages(play: Play, version: int) -> None:
    """The error quotes 64 bytes, which end before the match."""
    twin = flow_mod({"eth_type": 0x86DD, "ip_proto": 6}, [SET, output(3)], priority=5)

    async def script(bench: Bench) -> None:
        ends = Ends(*await bench.join())
        await ends.becomes(adding(WHOLE, version), adding(PLAIN, version))
        ends.controller.send(adding(twin, version))
        ends.switch.send(of.error(await ends.switch.message(), 5, 1))
        await ends.controller.message()
        await ends.commits(version, xid=12, becomes=control(DISCARD, version, xid=12))
        assert await ends.controller.message() == failed(control(COMMIT, version, xid=12), version, 13)
        assert not bench.plane.held

    play(script)


AFTER_A_DELETE_AND_AN_ADD = (
    flow_mod(TCP4, command=ofproto.OFPFC_DELETE_STRICT, priority=5, table_id=3),
    flow_mod(TCP4, [output(1)], priority=8, table_id=3),
    MODIFY,
)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_a_modify_in_a_bundle_selects_entries_as_the_bundle_leaves_them(play: Play, version: int) -> None:
    strict = flow_mod(actions=[SET], command=ofproto.OFPFC_MODIFY_STRICT, table_id=3, priority=7)
    entry = entry_15 if version == of.OFP15 else entry_13

    async def script(bench: Bench) -> None:
        ends = Ends(*await bench.join())
        for message in (*AFTER_A_DELETE_AND_AN_ADD, strict):
            ends.controller.send(adding(message, version))
            await ends.switch.message()
        ends.controller.send(control(COMMIT, version), echo(2))
        first, second = await own_request(ends.switch), await own_request(ends.switch)
        ends.switch.send(answer(first, entry(5), more=True, version=version))
        ends.switch.send(answer(first, entry(6), version=version))
        await ends.hears(echo(1))
        assert not bench.plane.held
        ends.switch.send(answer(second, entry(5), entry(6), version=version))
        assert await ends.switch.message() == control(COMMIT, version)
        assert await ends.switch.message() == echo(2)
        assert sorted(rule.priority for rule in bench.plane.held.values()) == [6, 8]

    play(script)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_a_bundle_is_discarded_if_the_entries_of_its_modify_are_unknown(play: Play, version: int) -> None:
    async def script(bench: Bench) -> None:
        ends = Ends(*await bench.join())
        for message in (WHOLE, MODIFY):
            ends.controller.send(adding(message, version, xid=10))
            await ends.switch.message()
        commit = control(COMMIT, version, xid=12)
        ends.controller.send(commit)
        xid = await own_request(ends.switch)
        ends.switch.send(of.error(flow_stats.request(version, xid), 1, 1))
        error = await ends.controller.message()
        assert (error[4:8], error[8:12]) == (bytes([0, 0, 0, 10]), bytes([0, 5, 0, of.OFPFMFC_UNKNOWN]))
        assert await ends.controller.message() == failed(commit, version, 13)
        assert await ends.switch.message() == control(DISCARD, version, xid=12)
        assert not bench.plane.held

    play(script)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_entries_are_compared_after_a_bundle_that_removes_groups(play: Play, version: int) -> None:
    group_delete = of.HEADER.pack(version, of.OFPT_GROUP_MOD, 16, 9) + bytes.fromhex("0002000000000001")

    async def script(bench: Bench) -> None:
        ends = Ends(*await bench.join())
        await ends.becomes(adding(WHOLE, version), adding(PLAIN, version))
        await ends.passes(adding(group_delete, version))
        await ends.commits(version)
        object.__setattr__(next(iter(bench.bridge.table)), "since", -100.0)
        ends.switch.send(answer(await own_request(ends.switch), version=version))
        await ends.hears(echo(1))
        assert not bench.plane.held

    play(script)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_a_flow_mod_that_cannot_be_carried_out_never_enters_a_bundle(play: Play, version: int) -> None:
    commands = ofproto.OFPFC_ADD, ofproto.OFPFC_MODIFY, ofproto.OFPFC_MODIFY_STRICT
    too_many = [adding(flow_mod(TCP4, [SET, SET], command=command), version) for command in commands]

    async def script(bench: Bench) -> None:
        ends = Ends(*await bench.join())
        for message in too_many:
            ends.controller.send(message)
            refusal = of.error(message, of.OFPET_BAD_ACTION, of.OFPBAC_TOO_MANY)
            assert await ends.controller.message() == refusal
        await ends.passes(control(COMMIT, version))
        assert not bench.plane.held

    play(script)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_a_bundle_that_does_not_fit_is_discarded_whole(play: Play, version: int) -> None:
    other = flow_mod(TCP4, [SET, output(3)], priority=6)

    async def script(bench: Bench) -> None:
        ends = Ends(*await bench.join())
        bench.plane.room = 1
        commit = control(COMMIT, version, xid=12)
        for message, xid in ((WHOLE, 10), (other, 11)):
            ends.controller.send(adding(message, version, xid))
            await ends.switch.message()
        await ends.commits(version, xid=12, becomes=control(DISCARD, version, xid=12))
        error = await ends.controller.message()
        assert (error[4:8], error[8:12]) == (bytes([0, 0, 0, 11]), bytes([0, 5, 0, of.OFPFMFC_TABLE_FULL]))
        assert await ends.controller.message() == failed(commit, version, 13)
        assert not bench.plane.held
        ends.switch.send(control(DISCARDED, version, xid=12))
        await ends.hears(control(COMMITTED, version, xid=12))

    play(script)
