"""Flow entries as Open vSwitch reports them: flow statistics and FLOW_REMOVED of OpenFlow 1.3 to 1.5, raw."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.flow_mods import FlowMod

_REPLY_HEADER_SIZE = 16
_LARGEST_MESSAGE = 0xFFFF
_STATS_13 = struct.Struct("!HBxIIHHHH4xQ16x")
_DESC_15 = struct.Struct("!H2xBxHHH2x2xQ")
_REQUEST = struct.Struct("!B3xII4xQQ")
_REMOVED_13 = struct.Struct("!QHBBIIHH16x")
_REMOVED_15 = struct.Struct("!BBHHHQ")
_OXS_DURATION = (0x8002, 0)


@dataclass(frozen=True, slots=True)
class Flow:
    """An entry of Open vSwitch. ``head`` is the part of its statistics before its instructions."""

    table_id: int
    priority: int
    match: bytes
    cookie: int = 0
    idle_timeout_s: int = 0
    hard_timeout_s: int = 0
    age_s: float = 0.0
    head: bytes = b""
    instructions: bytes = b""

    def with_instructions(self, instructions: bytes) -> bytes:
        """The entry's statistics with ``instructions``; with its own if those do not fit in a message."""
        length = len(self.head) + len(instructions)
        if length > _LARGEST_MESSAGE - _REPLY_HEADER_SIZE:
            return self.head + self.instructions
        return struct.pack("!H", length) + self.head[2:] + instructions


def is_reply(message: bytes) -> bool:
    """Whether a multipart reply holds flow entries with their instructions."""
    return message[8:10] == of.OFPMP_FLOW.to_bytes(2, "big")


def request(version: int, xid: int, selected_by: FlowMod | None = None) -> bytes:
    """A request for all entries, or for the entries that a MODIFY selects."""
    if selected_by is None:
        body = _REQUEST.pack(of.OFPTT_ALL, of.OFPP_ANY, of.OFPG_ANY, 0, 0) + b"\0\x01\0\x04\0\0\0\0"
    else:
        cookie = selected_by.cookie, selected_by.cookie_mask
        body = _REQUEST.pack(selected_by.table_id, of.OFPP_ANY, of.OFPG_ANY, *cookie) + selected_by.match
    return of.multipart_request(version, xid, of.OFPMP_FLOW, body)


def flows(message: bytes) -> Iterator[Flow]:
    """The entries in a reply; an empty one stands for an error.

    Raises ValueError for an error, and if a length field is wrong.
    """
    if not message:
        raise ValueError("Open vSwitch does not report its flow entries")
    read = _flow_15 if message[0] >= of.OFP15 else _flow_13
    at = _REPLY_HEADER_SIZE
    while at < len(message):
        length = int.from_bytes(message[at : at + 2], "big")
        if length < _DESC_15.size or at + length > len(message):
            raise ValueError(f"flow entry of {length} bytes")
        yield read(message[at : at + length])
        at += length


def _flow_13(raw: bytes) -> Flow:
    try:
        _, table_id, sec, nsec, priority, idle_s, hard_s, _, cookie = _STATS_13.unpack_from(raw)
    except struct.error as error:
        raise ValueError(f"flow entry of {len(raw)} bytes") from error
    match, at = _padded(raw, _STATS_13.size)
    fixed = table_id, priority, match, cookie, idle_s, hard_s, sec + nsec / 1e9
    return Flow(*fixed, head=raw[:at], instructions=raw[at:])


def _flow_15(raw: bytes) -> Flow:
    _, table_id, priority, idle_s, hard_s, cookie = _DESC_15.unpack_from(raw)
    match, stats_at = _padded(raw, _DESC_15.size)
    stats, at = _padded(raw, stats_at)
    fixed = table_id, priority, match, cookie, idle_s, hard_s, _duration_s(stats)
    return Flow(*fixed, head=raw[:at], instructions=raw[at:])


def _padded(raw: bytes, at: int) -> tuple[bytes, int]:
    """The match or statistics at ``at`` with its padding, and the offset at which it ends."""
    if at + 4 > len(raw):
        raise ValueError(f"flow entry of {len(raw)} bytes")
    (length,) = struct.unpack_from("!H", raw, at + 2)
    end = at + (length + 7) // 8 * 8
    if length < 4 or end > len(raw):
        raise ValueError(f"match or statistics of {length} bytes")
    return raw[at:end], end


def _duration_s(stats: bytes) -> float:
    """The duration in ofp_stats; 0 if it is absent."""
    (end,) = struct.unpack_from("!H", stats, 2)
    at = 4
    while at + 4 <= end:
        oxs_class, field, length = struct.unpack_from("!HBB", stats, at)
        if (oxs_class, field >> 1) == _OXS_DURATION and length == 8 and at + 12 <= len(stats):
            sec, nsec = struct.unpack_from("!II", stats, at + 4)
            return float(sec + nsec / 1e9)
        at += 4 + length
    return 0.0


def replies(message: bytes, entries: Iterable[bytes]) -> bytes:
    """The reply ``message`` with ``entries`` instead of its own, in as many messages as they need."""
    parts: list[list[bytes]] = [[]]
    room = _LARGEST_MESSAGE - _REPLY_HEADER_SIZE
    for entry in entries:
        if len(entry) > room:
            parts.append([])
            room = _LARGEST_MESSAGE - _REPLY_HEADER_SIZE
        parts[-1].append(entry)
        room -= len(entry)
    bodies = [b"".join(part) for part in parts]
    (flags,) = struct.unpack_from("!H", message, 10)
    marked = [flags | of.OFPMPF_MORE] * (len(bodies) - 1) + [flags]
    return b"".join(_reply(message, some, body) for some, body in zip(marked, bodies, strict=True))


def _reply(message: bytes, flags: int, body: bytes) -> bytes:
    length = struct.pack("!H", _REPLY_HEADER_SIZE + len(body))
    return message[:2] + length + message[4:10] + struct.pack("!H", flags) + message[12:16] + body


def removed(message: bytes) -> tuple[Flow, int]:
    """The entry that a FLOW_REMOVED reports, and the reason. Raises ValueError if a length field is wrong."""
    try:
        if message[0] >= of.OFP15:
            table_id, reason, priority, idle_s, hard_s, cookie = _REMOVED_15.unpack_from(
                message, of.HEADER_SIZE
            )
            match, stats_at = _padded(message, of.HEADER_SIZE + _REMOVED_15.size)
            age_s = _duration_s(_padded(message, stats_at)[0])
        else:
            fixed = _REMOVED_13.unpack_from(message, of.HEADER_SIZE)
            cookie, priority, reason, table_id, sec, nsec, idle_s, hard_s = fixed
            match, _ = _padded(message, of.HEADER_SIZE + _REMOVED_13.size)
            age_s = sec + nsec / 1e9
    except struct.error as error:
        raise ValueError(f"FLOW_REMOVED of {len(message)} bytes") from error
    return Flow(table_id, priority, match, cookie, idle_s, hard_s, age_s), reason
