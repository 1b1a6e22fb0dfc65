"""The extension on the wire: frozen dataclasses <-> bytes, and nothing else.

Messages are whole OpenFlow messages, header included; actions and OXM fields are whole as well. Both
directions are strict about lengths and values; padding is zero when sent and ignored when received.
``docs/wire-format.md`` shows each layout with an example.

    WireError           what cannot be decoded or encoded; names the field
      Truncated         the bytes end before the field does
      BadLength         a length field disagrees with the bytes, or bytes are left over
      BadValue          a field holds (or is given) a value that it cannot have
      UnknownType       a version, message, multipart, action or field type that is not the extension's

OpenFlow 1.3 and 1.5 differ in ofp_port alone. Not implemented: 1.4, and TCP_WINDOW in a set-field action
(MOD_WINDOW and SET_WINDOW are how a window is changed).
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, TypeAlias, get_args

from openflow_ext._wire_actions import (
    decode_action,
    decode_field,
    encode_action,
    encode_field,
    is_extension_action,
    is_extension_field,
)
from openflow_ext._wire_errors import (
    OFP13,
    OFP15,
    OFPAT_EXPERIMENTER,
    OFPET_EXPERIMENTER,
    OFPMP_EXPERIMENTER,
    OFPMPF_REPLY_MORE,
    OFPP_ANY,
    OFPT_BUF_ALARM,
    OFPT_BUF_NORMAL,
    OFPT_ERROR,
    OFPT_EXPERIMENTER,
    OFPT_MULTIPART_REPLY,
    OFPT_MULTIPART_REQUEST,
    OFPXMC_EXPERIMENTER,
    OFPXMT_OFB_TCP_WINDOW,
    WEIR_EXPERIMENTER_ID,
    BadLength,
    BadValue,
    ErrorCode,
    Truncated,
    UnknownType,
    WireError,
    check_version,
)
from openflow_ext._wire_flows import (
    ARM_MAX,
    FLOW_REPORT_MAX,
    decode_arm,
    decode_records,
    encode_arm,
    encode_records,
)
from openflow_ext._wire_layout import Layout, bits, flag
from openflow_ext._wire_ports import (
    decode_port,
    encode_port,
    take_port,
)
from openflow_ext._wire_types import (
    DEFAULT_ALPHA,
    FAIR_SHARE,
    OFPP_UNKNOWN,
    SCALE_UNKNOWN,
    Action,
    Arm,
    ArmEntry,
    BufAlarm,
    BufNormal,
    CloseReason,
    DecrementNi,
    ExperimenterError,
    Field,
    FlowKind,
    FlowKinds,
    FlowRecord,
    FlowReport,
    FlowReportConfig,
    Header,
    IncrementNi,
    IPAddress,
    MarkMode,
    Message,
    ModWindow,
    OfpPort,
    PortConfig,
    PortConfigFlags,
    PortConfigReply,
    PortCountersFlags,
    PortCountersRecord,
    PortCountersReply,
    PortCountersRequest,
    Reflex,
    SetWindow,
    TcpWindow,
)

__all__ = [
    "ARM_MAX",
    "DEFAULT_ALPHA",
    "FAIR_SHARE",
    "FLOW_REPORT_MAX",
    "OFP13",
    "OFP15",
    "OFPAT_EXPERIMENTER",
    "OFPET_EXPERIMENTER",
    "OFPMPF_REPLY_MORE",
    "OFPMP_EXPERIMENTER",
    "OFPP_ANY",
    "OFPP_UNKNOWN",
    "OFPT_BUF_ALARM",
    "OFPT_BUF_NORMAL",
    "OFPT_ERROR",
    "OFPT_EXPERIMENTER",
    "OFPT_MULTIPART_REPLY",
    "OFPT_MULTIPART_REQUEST",
    "OFPXMC_EXPERIMENTER",
    "OFPXMT_OFB_TCP_WINDOW",
    "PORT_COUNTERS_MAX",
    "SCALE_UNKNOWN",
    "WEIR_EXPERIMENTER_ID",
    "Action",
    "Arm",
    "ArmEntry",
    "BadLength",
    "BadValue",
    "BufAlarm",
    "BufNormal",
    "CloseReason",
    "DecrementNi",
    "ErrorCode",
    "ExperimenterError",
    "Field",
    "FlowKind",
    "FlowKinds",
    "FlowRecord",
    "FlowReport",
    "FlowReportConfig",
    "Framing",
    "Header",
    "IPAddress",
    "IncrementNi",
    "MarkMode",
    "Message",
    "ModWindow",
    "OfpPort",
    "PortConfig",
    "PortConfigFlags",
    "PortConfigReply",
    "PortCountersFlags",
    "PortCountersRecord",
    "PortCountersReply",
    "PortCountersRequest",
    "Reflex",
    "SetWindow",
    "TcpWindow",
    "Truncated",
    "UnknownType",
    "WireError",
    "decode_action",
    "decode_field",
    "decode_header",
    "decode_message",
    "decode_port",
    "encode_action",
    "encode_field",
    "encode_message",
    "encode_port",
    "is_extension_action",
    "is_extension_field",
    "is_extension_message",
    "is_native_message",
]


Framing: TypeAlias = Literal["experimenter", "native"]
"""How BUF_ALARM and BUF_NORMAL go out in OpenFlow 1.3: "native" is the paper's form, as message types."""

