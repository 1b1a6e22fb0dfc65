"""Whole OpenFlow messages of the extension to bytes and back."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from openflow_ext.wire.errors import BadLength, BadValue, ErrorCode, Truncated, UnknownType
from openflow_ext.wire.flows import decode_entries, decode_records, encode_entries, encode_records
from openflow_ext.wire.layout import Layout
from openflow_ext.wire.messages import (
    EXPERIMENTER_MESSAGES,
    Arm,
    BufAlarm,
    BufNormal,
    ExperimenterError,
    FlowReport,
    Message,
    PortCountersReply,
    PortCountersRequest,
)
from openflow_ext.wire.openflow import (
    OFP13,
    OFPMP_EXPERIMENTER,
    OFPMPF_REPLY_MORE,
    OFPT_BUF_ALARM,
    OFPT_BUF_NORMAL,
    OFPT_ERROR,
    OFPT_EXPERIMENTER,
    OFPT_MULTIPART_REPLY,
    OFPT_MULTIPART_REQUEST,
    WEIR_EXPERIMENTER_ID,
    check_version,
)
from openflow_ext.wire.port_counters import decode_counters, encode_counters
from openflow_ext.wire.ports import encode_port, take_port
from openflow_ext.wire.types import Header

__all__ = [
    "Framing",
    "decode_header",
    "decode_message",
    "encode_message",
    "is_extension_message",
    "is_native_message",
]

Framing: TypeAlias = Literal["experimenter", "native"]
"""The framing of BUF_ALARM and BUF_NORMAL in OpenFlow 1.3. "native" gives each a message type of its own,
as in the paper."""

_EXPERIMENTER_ID = WEIR_EXPERIMENTER_ID.to_bytes(4, "big")
_HEADER = Layout("ofp_header", "version:B type:B length:H xid:I")
_EXPERIMENTER = Layout("ofp_experimenter", "experimenter:I exp_type:I")
_MULTIPART = Layout("ofp_multipart", "type:H flags:H 4x experimenter:I exp_type:I")
_ERROR = Layout("ofp_error", "type:H exp_type:H experimenter:I")
_EXPERIMENTER_ID_AT = {
    OFPT_EXPERIMENTER: 8,
    OFPT_MULTIPART_REQUEST: 16,
    OFPT_MULTIPART_REPLY: 16,
    OFPT_ERROR: 12,
}
"""Offset of the experimenter id by OpenFlow message type."""

_COUNTERS_REQUEST = Layout("port_counters_request", "port_no:I 4x")
_PORT_COUNTERS = 1
"""``exp_type`` of the multipart messages."""

_CLASSES = {format_.exp_type: cls for cls, format_ in EXPERIMENTER_MESSAGES.items()}
_ALLOWANCE_BYTES = 8
"""The end of BUF_ALARM and BUF_NORMAL, which an agent of version 0.2 does not send: an allowance of 0."""

_NATIVE_CLASSES: dict[int, type[BufAlarm | BufNormal]] = {
    OFPT_BUF_ALARM: BufAlarm,
    OFPT_BUF_NORMAL: BufNormal,
}
_NATIVE_TYPES: dict[type[Message], int] = {cls: of_type for of_type, cls in _NATIVE_CLASSES.items()}


def decode_header(data: bytes) -> Header:
    """Decode the ofp_header at the start of ``data``. Raises Truncated."""
    return Header(**_HEADER.unpack(data[: _HEADER.size]))


def is_extension_message(data: bytes) -> bool:
    """Whether an OpenFlow message carries Weir's experimenter id. It may be malformed. Never raises."""
    at = _EXPERIMENTER_ID_AT.get(data[1]) if len(data) > 1 else None
    if at is None or data[at : at + 4] != _EXPERIMENTER_ID:
        return False
    return data[1] == OFPT_EXPERIMENTER or data[8:10] == b"\xff\xff"


def is_native_message(data: bytes) -> bool:
    """Whether an OpenFlow message is a BUF_ALARM or BUF_NORMAL in native framing. Never raises."""
    return len(data) > 1 and data[0] == OFP13 and data[1] in _NATIVE_CLASSES


def decode_message(data: bytes) -> Message:
    """Decode ``data``, which is one whole OpenFlow message. Raises WireError."""
    header = decode_header(data)
    if header.length > len(data):
        raise Truncated("ofp_header.length", f"{header.length} bytes announced, {len(data)} there")
    if header.length < len(data):
        raise BadLength("ofp_header.length", f"{header.length} bytes announced, {len(data)} there")
    check_version(header.version)
    body = data[_HEADER.size :]
    if is_native_message(data):
        return _decode_body(_NATIVE_CLASSES[header.type], header.version, body)
    if header.type == OFPT_EXPERIMENTER:
        head, rest = _split_head(_EXPERIMENTER, body)
        if (cls := _CLASSES.get(head["exp_type"])) is None:
            raise UnknownType("ofp_experimenter.exp_type", f"{head['exp_type']} is unknown")
        return _decode_body(cls, header.version, rest)
    if header.type in (OFPT_MULTIPART_REQUEST, OFPT_MULTIPART_REPLY):
        return _decode_multipart(header.type, body)
    if header.type == OFPT_ERROR:
        head, refused = _split_head(_ERROR, body)
        return ExperimenterError(_error_code(head["exp_type"]), refused)
    raise UnknownType("ofp_header.type", f"{header.type} carries no extension message")


