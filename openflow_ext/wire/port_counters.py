"""The records of the PORT_COUNTERS multipart reply to bytes and back.

``weir_base.port_counters`` defines the record; its layout is derived from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import lru_cache

from openflow_ext.wire.layout import Layout, bits
from weir_base.port_counters import PortCountersFlags, PortCountersRecord

__all__ = ["PORT_COUNTERS_MAX", "PortCountersFlags", "PortCountersRecord"]

_RECORD_BYTES = 128
"""The size of a record. Fields that are added use up its padding, so old and new versions interoperate."""

_FIELDS_SPEC = " ".join(f"{one.name}:{one.metadata['wire_code']}" for one in fields(PortCountersRecord))
_PADDING_BYTES = _RECORD_BYTES - Layout("port_counters", _FIELDS_SPEC).size
if _PADDING_BYTES < 0:
    raise TypeError(f"the port counters do not fit in a record of {_RECORD_BYTES} bytes")
_RECORD = Layout("port_counters", f"{_FIELDS_SPEC} {_PADDING_BYTES}x", flags=bits(PortCountersFlags))

_PORTS_CACHED = 8192
"""The records whose bytes are kept: those of all ports of some switches."""
PORT_COUNTERS_MAX = (0xFFFF - 24) // _RECORD_BYTES
"""The largest number of records in one PortCountersReply."""


def decode_counters(data: bytes) -> tuple[PortCountersRecord, ...]:
    """Decode an array of records. Raises WireError."""
    return tuple(_decoded(data[at : at + _RECORD.size]) for at in range(0, len(data), _RECORD.size))


def encode_counters(records: Iterable[PortCountersRecord]) -> bytes:
    """Encode an array of records. Raises BadValue."""
    return b"".join(map(_encoded, records))


# Of most ports nothing has changed since the last sample.


@lru_cache(_PORTS_CACHED)
def _decoded(piece: bytes) -> PortCountersRecord:
    return PortCountersRecord(**_RECORD.unpack(piece))


@lru_cache(_PORTS_CACHED)
def _encoded(record: PortCountersRecord) -> bytes:
    return _RECORD.pack_fields(record)
