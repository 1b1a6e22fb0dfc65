"""Raw OpenFlow 1.3 to 1.5: constants, framing, errors and multipart requests.

OpenFlow 1.4 and 1.5 share FLOW_MOD, its actions and the multipart header with 1.3. Of OpenFlow 1.0 to 1.2
only the framing is implemented.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from openflow_ext.switch.errors import BadFraming

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

OFPGC_DELETE: Final = 2
OFPMC_DELETE: Final = 2

OFPTT_ALL: Final = 0xFF
OFPP_ANY: Final = 0xFFFFFFFF
OFPRR_DELETE: Final = 2
OFPG_ANY: Final = 0xFFFFFFFF

OFPIT_WRITE_ACTIONS: Final = 3
OFPIT_APPLY_ACTIONS: Final = 4
OFPIT_METER: Final = 6
OFPAT_OUTPUT: Final = 0
OFPAT_GROUP: Final = 22

OFPET_BAD_REQUEST: Final = 1
OFPET_BAD_ACTION: Final = 2
OFPET_BAD_MATCH: Final = 4
OFPET_FLOW_MOD_FAILED: Final = 5
OFPET_BUNDLE_FAILED: Final = 17
OFPET_EXPERIMENTER: Final = 0xFFFF
OFPBRC_BAD_EXP_TYPE: Final = 4
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
"""The bytes of a refused message that an OFPT_ERROR quotes: the minimum of OpenFlow 1.3.5, section 7.4.4."""


class Framer:
    """Divides a byte stream into OpenFlow messages. It reads only headers.

    Messages of the types ``act_on`` come out one by one. Consecutive messages of all other types come out
    as one run, which costs less.
    """

    def __init__(self, act_on: frozenset[int]) -> None:
        self._act_on = act_on
        self._incomplete = b""

    def feed(self, data: bytes) -> Iterator[tuple[bool, bytes]]:
        """The messages that are complete with ``data``: (True, one message to act on) or (False, a run).

        Raises BadFraming at the first header that is not OpenFlow, after the messages before it.
        """
        data = self._incomplete + data if self._incomplete else data
        self._incomplete = b""
        act_on, unpack, size = self._act_on, HEADER.unpack_from, len(data)
        start = at = 0
        while size - at >= HEADER_SIZE:
            version, of_type, length, _ = unpack(data, at)
            if length < HEADER_SIZE or not 1 <= version <= OFP15:
                if start < at:
                    yield False, data[start:at]
                raise BadFraming(
                    f"version {version}, type {of_type}, length {length}: not an OpenFlow header"
                )
            if at + length > size:
                break
            if of_type in act_on:
                if start < at:
                    yield False, data[start:at]
                start = at + length
                yield True, data[at:start]
            at += length
        self._incomplete = data[at:]
        if start < at:
            yield False, data[start:at]


def error(request: bytes, error_type: int, code: int) -> bytes:
    """The OFPT_ERROR that answers ``request``: its version, its xid and its first bytes."""
    version, _, _, xid = HEADER.unpack_from(request)
    data = request[:ERROR_DATA_SIZE]
    return HEADER.pack(version, OFPT_ERROR, 12 + len(data), xid) + struct.pack("!HH", error_type, code) + data


def quoted_at(error: bytes) -> int:
    """The offset at which an OFPT_ERROR quotes the refused message."""
    return 16 if error[8:10] == OFPET_EXPERIMENTER.to_bytes(2, "big") else 12


def resized(message: bytes) -> bytes:
    """``message`` with its actual length in its header."""
    return message[:2] + struct.pack("!H", len(message)) + message[4:]


def removes_entries(message: bytes) -> bool:
    """Whether a message removes groups or meters. A switch removes the entries that use them."""
    if message[1:2] == bytes([OFPT_GROUP_MOD]):
        return message[8:10] == OFPGC_DELETE.to_bytes(2, "big")
    return message[1:2] == bytes([OFPT_METER_MOD]) and message[8:10] == OFPMC_DELETE.to_bytes(2, "big")


def multipart_request(version: int, xid: int, kind: int, body: bytes = b"") -> bytes:
    """A multipart request that consists of one message."""
    payload = struct.pack("!HH4x", kind, 0) + body
    return HEADER.pack(version, OFPT_MULTIPART_REQUEST, HEADER_SIZE + len(payload), xid) + payload


def desc_request(version: int, xid: int) -> bytes:
    """A request for the description of the switch.

    The answer is short. Open vSwitch sends it after it has handled every earlier message.
    """
    return multipart_request(version, xid, OFPMP_DESC)


def port_desc_request(version: int, xid: int) -> bytes:
    """A request for the descriptions of all ports."""
    which = struct.pack("!I4x", OFPP_ANY) if version >= OFP15 else b""
    return multipart_request(version, xid, OFPMP_PORT_DESC, which)