def _split_head(layout: Layout, body: bytes) -> tuple[dict[str, Any], bytes]:
    """Decode the head of ``body``, which must carry Weir's experimenter id; the rest follows."""
    head = layout.unpack(body[: layout.size])
    if head.get("type", 0xFFFF) != 0xFFFF:
        raise UnknownType(f"{layout.name}.type", f"{head['type']} is not EXPERIMENTER (65535)")
    if head["experimenter"] != WEIR_EXPERIMENTER_ID:
        raise UnknownType(f"{layout.name}.experimenter", f"{head['experimenter']:#010x} is not Weir's id")
    return head, body[layout.size :]


def _decode_body(cls: type[Message], version: int, body: bytes) -> Message:
    layout = EXPERIMENTER_MESSAGES[cls].layout
    if issubclass(cls, BufAlarm | BufNormal):
        port, rest = take_port(version, body)
        if len(rest) == layout.size - _ALLOWANCE_BYTES:
            rest += bytes(_ALLOWANCE_BYTES)
        return cls(port=port, **layout.unpack(rest))
    if cls is FlowReport:
        head, records = layout.unpack(body[: layout.size]), body[layout.size :]
        return FlowReport(decode_records(records), **head)
    if cls is Arm:
        head, entries = layout.unpack(body[: layout.size]), body[layout.size :]
        return Arm(head["port_no"], decode_entries(head["count"], entries))
    return cls(**layout.unpack(body))


def _decode_multipart(of_type: int, body: bytes) -> Message:
    head, rest = _split_head(_MULTIPART, body)
    if head["exp_type"] != _PORT_COUNTERS:
        raise UnknownType("ofp_multipart.exp_type", f"{head['exp_type']} is unknown")
    if of_type == OFPT_MULTIPART_REQUEST:
        return PortCountersRequest(**_COUNTERS_REQUEST.unpack(rest))
    return PortCountersReply(decode_counters(rest), more=bool(head["flags"] & OFPMPF_REPLY_MORE))


def _error_code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError as error:
        raise BadValue("ofp_error.exp_type", f"{number} is no error code") from error


def encode_message(
    message: Message, version: int = OFP13, xid: int = 0, *, framing: Framing = "experimenter"
) -> bytes:
    """Encode a whole OpenFlow message. Raises BadValue, which names the field that cannot be sent.

    ``framing`` "native" applies to BUF_ALARM and BUF_NORMAL in OpenFlow 1.3 only. OpenFlow 1.5 uses their
    message types for other messages. Everything else is framed as OFPT_EXPERIMENTER.
    """
    check_version(version)
    if framing not in get_args(Framing):
        raise BadValue("framing", f"cannot be {framing!r}, only one of {get_args(Framing)}")
    of_type, head, body = _encode_parts(message, version)
    if framing == "native" and version == OFP13 and type(message) in _NATIVE_TYPES:
        of_type, head = _NATIVE_TYPES[type(message)], b""
    length = _HEADER.size + len(head) + len(body)
    return _HEADER.pack(version=version, type=of_type, length=length, xid=xid) + head + body


def _encode_parts(message: Message, version: int) -> tuple[int, bytes, bytes]:
    """The OpenFlow message type, the head with the experimenter id, and the body."""
    match message:
        case PortCountersRequest():
            return OFPT_MULTIPART_REQUEST, _multipart_head(), _COUNTERS_REQUEST.pack_fields(message)
        case PortCountersReply():
            records = encode_counters(message.records)
            return OFPT_MULTIPART_REPLY, _multipart_head(message.more), records
        case ExperimenterError():
            code = _error_code(message.code)
            head = _ERROR.pack(type=0xFFFF, exp_type=code, experimenter=WEIR_EXPERIMENTER_ID)
            return OFPT_ERROR, head, message.data
    format_ = EXPERIMENTER_MESSAGES[type(message)]
    head = _EXPERIMENTER.pack(experimenter=WEIR_EXPERIMENTER_ID, exp_type=format_.exp_type)
    return OFPT_EXPERIMENTER, head, _encode_body(message, format_.layout, version)


def _encode_body(message: Message, layout: Layout, version: int) -> bytes:
    match message:
        case BufAlarm() | BufNormal():
            return encode_port(message.port, version) + layout.pack_fields(message)
        case FlowReport():
            return layout.pack_fields(message) + encode_records(message.records)
        case Arm():
            entries = encode_entries(message.entries)
            return layout.pack(port_no=message.port_no, count=len(message.entries)) + entries
    return layout.pack_fields(message)


def _multipart_head(more: bool = False) -> bytes:
    return _MULTIPART.pack(
        type=OFPMP_EXPERIMENTER, flags=int(more), experimenter=WEIR_EXPERIMENTER_ID, exp_type=_PORT_COUNTERS
    )
