"""Our own LLDP frames (IEEE 802.1AB): "this left switch S by port P", signed.

Beside the three TLVs that LLDP asks for, a frame has one of an organisation's own (type 127) with a serial
number and an HMAC-SHA256, cut to 16 bytes, over switch, port and serial number. The key is made anew by
every controller process and never leaves it, so a host can neither make up a frame nor change one.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass

from fabric_app.frames import MalformedFrame
from fabric_app.pipeline import ETH_LLDP
from flowdb.flow import PortKey

KEY_BYTES = 32
_NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
_END, _CHASSIS, _PORT, _TTL, _OWN = 0, 1, 2, 3, 127
_LOCALLY_ASSIGNED = b"\x07"
_OUI = b"\x0aWe"  # locally administered: Weir has none of the IEEE's
_SUBTYPE = b"\x01"
_TTL_S = 2
_SIGNATURE_BYTES = 16


class ForeignFrame(Exception):
    """An LLDP frame of somebody else's: a host or a switch that speaks LLDP by itself."""


class ForgedFrame(Exception):
    """A frame that claims to be ours and is not, or not any more."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What a frame of ours says: it left by ``port`` as number ``serial``."""

    port: PortKey
    serial: int


def encode(probe: Probe, key: bytes) -> bytes:
    """The frame; its source address is the locally administered one of switch and port."""
    said = _said(probe)
    source = b"\x0a" + hashlib.blake2b(said[:12], digest_size=5).digest()
    own = _OUI + _SUBTYPE + said[12:] + _sign(said, key)
    tlvs = (
        _tlv(_CHASSIS, _LOCALLY_ASSIGNED + said[:8])
        + _tlv(_PORT, _LOCALLY_ASSIGNED + said[8:12])
        + _tlv(_TTL, struct.pack("!H", _TTL_S))
        + _tlv(_OWN, own)
        + _tlv(_END, b"")
    )
    return _NEAREST_BRIDGE + source + struct.pack("!H", ETH_LLDP) + tlvs


def decode(data: bytes, key: bytes) -> Probe:
    """What one of our frames says. Raises ForeignFrame, ForgedFrame, MalformedFrame."""
    tlvs = _tlvs(data[14:])
    own = tlvs.get(_OWN, b"")
    if not own.startswith(_OUI + _SUBTYPE):
        raise ForeignFrame("LLDP of somebody else's")
    signed = own[len(_OUI + _SUBTYPE) :]
    if len(tlvs.get(_CHASSIS, b"")) != 9 or len(tlvs.get(_PORT, b"")) != 5:
        raise ForgedFrame("LLDP: chassis or port is not of the form of ours")
    said = tlvs[_CHASSIS][1:] + tlvs[_PORT][1:] + signed[:8]
    if len(signed) != 8 + _SIGNATURE_BYTES or not hmac.compare_digest(signed[8:], _sign(said, key)):
        raise ForgedFrame("LLDP: the signature is not ours")
    dpid, port_no, serial = struct.unpack("!QIQ", said)
    return Probe(PortKey(dpid, port_no), serial)


def _said(probe: Probe) -> bytes:
    return struct.pack("!QIQ", probe.port.dpid, probe.port.port_no, probe.serial)


def _sign(said: bytes, key: bytes) -> bytes:
    return hmac.digest(key, said, "sha256")[:_SIGNATURE_BYTES]


def _tlv(kind: int, value: bytes) -> bytes:
    return struct.pack("!H", kind << 9 | len(value)) + value


def _tlvs(data: bytes) -> dict[int, bytes]:
    """The first TLV of each type, up to the end TLV. Raises MalformedFrame where one is cut short."""
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
