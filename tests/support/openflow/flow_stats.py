"""Replies to a request for flow statistics, byte by byte, in both versions of OpenFlow."""

from __future__ import annotations

import struct

from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.flow_mods import FlowMod
from tests.support.openflow.flow_mods import TCP4, flow_mod, output

MATCH = FlowMod.parse(flow_mod(TCP4)).match
INSTRUCTIONS = FlowMod.parse(flow_mod(TCP4, [output(2)])).instructions


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