_OUR_ID = WEIR_EXPERIMENTER_ID.to_bytes(4, "big")
_HEADER = Layout("ofp_header", "version:B type:B length:H xid:I")
_CROSSING = Layout(
    "buf_alarm",
    "port_buf_pkts:I port_buf_bytes:I port_rate_bps:Q cookie:Q priority:H 2x n_i:I crossing_ns:Q",
)
_PORT_CONFIG = Layout(
    "port_config",
    "port_no:I flags:I k_pkts:I rtt_us:I capacity_bps:Q common_rtt_us:I least_window_bytes:I cookie:Q"
    " priority:H mark_mode:H mark_min_pkts:I mark_max_pkts:I 4x",
    flags=bits(PortConfigFlags),
    mark_mode=MarkMode,
)
_REPORT_CONFIG = Layout(
    "flow_report_config", "kinds:I interval_ms:I active_ms:I idle_ms:I", kinds=bits(FlowKinds)
)
_REFLEX = Layout("reflex", "port_no:I rank:I on:B 3x n_i:I cookie:Q when_ns:Q", on=flag)
_REPORT = Layout("flow_report", "lost:Q roll_called:B 7x", roll_called=flag)
_COUNTERS_REQUEST = Layout("port_counters_request", "port_no:I 4x")
_COUNTERS = Layout(
    "port_counters",
    "port_no:I n_i:I fair_share_bytes:I flags:I capacity_bps:Q queue_pkts:I queue_bytes:I"
    " queue_max_pkts:I queue_max_bytes:I alarms:Q normals:Q syns_counted:Q fins_counted:Q acks_seen:Q"
    " clamped:Q marked:Q drops:Q unscaled:Q untracked:Q 8x",
    flags=bits(PortCountersFlags),
)
_EXPERIMENTER = Layout("ofp_experimenter", "experimenter:I exp_type:I")
_MULTIPART = Layout("ofp_multipart", "type:H flags:H 4x experimenter:I exp_type:I")
_ERROR = Layout("ofp_error", "type:H exp_type:H experimenter:I")
_EXPERIMENTER_AT = {
    OFPT_EXPERIMENTER: 8,
    OFPT_MULTIPART_REQUEST: 16,
    OFPT_MULTIPART_REPLY: 16,
    OFPT_ERROR: 12,
}

