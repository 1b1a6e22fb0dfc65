"""OpenFlow matches: the fields of an ofp_match, and whether one match covers another. No I/O.

Not implemented: packet-type aware matches (OpenFlow 1.5).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from openflow_ext import wire
from openflow_ext.switch.errors import Refused
from openflow_ext.switch.openflow import messages as of

OxmKey = tuple[int, ...]
Fields = dict[str | OxmKey, tuple[int, int]]
"""A match: field -> (value, mask). A wild field is absent. A field without a name here is a tuple of its OXM
class and number."""

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
    (_OXM_EXPERIMENTER, 1, wire.WEIR_EXPERIMENTER_ID): TCP_WINDOW,
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
_SIZES_BYTES: Final = {
    IN_PORT: 4, ETH_TYPE: 2, IP_PROTO: 1, "ipv4_src": 4, "ipv4_dst": 4, "ipv6_src": 16, "ipv6_dst": 16,
    TCP_SRC: 2, TCP_DST: 2, TCP_FLAGS: 2, TCP_WINDOW: 2,
}  # fmt: skip


def bad_match(code: int, reason: str) -> Refused:
    """The refusal of a match."""
    return Refused(of.OFPET_BAD_MATCH, code, reason)


def full_mask(name: str) -> int:
    """The mask that makes a named field exact. TCP_FLAGS has 12 bits on the wire's 16."""
    return 0x0FFF if name == TCP_FLAGS else (1 << 8 * _SIZES_BYTES[name]) - 1


def read_match(match: bytes) -> Fields:
    """The fields of an ofp_match. Raises Refused (OFPET_BAD_MATCH)."""
    kind, length = struct.unpack_from("!HH", match)
    if kind != 1:
        raise bad_match(of.OFPBMC_BAD_TYPE, f"match type {kind}: expected OXM (1)")
    fields: Fields = {}
    seen: set[str | OxmKey] = set()
    for key, has_mask, payload in _oxms(match[4:length]):
        name = _OXM_NAMES.get(key, key)
        if name in seen:
            raise bad_match(of.OFPBMC_DUP_FIELD, f"the match has field {name} twice")
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
            raise bad_match(of.OFPBMC_BAD_LEN, f"{len(data) - at} bytes left over in the match")
        oxm_class, field, length = struct.unpack_from("!HBB", data, at)
        payload = data[at + 4 : at + 4 + length]
        if len(payload) < length:
            raise bad_match(of.OFPBMC_BAD_LEN, "a match field is truncated")
        key: OxmKey = (oxm_class, field >> 1)
        if oxm_class == _OXM_EXPERIMENTER:
            if length < 4:
                raise bad_match(of.OFPBMC_BAD_LEN, "an experimenter field is truncated")
            key, payload = (*key, int.from_bytes(payload[:4], "big")), payload[4:]
        yield key, bool(field & 1), payload
        at += 4 + length


def _value_and_mask(name: str | OxmKey, has_mask: bool, payload: bytes) -> tuple[int, int]:
    size = len(payload) // 2 if has_mask else len(payload)
    expected = _SIZES_BYTES.get(name, size) if isinstance(name, str) else size
    if size != expected or len(payload) != size * (1 + has_mask):
        raise bad_match(of.OFPBMC_BAD_LEN, f"field {name} has {len(payload)} bytes")
    every_bit = full_mask(name) if isinstance(name, str) else (1 << 8 * size) - 1
    value = int.from_bytes(payload[:size], "big")
    mask = int.from_bytes(payload[size:], "big") & every_bit if has_mask else every_bit
    return value, mask


def covers(general: Fields, special: Fields) -> bool:
    """Whether ``general`` matches every packet that ``special`` matches.

    A non-strict MODIFY or DELETE acts on the entries that its match covers (OpenFlow 1.3.5, section 6.4).
    """
    for name, (value, mask) in general.items():
        special_value, special_mask = special.get(name, (0, 0))
        if special_mask & mask != mask or special_value & mask != value:
            return False
    return True
