"""FLOW_REPORT's records and ARM's entries <-> bytes; records come by tens of thousands a second."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Generic, NoReturn, TypeVar

from openflow_ext._wire_errors import BadLength, BadValue, Truncated
from openflow_ext._wire_layout import Layout, positive
from openflow_ext._wire_types import Arm, ArmEntry, CloseReason, FlowKind, FlowRecord, IPAddress

_E = TypeVar("_E", bound=IntEnum)


class _Members(dict[int, _E], Generic[_E]):
    """An enum's members by number: faster than calling the enum. Raises BadValue for the field."""

    def __init__(self, field: str, enum: type[_E]) -> None:
        super().__init__({member.value: member for member in enum})
        self._field = field

    def __missing__(self, value: object) -> NoReturn:
        raise BadValue(self._field, f"cannot be {value!r}")


RECORD = Layout(
    "flow_record",
    "kind:B ip_version:B scale_src:B scale_dst:B src:16s dst:16s src_port:H dst_port:H mss_src:H mss_dst:H"
    " in_port:I out_port:I 4x sent_bytes:Q first_ns:Q last_ns:Q handshake_rtt_us:I reason:B 3x",
)
ENTRY = Layout(
    "arm_entry",
    "ip_version:B alpha:B table_id:B 1x src:16s dst:16s src_port:H dst_port:H window_bytes:I cookie:Q"
    " priority:H hard_timeout_s:H 8x",
    alpha=positive,
)
FLOW_REPORT_MAX = (0xFFFF - 32) // RECORD.size
"""The most records that one FlowReport can carry."""

ARM_MAX = (0xFFFF - 24) // ENTRY.size
"""The most entries that can be armed on one port."""

_ARM = Layout("arm", "port_no:I count:H 2x")
_KINDS = _Members("flow_record.kind", FlowKind)
_REASONS = _Members("flow_record.reason", CloseReason)
_MAPPED = bytes(10) + b"\xff\xff"


@lru_cache(1 << 14)
def _address(version: int, octets: bytes) -> IPAddress:
    """The address in sixteen ``octets``. Few hosts send many flows, so most are found in the cache."""
    if version == 6:
        return IPv6Address(octets)
    if version != 4:
        raise BadValue("flow.ip_version", f"cannot be {version}")
    if octets[:12] != _MAPPED:
        raise BadValue("flow.address", f"{octets.hex()} is no IPv4 address mapped into IPv6")
    return IPv4Address(octets[12:])


def _octets(address: IPAddress) -> bytes:
    return address.packed if isinstance(address, IPv6Address) else _MAPPED + address.packed


def _version(src: IPAddress, dst: IPAddress) -> int:
    for address in (src, dst):
        if not isinstance(address, IPv4Address | IPv6Address):
            raise BadValue("flow.address", f"cannot be {address!r}, only an address of the ipaddress module")
    if src.version != dst.version:
        raise BadValue("flow.address", f"cannot be {src} and {dst}, of two IP versions")
    return src.version


def decode_records(data: bytes) -> tuple[FlowRecord, ...]:
    """The records that ``data`` is. Raises WireError."""
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
        ) in RECORD.iter_rows(data)
    ])
    # fmt: on


def encode_records(records: Iterable[FlowRecord]) -> bytes:
    """The bytes of ``records``. Raises BadValue."""
    pack = RECORD.pack_row
    # fmt: off
    return b"".join([
        pack(
            _KINDS[record.kind], _version(record.src, record.dst), record.scale_src, record.scale_dst,
            _octets(record.src), _octets(record.dst), record.src_port, record.dst_port,
            record.mss_src, record.mss_dst, record.in_port, record.out_port,
            record.sent_bytes, record.first_ns, record.last_ns, record.handshake_rtt_us,
            _REASONS[record.reason],
        )
        for record in records
    ])
    # fmt: on


def decode_arm(data: bytes) -> Arm:
    """ARM's body. Raises WireError."""
    head = _ARM.unpack(data[: _ARM.size])
    entries = data[_ARM.size :]
    if len(entries) > head["count"] * ENTRY.size:
        raise BadLength("arm.count", f"{head['count']} entries in {len(entries)} bytes")
    if len(entries) < head["count"] * ENTRY.size:
        raise Truncated("arm.count", f"{head['count']} entries in {len(entries)} bytes")
    pieces = (entries[at : at + ENTRY.size] for at in range(0, len(entries), ENTRY.size))
    return Arm(head["port_no"], tuple(_decode_entry(ENTRY.unpack(piece)) for piece in pieces))


def _decode_entry(values: dict[str, Any]) -> ArmEntry:
    version = values.pop("ip_version")
    addresses = {name: _address(version, values[name]) for name in ("src", "dst")}
    return ArmEntry(**values | addresses)


def encode_arm(arm: Arm) -> bytes:
    """ARM's body. Raises BadValue."""
    if len(arm.entries) > ARM_MAX:
        raise BadValue("arm.entries", f"cannot be {len(arm.entries)}, at most {ARM_MAX}")
    return _ARM.pack(port_no=arm.port_no, count=len(arm.entries)) + b"".join(map(_encode_entry, arm.entries))


def _encode_entry(entry: ArmEntry) -> bytes:
    version = _version(entry.src, entry.dst)
    octets = {"src": _octets(entry.src), "dst": _octets(entry.dst)}
    return ENTRY.pack(**asdict(entry) | octets, ip_version=version)
