"""The flow records of FLOW_REPORT and the entries of ARM to bytes and back.

A controller decodes tens of thousands of flow records per second, so that path avoids dataclasses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Generic, NoReturn, TypeVar

from openflow_ext.wire.errors import BadLength, BadValue, Truncated
from openflow_ext.wire.layout import Layout, positive
from openflow_ext.wire.types import ArmEntry, CloseReason, FlowKind, FlowRecord, IPAddress

__all__ = ["ARM_MAX", "FLOW_REPORT_MAX"]

_E = TypeVar("_E", bound=IntEnum)


class _Members(dict[int, _E], Generic[_E]):
    """An enum's members by number, because a dictionary is faster than a call of the enum.

    An unknown number raises BadValue for the field.
    """

    def __init__(self, field: str, enum: type[_E]) -> None:
        super().__init__({member.value: member for member in enum})
        self._field = field

    def __missing__(self, value: object) -> NoReturn:
        raise BadValue(self._field, f"cannot be {value!r}")


_RECORD = Layout(
    "flow_record",
    "kind:B ip_version:B scale_src:B scale_dst:B src:16s dst:16s src_port:H dst_port:H mss_src:H mss_dst:H"
    " in_port:I out_port:I 4x sent_bytes:Q first_ns:Q last_ns:Q handshake_rtt_us:I reason:B 3x",
)
_ENTRY = Layout(
    "arm_entry",
    "ip_version:B alpha:B table_id:B 1x src:16s dst:16s src_port:H dst_port:H window_bytes:I cookie:Q"
    " priority:H hard_timeout_s:H 8x",
    alpha=positive,
)
FLOW_REPORT_MAX = (0xFFFF - 32) // _RECORD.size
"""The largest number of records in one FlowReport."""

ARM_MAX = (0xFFFF - 24) // _ENTRY.size
"""The largest number of armed entries of one port."""

_KINDS = _Members("flow_record.kind", FlowKind)
_REASONS = _Members("flow_record.reason", CloseReason)
_MAPPED = bytes(10) + b"\xff\xff"


@lru_cache(1 << 14)
def _address(version: int, octets: bytes) -> IPAddress:
    """The address in sixteen ``octets``. A few hosts have most flows, so the cache finds most addresses."""
    if version == 6:
        return IPv6Address(octets)
    if version != 4:
        raise BadValue("flow.ip_version", f"cannot be {version}")
    if octets[:12] != _MAPPED:
        raise BadValue("flow.address", f"{octets.hex()} is no IPv4 address mapped into IPv6")
    return IPv4Address(octets[12:])


def _octets(address: IPAddress) -> bytes:
    """The sixteen bytes of an address; an IPv4 address is mapped into IPv6."""
    return address.packed if isinstance(address, IPv6Address) else _MAPPED + address.packed


def _ip_version(src: IPAddress, dst: IPAddress) -> int:
    """The IP version of both addresses. Raises BadValue if they differ."""
    for address in (src, dst):
        if not isinstance(address, IPv4Address | IPv6Address):
            raise BadValue("flow.address", f"cannot be {address!r}, only an address of the ipaddress module")
    if src.version != dst.version:
        raise BadValue("flow.address", f"cannot be {src} and {dst}, of two IP versions")
    return src.version


def decode_records(data: bytes) -> tuple[FlowRecord, ...]:
    """Decode an array of flow records. Raises WireError."""
    make = FlowRecord._make
    # fmt: off
    return tuple([
        make((
            _KINDS[kind], _address(version, src), _address(version, dst), src_port, dst_port,
            out_port, in_port, scale_src, scale_dst, mss_src, mss_dst,
            sent_bytes, first_ns, last_ns, rtt_us, _REASONS[reason],
        ))
        for (
            kind, version, scale_src, scale_dst, src, dst, src_port, dst_port, mss_src, mss_dst,
            in_port, out_port, sent_bytes, first_ns, last_ns, rtt_us, reason,
        ) in _RECORD.iter_rows(data)
    ])
    # fmt: on


def encode_records(records: Iterable[FlowRecord]) -> bytes:
    """Encode an array of flow records. Raises BadValue."""
    pack = _RECORD.pack_row
    # fmt: off
    return b"".join([
        pack(
            _KINDS[record.kind], _ip_version(record.src, record.dst), record.scale_src, record.scale_dst,
            _octets(record.src), _octets(record.dst), record.src_port, record.dst_port,
            record.mss_src, record.mss_dst, record.in_port, record.out_port,
            record.sent_bytes, record.first_ns, record.last_ns, record.handshake_rtt_us,
            _REASONS[record.reason],
        )
        for record in records
    ])
    # fmt: on


def decode_entries(count: int, data: bytes) -> tuple[ArmEntry, ...]:
    """Decode the ``count`` entries of an ARM. Raises WireError."""
    if len(data) > count * _ENTRY.size:
        raise BadLength("arm.count", f"{count} entries in {len(data)} bytes")
    if len(data) < count * _ENTRY.size:
        raise Truncated("arm.count", f"{count} entries in {len(data)} bytes")
    pieces = (data[at : at + _ENTRY.size] for at in range(0, len(data), _ENTRY.size))
    return tuple(_decode_entry(_ENTRY.unpack(piece)) for piece in pieces)


def _decode_entry(values: dict[str, Any]) -> ArmEntry:
    version = values.pop("ip_version")
    addresses = {name: _address(version, values[name]) for name in ("src", "dst")}
    return ArmEntry(**values | addresses)


def encode_entries(entries: Sequence[ArmEntry]) -> bytes:
    """Encode the entries of an ARM. Raises BadValue."""
    if len(entries) > ARM_MAX:
        raise BadValue("arm.entries", f"cannot be {len(entries)}, at most {ARM_MAX}")
    return b"".join(map(_encode_entry, entries))


def _encode_entry(entry: ArmEntry) -> bytes:
    version = _ip_version(entry.src, entry.dst)
    octets = {"src": _octets(entry.src), "dst": _octets(entry.dst)}
    return _ENTRY.pack(**asdict(entry) | octets, ip_version=version)
