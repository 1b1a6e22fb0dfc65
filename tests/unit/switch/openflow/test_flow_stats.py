"""Flow statistics and FLOW_REMOVED: read, written back, divided into messages; hostile lengths."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openflow_ext.switch.openflow import flow_stats
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.flow_mods import FlowMod
from tests.support.openflow.flow_mods import (
    TCP4,
    datapath,
    flow_mod,
    ofproto,
    parsed,
    parser,
    serialized,
)
from tests.support.openflow.flow_stats import INSTRUCTIONS, MATCH, entry_13, entry_15, reply


@pytest.mark.parametrize(("version", "entry"), [(4, entry_13()), (5, entry_13()), (6, entry_15())])
def test_entries_are_read_and_written_back(version: int, entry: bytes) -> None:
    (flow, again) = flow_stats.flows(reply(version, entry, entry))
    assert flow == again
    assert (flow.table_id, flow.priority, flow.cookie) == (3, 5, 9)
    assert (flow.idle_timeout_s, flow.hard_timeout_s, flow.age_s) == (6, 7, 10.5)
    assert (flow.match, flow.instructions) == (MATCH, INSTRUCTIONS)
    assert flow.with_instructions(INSTRUCTIONS) == entry
    (other,) = flow_stats.flows(reply(version, flow.with_instructions(INSTRUCTIONS * 2)))
    assert other.instructions == INSTRUCTIONS * 2
    assert flow.with_instructions(bytes(0x10000)) == entry


def test_ryu_reads_the_entries_of_a_reply() -> None:
    (flow,) = flow_stats.flows(reply(4, entry_13()))
    (stats,) = parsed(flow_stats.replies(reply(4), [flow.with_instructions(INSTRUCTIONS)])).body
    assert (stats.priority, stats.cookie, stats.instructions[0].actions[0].port) == (5, 9, 2)


def test_a_request_is_what_ryu_sends() -> None:
    everything = parser.OFPFlowStatsRequest(
        datapath, 0, ofproto.OFPTT_ALL, ofproto.OFPP_ANY, ofproto.OFPG_ANY, 0, 0, parser.OFPMatch()
    )
    assert flow_stats.request(4, 77) == serialized(everything, xid=77)
    modify = FlowMod.parse(flow_mod(TCP4, table_id=2, cookie=5, cookie_mask=7))
    about = parser.OFPFlowStatsRequest(
        datapath, 0, 2, ofproto.OFPP_ANY, ofproto.OFPG_ANY, 5, 7, parser.OFPMatch(**TCP4)
    )
    assert flow_stats.request(4, 78, modify) == serialized(about, xid=78)


@pytest.mark.parametrize("more", [False, True])
def test_a_reply_that_outgrows_a_message_is_divided(more: bool) -> None:
    entries = [entry_13(number) for number in range(1000)]
    data = flow_stats.replies(reply(4, more=more), entries)
    parts = [part for _, part in of.Framer(frozenset({of.OFPT_MULTIPART_REPLY})).feed(data)]
    assert len(parts) == 2
    assert [part[11] for part in parts] == [1, int(more)]
    read = [flow.priority for part in parts for flow in flow_stats.flows(part)]
    assert read == list(range(1000))


def test_a_reply_without_entries_is_one_message() -> None:
    assert flow_stats.replies(reply(4), []) == reply(4)


@pytest.mark.parametrize("version", [4, 6])
def test_flow_removed_is_read_in_every_version(version: int) -> None:
    if version == of.OFP13:
        body = struct.pack("!QHBBIIHHQQ", 9, 5, 2, 3, 10, 500_000_000, 6, 7, 1, 2) + MATCH
    else:
        duration = struct.pack("!HH", 0, 16) + struct.pack("!HBBII", 0x8002, 0, 8, 10, 500_000_000)
        body = struct.pack("!BBHHHQ", 3, 2, 5, 6, 7, 9) + MATCH + duration
    flow, reason = flow_stats.removed(of.HEADER.pack(version, of.OFPT_FLOW_REMOVED, 8 + len(body), 0) + body)
    assert (flow, reason) == (flow_stats.Flow(3, 5, MATCH, 9, 6, 7, 10.5), of.OFPRR_DELETE)


@given(st.sampled_from([4, 6]), st.sampled_from([entry_13(), entry_15()]), st.data())
def test_hostile_replies_raise_only_value_error(version: int, entry: bytes, data: st.DataObject) -> None:
    mangled = bytearray(entry[: data.draw(st.integers(0, len(entry)))])
    for at in data.draw(st.lists(st.integers(0, max(len(mangled) - 1, 0)), max_size=4)):
        if mangled:
            mangled[at] = data.draw(st.integers(0, 255))
    for read in (lambda raw: list(flow_stats.flows(raw)), flow_stats.removed):
        with contextlib.suppress(ValueError):
            read(reply(version, bytes(mangled)))
