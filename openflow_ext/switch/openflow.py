"""Raw OpenFlow 1.3 to 1.5: as much of the layouts as the agent needs to cut, split and answer messages.

OpenFlow 1.4 and 1.5 share FLOW_MOD, its actions and the multipart header with 1.3. OpenFlow 1.0 to 1.2 is
only cut into messages. Not implemented: packet-type aware matches (1.5).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from openflow_ext.switch.errors import BadFraming, Refused

HEADER: Final = struct.Struct("!BBHI")
HEADER_SIZE: Final = HEADER.size
OFP13: Final = 4
OFP15: Final = 6

OFPT_ERROR: Final = 1
OFPT_EXPERIMENTER: Final = 4
OFPT_FEATURES_REPLY: Final = 6
OFPT_FLOW_REMOVED: Final = 11
OFPT_PORT_STATUS: Final = 12
OFPT_FLOW_MOD: Final = 14
OFPT_GROUP_MOD: Final = 15
OFPT_MULTIPART_REQUEST: Final = 18
OFPT_MULTIPART_REPLY: Final = 19

OFPT_ROLE_REQUEST: Final = 24
OFPT_ROLE_REPLY: Final = 25
OFPT_METER_MOD: Final = 29
OFPT_ROLE_STATUS: Final = 30
OFPT_BUNDLE_CONTROL: Final = 33
OFPT_BUNDLE_ADD_MESSAGE: Final = 34

OFPCR_ROLE_NOCHANGE: Final = 0
OFPCR_ROLE_MASTER: Final = 2
OFPCR_ROLE_SLAVE: Final = 3

OFPMP_DESC: Final = 0
OFPMP_FLOW: Final = 1
OFPMP_PORT_DESC: Final = 13
OFPMPF_MORE: Final = 1

OFPFC_ADD: Final = 0
OFPFC_MODIFY: Final = 1
OFPFC_MODIFY_STRICT: Final = 2
OFPFC_DELETE: Final = 3
OFPFC_DELETE_STRICT: Final = 4
MODIFIES: Final = (OFPFC_MODIFY, OFPFC_MODIFY_STRICT)
_STRICT: Final = (OFPFC_MODIFY_STRICT, OFPFC_DELETE_STRICT)

OFPGC_DELETE: Final = 2
OFPMC_DELETE: Final = 2

OFPTT_ALL: Final = 0xFF
OFPP_ANY: Final = 0xFFFFFFFF
OFPG_ANY: Final = 0xFFFFFFFF
OFPP_LOCAL: Final = 0xFFFFFFFE

OFPIT_WRITE_ACTIONS: Final = 3
OFPIT_APPLY_ACTIONS: Final = 4
OFPIT_METER: Final = 6
OFPAT_OUTPUT: Final = 0
OFPAT_GROUP: Final = 22

OFPET_BAD_REQUEST: Final = 1
OFPET_BAD_ACTION: Final = 2
OFPET_BAD_MATCH: Final = 4
OFPET_FLOW_MOD_FAILED: Final = 5
OFPET_ROLE_REQUEST_FAILED: Final = 11
OFPET_BUNDLE_FAILED: Final = 17
OFPET_EXPERIMENTER: Final = 0xFFFF
OFPBRC_BAD_EXP_TYPE: Final = 4
OFPBRC_BAD_LEN: Final = 6
OFPBRC_IS_SLAVE: Final = 10
OFPBAC_BAD_LEN: Final = 1
OFPBAC_BAD_EXP_TYPE: Final = 3
OFPBAC_BAD_ARGUMENT: Final = 5
OFPBAC_TOO_MANY: Final = 7
OFPBAC_MATCH_INCONSISTENT: Final = 10
OFPBMC_BAD_TYPE: Final = 0
OFPBMC_BAD_LEN: Final = 1
OFPBMC_BAD_NW_ADDR_MASK: Final = 4
OFPBMC_BAD_WILDCARDS: Final = 5
OFPBMC_BAD_FIELD: Final = 6
OFPBMC_BAD_VALUE: Final = 7
OFPBMC_BAD_MASK: Final = 8
OFPBMC_BAD_PREREQ: Final = 9
OFPBMC_DUP_FIELD: Final = 10
OFPFMFC_UNKNOWN: Final = 0
OFPFMFC_TABLE_FULL: Final = 1
OFPFMFC_BAD_TABLE_ID: Final = 2

ERROR_DATA_SIZE: Final = 64
"""How much of a refused message an OFPT_ERROR quotes: the least that OpenFlow asks for."""

OxmKey = tuple[int, ...]
Fields = dict[str | OxmKey, tuple[int, int]]
"""A match: field -> (value, mask), wild fields left out. A field unknown here goes by its numbers."""

ETH_TYPE: Final = "eth_type"
IP_PROTO: Final = "ip_proto"
IN_PORT: Final = "in_port"
TCP_SRC: Final = "tcp_src"
TCP_DST: Final = "tcp_dst"
TCP_FLAGS: Final = "tcp_flags"
TCP_WINDOW: Final = "tcp_window"

_NXM_0: Final = 0x0000
_NXM_1: Final = 0x0001
_OXM_BASIC: Final = 0x8000
_OXM_EXPERIMENTER: Final = 0xFFFF
_ONF: Final = 0x4F4E4600
_WEIR: Final = 0x00576569
_OXM_NAMES: Final[dict[OxmKey, str]] = {
    (_OXM_BASIC, 0): IN_PORT,
    (_OXM_BASIC, 5): ETH_TYPE,
    (_OXM_BASIC, 10): IP_PROTO,
    (_OXM_BASIC, 11): "ipv4_src",
    (_OXM_BASIC, 12): "ipv4_dst",
    (_OXM_BASIC, 13): TCP_SRC,
    (_OXM_BASIC, 14): TCP_DST,
    (_OXM_BASIC, 26): "ipv6_src",
    (_OXM_BASIC, 27): "ipv6_dst",
    (_OXM_BASIC, 42): TCP_FLAGS,
    (_OXM_EXPERIMENTER, 42, _ONF): TCP_FLAGS,
    (_OXM_EXPERIMENTER, 1, _WEIR): TCP_WINDOW,
    (_NXM_1, 34): TCP_FLAGS,
    (_NXM_0, 3): ETH_TYPE,
    (_NXM_0, 6): IP_PROTO,
    (_NXM_0, 7): "ipv4_src",
    (_NXM_0, 8): "ipv4_dst",
    (_NXM_0, 9): TCP_SRC,
    (_NXM_0, 10): TCP_DST,
    (_NXM_1, 19): "ipv6_src",
    (_NXM_1, 20): "ipv6_dst",
}
_SIZES: Final = {
    IN_PORT: 4, ETH_TYPE: 2, IP_PROTO: 1, "ipv4_src": 4, "ipv4_dst": 4, "ipv6_src": 16, "ipv6_dst": 16,
    TCP_SRC: 2, TCP_DST: 2, TCP_FLAGS: 2, TCP_WINDOW: 2,
}  # fmt: skip


class Framer:
    """Cuts a byte stream into OpenFlow messages, looking at headers only.

    ``act_on``: the message types that are handed out one by one; all others pass in whole runs.
    """

    def __init__(self, act_on: frozenset[int]) -> None:
        self._act_on = act_on
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[bool, bytes]]:
        """The whole messages up to here, in order: (True, one message to act on) or (False, a run).

        Raises BadFraming, after all that came before it, where the stream is no OpenFlow.
        """
        data = self._rest + data if self._rest else data
        self._rest = b""
        act_on, unpack, size = self._act_on, HEADER.unpack_from, len(data)
        start = at = 0
        while size - at >= HEADER_SIZE:
            version, of_type, length, _ = unpack(data, at)
            if length < HEADER_SIZE or not 1 <= version <= OFP15:
                if start < at:
                    yield False, data[start:at]
                raise BadFraming(f"version {version}, type {of_type}, length {length} is no OpenFlow header")
            if at + length > size:
                break
            if of_type in act_on:
                if start < at:
                    yield False, data[start:at]
                start = at + length
                yield True, data[at:start]
            at += length
        self._rest = data[at:]
        if start < at:
            yield False, data[start:at]


def error(request: bytes, error_type: int, code: int) -> bytes:
    """OFPT_ERROR about ``request``, with its version and xid and its first bytes."""
    version, _, _, xid = HEADER.unpack_from(request)
    data = request[:ERROR_DATA_SIZE]
    return HEADER.pack(version, OFPT_ERROR, 12 + len(data), xid) + struct.pack("!HH", error_type, code) + data


def quoted_at(error: bytes) -> int:
    """Where an OFPT_ERROR quotes the message that it is about."""
    return 16 if error[8:10] == OFPET_EXPERIMENTER.to_bytes(2, "big") else 12


def resized(message: bytes) -> bytes:
    """``message`` with its length in its header."""
    return message[:2] + struct.pack("!H", len(message)) + message[4:]


def takes_entries_along(message: bytes) -> bool:
    """Whether a message removes groups or meters: a switch removes entries with them."""
    if message[1:2] == bytes([OFPT_GROUP_MOD]):
        return message[8:10] == OFPGC_DELETE.to_bytes(2, "big")
    return message[1:2] == bytes([OFPT_METER_MOD]) and message[8:10] == OFPMC_DELETE.to_bytes(2, "big")


def multipart_request(version: int, xid: int, kind: int, body: bytes = b"") -> bytes:
    """A multipart request of one message."""
    whole = struct.pack("!HH4x", kind, 0) + body
    return HEADER.pack(version, OFPT_MULTIPART_REQUEST, HEADER_SIZE + len(whole), xid) + whole


def desc_request(version: int, xid: int) -> bytes:
    """A request for the description of the switch: short, and answered behind all that came before it."""
    return multipart_request(version, xid, OFPMP_DESC)


def port_desc_request(version: int, xid: int) -> bytes:
    """A request for the descriptions of all ports."""
    which = struct.pack("!I4x", OFPP_ANY) if version >= OFP15 else b""
    return multipart_request(version, xid, OFPMP_PORT_DESC, which)


def tlvs(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The (type, whole element) of instructions or actions. Raises ValueError where the lengths lie."""
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise ValueError(f"{len(data) - at} bytes left over")
        kind, length = struct.unpack_from("!HH", data, at)
        if length < 8 or at + length > len(data):
            raise ValueError(f"length {length} of {len(data) - at} bytes")
        yield kind, data[at : at + length]
        at += length


