"""Role and bundle messages, byte by byte, in both versions of OpenFlow."""

from __future__ import annotations

import struct

from openflow_ext.switch.openflow import messages as of

ROLE_REQUEST, ROLE_REPLY, MASTER, SLAVE = 24, 25, 2, 3
OPEN, COMMIT, COMMITTED, DISCARD, DISCARDED = 0, 4, 5, 6, 7


def role(of_type: int, value: int, xid: int = 4) -> bytes:
    return of.HEADER.pack(4, of_type, 24, xid) + value.to_bytes(4, "big") + bytes(12)


def bundle(kind: int, body: bytes, version: int = 4, xid: int = 9) -> bytes:
    """OFPT_BUNDLE_CONTROL (33) or OFPT_BUNDLE_ADD_MESSAGE (34), in the version's form."""
    of_type = kind if version > 4 else of.OFPT_EXPERIMENTER
    head = b"" if version > 4 else bytes.fromhex("4f4e4600") + (2300 + kind - 33).to_bytes(4, "big")
    return of.HEADER.pack(version, of_type, 8 + len(head + body), xid) + head + body


def adding(message: bytes, version: int, xid: int = 9) -> bytes:
    """OFPT_BUNDLE_ADD_MESSAGE with a FLOW_MOD, which gets the version and the xid too."""
    inner = bytes([version]) + message[1:4] + xid.to_bytes(4, "big") + message[8:]
    return bundle(34, bytes.fromhex("0000000700000003") + inner, version, xid)


def control(kind: int, version: int, xid: int = 9) -> bytes:
    return bundle(33, struct.pack("!IHH", 7, kind, 3), version, xid)