_CROSSINGS: dict[int, type[BufAlarm] | type[BufNormal]] = {1: BufAlarm, 2: BufNormal}
_NATIVE: dict[int, type[BufAlarm] | type[BufNormal]] = {OFPT_BUF_ALARM: BufAlarm, OFPT_BUF_NORMAL: BufNormal}
_FIXED: dict[int, tuple[type[PortConfig | PortConfigReply | FlowReportConfig | Reflex], Layout]] = {
    3: (PortConfig, _PORT_CONFIG),
    4: (PortConfigReply, _PORT_CONFIG),
    7: (FlowReportConfig, _REPORT_CONFIG),
    8: (Reflex, _REFLEX),
}
_FLOW_REPORT = 5
_ARM = 6
_EXP_TYPES: dict[type, int] = {
    **{cls: number for number, cls in _CROSSINGS.items()},
    **{cls: number for number, (cls, _) in _FIXED.items()},
    FlowReport: _FLOW_REPORT,
    Arm: _ARM,
}
_NATIVE_TYPES: dict[type, int] = {cls: number for number, cls in _NATIVE.items()}
_PORT_COUNTERS = 1

PORT_COUNTERS_MAX = (0xFFFF - _HEADER.size - _MULTIPART.size) // _COUNTERS.size
"""The most records that one PortCountersReply can carry."""


def _values(instance: Any) -> dict[str, Any]:
    return {field.name: getattr(instance, field.name) for field in fields(instance)}


def decode_header(data: bytes) -> Header:
    """The ofp_header at the start of ``data``. Raises Truncated."""
    return Header(**_HEADER.unpack(data[: _HEADER.size]))


def is_extension_message(data: bytes) -> bool:
    """Whether an OpenFlow message carries our experimenter id, well-formed or not; never raises."""
    at = _EXPERIMENTER_AT.get(data[1]) if len(data) > 1 else None
    if at is None or data[at : at + 4] != _OUR_ID:
        return False
    return data[1] == OFPT_EXPERIMENTER or data[8:10] == b"\xff\xff"


def is_native_message(data: bytes) -> bool:
    """Whether an OpenFlow message is a BUF_ALARM or BUF_NORMAL in native framing; never raises."""
    return len(data) > 1 and data[0] == OFP13 and data[1] in _NATIVE


def decode_message(data: bytes) -> Message:
    """The message that ``data``, one whole OpenFlow message, carries. Raises WireError."""
    header = decode_header(data)
    if header.length > len(data):
        raise Truncated("ofp_header.length", f"{header.length} bytes announced, {len(data)} there")
    if header.length < len(data):
        raise BadLength("ofp_header.length", f"{header.length} bytes announced, {len(data)} there")
    check_version(header.version)
    body = data[_HEADER.size :]
    if is_native_message(data):
        return _decode_crossing(_NATIVE[header.type], header.version, body)
    if header.type == OFPT_EXPERIMENTER:
        return _decode_experimenter(header.version, body)
    if header.type in (OFPT_MULTIPART_REQUEST, OFPT_MULTIPART_REPLY):
        return _decode_multipart(header.type, body)
    if header.type == OFPT_ERROR:
        return _decode_error(body)
    raise UnknownType("ofp_header.type", f"{header.type} carries no extension message")


def _open(layout: Layout, body: bytes) -> tuple[dict[str, Any], bytes]:
    """Split ``body`` after ``layout``, which must carry our experimenter id."""
    head = layout.unpack(body[: layout.size])
    if head.get("type", 0xFFFF) != 0xFFFF:
        raise UnknownType(f"{layout.name}.type", f"{head['type']} is not EXPERIMENTER (65535)")
    if head["experimenter"] != WEIR_EXPERIMENTER_ID:
        raise UnknownType(f"{layout.name}.experimenter", f"{head['experimenter']:#010x} is not ours")
    return head, body[layout.size :]


def _decode_experimenter(version: int, body: bytes) -> Message:
    head, rest = _open(_EXPERIMENTER, body)
    exp_type = head["exp_type"]
    if crossing := _CROSSINGS.get(exp_type):
        return _decode_crossing(crossing, version, rest)
    if exp_type in _FIXED:
        cls, layout = _FIXED[exp_type]
        return cls(**layout.unpack(rest))
    if exp_type == _FLOW_REPORT:
        head = _REPORT.unpack(rest[: _REPORT.size])
        return FlowReport(decode_records(rest[_REPORT.size :]), **head)
    if exp_type == _ARM:
        return decode_arm(rest)
    raise UnknownType("ofp_experimenter.exp_type", f"{exp_type} is unknown")