@dataclass(frozen=True, slots=True)
class FlowMod:
    """An OFPT_FLOW_MOD: its fixed part read, match (padding included) and instructions as bytes."""

    match: bytes
    instructions: bytes
    cookie: int
    cookie_mask: int
    table_id: int
    command: int
    idle_timeout_s: int
    hard_timeout_s: int
    priority: int
    out_port: int
    out_group: int

    _LAYOUT: ClassVar = struct.Struct("!QQBBHHH4xII4x")
    MATCH_AT: ClassVar = 48

    @classmethod
    def parse(cls, message: bytes) -> FlowMod:
        """Raises ValueError where the lengths lie."""
        if len(message) < cls.MATCH_AT + 8:
            raise ValueError(f"FLOW_MOD of {len(message)} bytes")
        fixed = cls._LAYOUT.unpack_from(message, HEADER_SIZE)
        (match_length,) = struct.unpack_from("!H", message, cls.MATCH_AT + 2)
        instructions_at = cls.MATCH_AT + (match_length + 7) // 8 * 8
        if match_length < 4 or instructions_at > len(message):
            raise ValueError(f"match of {match_length} bytes")
        return cls(message[cls.MATCH_AT : instructions_at], message[instructions_at:], *fixed)

    @property
    def strict(self) -> bool:
        """Whether a MODIFY or DELETE is about entries with its own priority and match alone."""
        return self.command in _STRICT

    @property
    def tables(self) -> range:
        """The tables whose entries it is about."""
        return range(OFPTT_ALL) if self.table_id == OFPTT_ALL else range(self.table_id, self.table_id + 1)

    def is_about_cookie(self, cookie: int) -> bool:
        """Whether it is about entries with this cookie."""
        return not (cookie ^ self.cookie) & self.cookie_mask


