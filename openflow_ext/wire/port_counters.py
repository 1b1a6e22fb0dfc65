"""The records of the PORT_COUNTERS multipart reply to bytes and back.

``weir_base.port_counters`` defines the record; its layout is derived from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import lru_cache

from openflow_ext.wire.errors import BadValue, Truncated
from openflow_ext.wire.layout import Layout, bits
from weir_base.port_counters import PortCountersFlags, PortCountersRecord

__all__ = ["PORT_COUNTERS_MAX", "PortCountersFlags", "PortCountersRecord"]

_FIELDS_SPEC = " ".join(f"{one.name}:{one.metadata['wire_code']}" for one in fields(PortCountersRecord))
_ALIGNMENT = 8
_PADDING_BYTES = -Layout("port_counters", _FIELDS_SPEC).size % _ALIGNMENT
_RECORD = Layout("port_counters", f"{_FIELDS_SPEC} {_PADDING_BYTES}x", flags=bits(PortCountersFlags))
_HEAD = Layout("port_counters_reply", "record_bytes:H 6x")
"""The size of each record of the message. A version with more counters sends longer records."""
_LEAST_RECORD_BYTES = 16
"""The fields before the capacity."""

_PORTS_CACHED = 8192
"""The records whose bytes are kept: those of all ports of some switches."""
PORT_COUNTERS_MAX = (0xFFFF - 24 - _HEAD.size) // _RECORD.size
"""The largest number of records in one PortCountersReply."""


def decode_counters(data: bytes) -> tuple[PortCountersRecord, ...]:
    """Decode the body of a reply. Raises WireError.

    Counters of a later version are left out. Counters that an earlier version does not have are 0.
    """
    size = _HEAD.unpack(data[: _HEAD.size])["record_bytes"]
    if size < _LEAST_RECORD_BYTES or size % _ALIGNMENT:
        raise BadValue("port_counters_reply.record_bytes", f"cannot be {size}")
    records = data[_HEAD.size :]
    if rest := len(records) % size:
        raise Truncated("port_counters_reply.records", f"missing after {rest} of {size} bytes")
    known = min(size, _RECORD.size)
    return tuple(_decoded(records[at : at + known]) for at in range(0, len(records), size))


def encode_counters(records: Iterable[PortCountersRecord]) -> bytes:
    """Encode the body of a reply. Raises BadValue."""
    return _HEAD.pack(record_bytes=_RECORD.size) + b"".join(map(_encoded, records))


# Of most ports nothing has changed since the last sample. The keys must be short: a peer chooses them.


@lru_cache(_PORTS_CACHED)
def _decoded(piece: bytes) -> PortCountersRecord:
    return PortCountersRecord(**_RECORD.unpack(piece.ljust(_RECORD.size, b"\0")))


@lru_cache(_PORTS_CACHED)
def _encoded(record: PortCountersRecord) -> bytes:
    return _RECORD.pack_fields(record)
