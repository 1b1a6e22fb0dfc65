"""The fabric's own LLDP frames (IEEE 802.1AB): "this left switch S through port P", signed. Pure.

Besides the three TLVs that LLDP requires, a frame has an organisation-specific one (type 127). It holds a
serial number and an HMAC-SHA256, cut to 16 bytes, over switch, port and serial number. Every controller
process makes a new key, which never leaves it, so a host can neither invent nor change a frame.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from functools import lru_cache

from app_base.headers import ETH_LLDP
from fabric_app.frames import MalformedFrame
from flowdb.flow import PortKey

KEY_BYTES = 32
_NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
_END, _CHASSIS, _PORT, _TTL, _OWN = 0, 1, 2, 3, 127
_LOCALLY_ASSIGNED = b"\x07"
_OUI = b"\x0aWe"  # locally administered: the IEEE has assigned none to Weir
_SUBTYPE = b"\x01"
_TTL_S = 2
_SIGNATURE_BYTES = 16
_PORTS_CACHED = 8192


class ForeignFrame(Exception):
    """An LLDP frame of another program, on a host or a switch."""


class ForgedFrame(Exception):
    """A frame that claims to be the fabric's, but is forged or old."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The content of a frame: it left through ``port`` with the number ``serial``."""

    port: PortKey
    serial: int


def encode(probe: Probe, key: bytes) -> bytes:
    """The frame of a probe. Its source is a locally administered address, derived from switch and port."""
    content = _content(probe)
    own = _OUI + _SUBTYPE + content[12:] + _sign(content, key)
    return _head(content[:12]) + _tlv(_OWN, own) + _tlv(_END, b"")


@lru_cache(_PORTS_CACHED)
def _head(place: bytes) -> bytes:
    """The part of a port's frames that is always the same. ``place``: the switch and the port."""
    source = b"\x0a" + hashlib.blake2b(place, digest_size=5).digest()
    tlvs = (
        _tlv(_CHASSIS, _LOCALLY_ASSIGNED + place[:8])
        + _tlv(_PORT, _LOCALLY_ASSIGNED + place[8:])
        + _tlv(_TTL, struct.pack("!H", _TTL_S))
    )
    return _NEAREST_BRIDGE + source + struct.pack("!H", ETH_LLDP) + tlvs


def decode(data: bytes, key: bytes) -> Probe:
    """The content of one of the fabric's frames. Raises ForeignFrame, ForgedFrame, MalformedFrame."""
    tlvs = _tlvs(data[14:])
    own = tlvs.get(_OWN, b"")
    if not own.startswith(_OUI + _SUBTYPE):
        raise ForeignFrame("LLDP of another program")
    signed = own[len(_OUI + _SUBTYPE) :]
    if len(tlvs.get(_CHASSIS, b"")) != 9 or len(tlvs.get(_PORT, b"")) != 5:
        raise ForgedFrame("LLDP: chassis or port has another form than the fabric's")
    content = tlvs[_CHASSIS][1:] + tlvs[_PORT][1:] + signed[:8]
    if len(signed) != 8 + _SIGNATURE_BYTES or not hmac.compare_digest(signed[8:], _sign(content, key)):
        raise ForgedFrame("LLDP: wrong signature")
    dpid, port_no, serial = struct.unpack("!QIQ", content)
    return Probe(PortKey(dpid, port_no), serial)


def _content(probe: Probe) -> bytes:
    return struct.pack("!QIQ", probe.port.dpid, probe.port.port_no, probe.serial)


def _sign(content: bytes, key: bytes) -> bytes:
    return hmac.digest(key, content, "sha256")[:_SIGNATURE_BYTES]


def _tlv(kind: int, value: bytes) -> bytes:
    return struct.pack("!H", kind << 9 | len(value)) + value


def _tlvs(data: bytes) -> dict[int, bytes]:
    """The first TLV of each type, up to the end TLV. Raises MalformedFrame if one is cut short."""
    found: dict[int, bytes] = {}
    at = 0
    while at + 2 <= len(data):
        (head,) = struct.unpack_from("!H", data, at)
        kind, length = head >> 9, head & 0x1FF
        if kind == _END:
            return found
        if at + 2 + length > len(data):
            raise MalformedFrame(f"LLDP TLV {kind}: cut short at {len(data)} bytes")
        found.setdefault(kind, data[at + 2 : at + 2 + length])
        at += 2 + length
    raise MalformedFrame("LLDP: no end")