def full_mask(name: str) -> int:
    """The mask of a named field under which it is exact."""
    return 0x0FFF if name == TCP_FLAGS else (1 << 8 * _SIZES[name]) - 1


def read_match(match: bytes) -> Fields:
    """The fields of an ofp_match. Raises Refused with OFPET_BAD_MATCH."""
    kind, length = struct.unpack_from("!HH", match)
    if kind != 1:
        raise Refused(OFPET_BAD_MATCH, OFPBMC_BAD_TYPE, f"match type {kind}, expected OXM (1)")
    fields: Fields = {}
    seen: set[str | OxmKey] = set()
    for key, has_mask, payload in _oxms(match[4:length]):
        name = _OXM_NAMES.get(key, key)
        if name in seen:
            raise Refused(OFPET_BAD_MATCH, OFPBMC_DUP_FIELD, f"field {name} twice")
        seen.add(name)
        value, mask = _value_and_mask(name, has_mask, payload)
        if mask:
            fields[name] = (value & mask, mask)
    return fields


def _oxms(data: bytes) -> Iterator[tuple[OxmKey, bool, bytes]]:
    """The (class and field number, has mask, payload) of each OXM TLV."""
    at = 0
    while at < len(data):
        if len(data) - at < 4:
            raise Refused(OFPET_BAD_MATCH, OFPBMC_BAD_LEN, f"{len(data) - at} bytes left over in the match")
        oxm_class, field, length = struct.unpack_from("!HBB", data, at)
        payload = data[at + 4 : at + 4 + length]
        if len(payload) < length:
            raise Refused(OFPET_BAD_MATCH, OFPBMC_BAD_LEN, "a match field is truncated")
        key: OxmKey = (oxm_class, field >> 1)
        if oxm_class == _OXM_EXPERIMENTER:
            if length < 4:
                raise Refused(OFPET_BAD_MATCH, OFPBMC_BAD_LEN, "an experimenter field is truncated")
            key, payload = (*key, int.from_bytes(payload[:4], "big")), payload[4:]
        yield key, bool(field & 1), payload
        at += 4 + length


def _value_and_mask(name: str | OxmKey, has_mask: bool, payload: bytes) -> tuple[int, int]:
    size = len(payload) // 2 if has_mask else len(payload)
    expected = _SIZES.get(name, size) if isinstance(name, str) else size
    if size != expected or len(payload) != size * (1 + has_mask):
        raise Refused(OFPET_BAD_MATCH, OFPBMC_BAD_LEN, f"field {name} of {len(payload)} bytes")
    every_bit = full_mask(name) if isinstance(name, str) else (1 << 8 * size) - 1
    value = int.from_bytes(payload[:size], "big")
    mask = int.from_bytes(payload[size:], "big") & every_bit if has_mask else every_bit
    return value, mask
