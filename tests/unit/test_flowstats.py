"""Flow statistics and FLOW_REMOVED, raw: read, shown anew, cut into messages; hostile lengths."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openflow_ext.switch import flowstats
from openflow_ext.switch import openflow as of
from tests.unit.flowmods import TCP4, datapath, flow_mod, ofproto, output, parsed, parser, serialized

MATCH = of.FlowMod.parse(flow_mod(TCP4)).match
INSTRUCTIONS = of.FlowMod.parse(flow_mod(TCP4, [output(2)])).instructions


def reply(version: int, *entries: bytes, more: bool = False) -> bytes:
    body = struct.pack("!HH4x", of.OFPMP_FLOW, int(more)) + b"".join(entries)
    return of.HEADER.pack(version, of.OFPT_MULTIPART_REPLY, 8 + len(body), 7) + body


def entry_13(priority: int = 5) -> bytes:
    head = struct.pack("!BxIIHHHH4xQQQ", 3, 10, 500_000_000, priority, 6, 7, 0, 9, 1, 2)
    return struct.pack("!H", 2 + len(head) + len(MATCH + INSTRUCTIONS)) + head + MATCH + INSTRUCTIONS


def entry_15(priority: int = 5) -> bytes:
    duration = struct.pack("!HBBII", 0x8002, 0, 8, 10, 500_000_000)
    stats = struct.pack("!HH", 0, 4 + len(duration)) + duration
    tail = MATCH + stats + bytes(-len(stats) % 8) + INSTRUCTIONS
    head = struct.pack("!2xBxHHHHHQ", 3, priority, 6, 7, 0, 0, 9)
    return struct.pack("!H", 2 + len(head) + len(tail)) + head + tail


@pytest.mark.parametrize(("version", "entry"), [(4, entry_13()), (5, entry_13()), (6, entry_15())])
def test_entries_are_read_and_shown_anew(version: int, entry: bytes) -> None:
    (flow, again) = flowstats.flows(reply(version, entry, entry))
    assert flow == again
    assert (flow.table_id, flow.priority, flow.cookie) == (3, 5, 9)
    assert (flow.idle_timeout_s, flow.hard_timeout_s, flow.age_s) == (6, 7, 10.5)
    assert (flow.match, flow.instructions) == (MATCH, INSTRUCTIONS)
    assert flow.showing(INSTRUCTIONS) == entry
    (other,) = flowstats.flows(reply(version, flow.showing(INSTRUCTIONS * 2)))
    assert other.instructions == INSTRUCTIONS * 2
    assert flow.showing(bytes(0x10000)) == entry


def test_what_ryu_reads_is_what_is_shown() -> None:
    (flow,) = flowstats.flows(reply(4, entry_13()))
    (stats,) = parsed(flowstats.replies(reply(4), [flow.showing(INSTRUCTIONS)])).body
    assert (stats.priority, stats.cookie, stats.instructions[0].actions[0].port) == (5, 9, 2)


def test_a_request_is_what_ryu_sends() -> None:
    everything = parser.OFPFlowStatsRequest(
        datapath, 0, ofproto.OFPTT_ALL, ofproto.OFPP_ANY, ofproto.OFPG_ANY, 0, 0, parser.OFPMatch()
    )
    assert flowstats.request(4, 77) == serialized(everything, xid=77)
    modify = of.FlowMod.parse(flow_mod(TCP4, table_id=2, cookie=5, cookie_mask=7))
    about = parser.OFPFlowStatsRequest(
        datapath, 0, 2, ofproto.OFPP_ANY, ofproto.OFPG_ANY, 5, 7, parser.OFPMatch(**TCP4)
    )
    assert flowstats.request(4, 78, modify) == serialized(about, xid=78)


@pytest.mark.parametrize("more", [False, True])
def test_what_grows_over_a_message_is_cut(more: bool) -> None:
    entries = [entry_13(number) for number in range(1000)]
    data = flowstats.replies(reply(4, more=more), entries)
    parts = [part for _, part in of.Framer(frozenset({of.OFPT_MULTIPART_REPLY})).feed(data)]
    assert len(parts) == 2
    assert [part[11] for part in parts] == [1, int(more)]
    read = [flow.priority for part in parts for flow in flowstats.flows(part)]
    assert read == list(range(1000))


def test_no_entries_are_one_empty_message() -> None:
    assert flowstats.replies(reply(4), []) == reply(4)


@pytest.mark.parametrize("version", [4, 6])
def test_flow_removed(version: int) -> None:
    if version == of.OFP13:
        body = struct.pack("!QHBBIIHHQQ", 9, 5, 0, 3, 10, 500_000_000, 6, 7, 1, 2) + MATCH
    else:
        duration = struct.pack("!HH", 0, 16) + struct.pack("!HBBII", 0x8002, 0, 8, 10, 500_000_000)
        body = struct.pack("!BBHHHQ", 3, 0, 5, 6, 7, 9) + MATCH + duration
    flow = flowstats.removed(of.HEADER.pack(version, of.OFPT_FLOW_REMOVED, 8 + len(body), 0) + body)
    assert flow == flowstats.Flow(3, 5, MATCH, 9, 6, 7, 10.5)


@given(st.sampled_from([4, 6]), st.sampled_from([entry_13(), entry_15()]), st.data())
def test_hostile_replies_raise_value_error_alone(version: int, entry: bytes, data: st.DataObject) -> None:
    mangled = bytearray(entry[: data.draw(st.integers(0, len(entry)))])
    for at in data.draw(st.lists(st.integers(0, max(len(mangled) - 1, 0)), max_size=4)):
        if mangled:
            mangled[at] = data.draw(st.integers(0, 255))
    for read in (lambda raw: list(flowstats.flows(raw)), flowstats.removed):
        with contextlib.suppress(ValueError):
            read(reply(version, bytes(mangled)))