def _decode_crossing(cls: type[BufAlarm] | type[BufNormal], version: int, body: bytes) -> Message:
    port, rest = take_port(version, body)
    return cls(port=port, **_CROSSING.unpack(rest))


def _decode_multipart(of_type: int, body: bytes) -> Message:
    head, rest = _open(_MULTIPART, body)
    if head["exp_type"] != _PORT_COUNTERS:
        raise UnknownType("ofp_multipart.exp_type", f"{head['exp_type']} is unknown")
    if of_type == OFPT_MULTIPART_REQUEST:
        return PortCountersRequest(**_COUNTERS_REQUEST.unpack(rest))
    pieces = (rest[at : at + _COUNTERS.size] for at in range(0, len(rest), _COUNTERS.size))
    records = tuple(PortCountersRecord(**_COUNTERS.unpack(piece)) for piece in pieces)
    return PortCountersReply(records, more=bool(head["flags"] & OFPMPF_REPLY_MORE))


def _decode_error(body: bytes) -> Message:
    head, data = _open(_ERROR, body)
    return ExperimenterError(_error_code(head["exp_type"]), data)


def _error_code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError as error:
        raise BadValue("ofp_error.exp_type", f"{number} is no error code") from error


def encode_message(
    message: Message, version: int = OFP13, xid: int = 0, *, framing: Framing = "experimenter"
) -> bytes:
    """The whole OpenFlow message. Raises BadValue, naming the field that cannot be sent.

    ``framing`` "native" holds for BUF_ALARM and BUF_NORMAL in OpenFlow 1.3; 1.5 uses their message types
    for something else, so there, as for all other messages, the framing is experimenter.
    """
    check_version(version)
    if framing not in get_args(Framing):
        raise BadValue("framing", f"cannot be {framing!r}, only one of {get_args(Framing)}")
    of_type, body = _encode_body(message, version)
    if framing == "native" and version == OFP13 and type(message) in _NATIVE_TYPES:
        of_type, body = _NATIVE_TYPES[type(message)], body[_EXPERIMENTER.size :]
    length = _HEADER.size + len(body)
    return _HEADER.pack(version=version, type=of_type, length=length, xid=xid) + body


def _encode_body(message: Message, version: int) -> tuple[int, bytes]:
    match message:
        case PortCountersRequest():
            return OFPT_MULTIPART_REQUEST, _multipart() + _COUNTERS_REQUEST.pack(port_no=message.port_no)
        case PortCountersReply():
            records = b"".join(_COUNTERS.pack(**_values(record)) for record in message.records)
            return OFPT_MULTIPART_REPLY, _multipart(message.more) + records
        case ExperimenterError():
            code = _error_code(message.code)
            head = _ERROR.pack(type=0xFFFF, exp_type=code, experimenter=WEIR_EXPERIMENTER_ID)
            return OFPT_ERROR, head + message.data
        case BufAlarm() | BufNormal():
            rest = encode_port(message.port, version) + _CROSSING.pack(**_values(message))
        case FlowReport():
            rest = _REPORT.pack(lost=message.lost, roll_called=message.roll_called) + encode_records(
                message.records
            )
        case Arm():
            rest = encode_arm(message)
        case PortConfig() | PortConfigReply() | FlowReportConfig() | Reflex():
            _, layout = _FIXED[_EXP_TYPES[type(message)]]
            rest = layout.pack(**_values(message))
    head = _EXPERIMENTER.pack(experimenter=WEIR_EXPERIMENTER_ID, exp_type=_EXP_TYPES[type(message)])
    return OFPT_EXPERIMENTER, head + rest


def _multipart(more: bool = False) -> bytes:
    return _MULTIPART.pack(
        type=OFPMP_EXPERIMENTER, flags=int(more), experimenter=WEIR_EXPERIMENTER_ID, exp_type=_PORT_COUNTERS
    )
