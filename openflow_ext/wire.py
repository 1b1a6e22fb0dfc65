"""The extension on the wire: frozen dataclasses <-> bytes, and nothing else.

Messages are whole OpenFlow messages, header included; actions are whole actions. Both directions are
strict about lengths and values; padding is zero when sent and ignored when received.
``docs/wire-format.md`` shows each layout with an example.

    WireError           any message or action that cannot be decoded or encoded; names the field
      Truncated         the bytes end before the field does
      BadLength         a length field disagrees with the bytes, or bytes are left over
      BadValue          a field holds (or is given) a value that it cannot have
      UnknownType       a version, message, multipart or action type that is not the extension's

Not implemented: OpenFlow 1.5 (another ofp_port, a ``_PORTS`` entry), FLOW_REPORT, ARM, the TCP_WINDOW
OXM field, and the paper's native message types 30 and 31.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from openflow_ext._wire_layout import Layout, positive
from openflow_ext._wire_types import (
    DEFAULT_ALPHA,
    FAIR_SHARE,
    OFP13,
    OFPAT_EXPERIMENTER,
    OFPET_EXPERIMENTER,
    OFPMP_EXPERIMENTER,
    OFPMPF_REPLY_MORE,
    OFPP_ANY,
    OFPT_ERROR,
    OFPT_EXPERIMENTER,
    OFPT_MULTIPART_REPLY,
    OFPT_MULTIPART_REQUEST,
    WEIR_EXPERIMENTER_ID,
    Action,
    BadLength,
    BadValue,
    BufAlarm,
    BufNormal,
    DecrementNi,
    ErrorCode,
    ExperimenterError,
    Header,
    IncrementNi,
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
    SetWindow,
    Truncated,
    UnknownType,
    WireError,
)

__all__ = [
    "DEFAULT_ALPHA",
    "FAIR_SHARE",
    "OFP13",
    "OFPAT_EXPERIMENTER",
    "OFPET_EXPERIMENTER",
    "OFPMPF_REPLY_MORE",
    "OFPMP_EXPERIMENTER",
    "OFPP_ANY",
    "OFPT_ERROR",
    "OFPT_EXPERIMENTER",
    "OFPT_MULTIPART_REPLY",
    "OFPT_MULTIPART_REQUEST",
    "PORT_COUNTERS_MAX",
    "WEIR_EXPERIMENTER_ID",
    "Action",
    "BadLength",
    "BadValue",
    "BufAlarm",
    "BufNormal",
    "DecrementNi",
    "ErrorCode",
    "ExperimenterError",
    "Header",
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
    "SetWindow",
    "Truncated",
    "UnknownType",
    "WireError",
    "decode_action",
    "decode_header",
    "decode_message",
    "decode_port",
    "encode_action",
    "encode_message",
    "encode_port",
    "is_extension_action",
    "is_extension_message",
]


_OUR_ID = WEIR_EXPERIMENTER_ID.to_bytes(4, "big")
_HW_ADDR = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")


def _values(instance: Any) -> dict[str, Any]:
    return {field.name: getattr(instance, field.name) for field in fields(instance)}


_HEADER = Layout("ofp_header", "version:B type:B length:H xid:I")
_PORT_13 = Layout(
    "ofp_port",
    "port_no:I 4x hw_addr:6s 2x name:16s config:I state:I curr:I advertised:I supported:I peer:I"
    " curr_speed:I max_speed:I",
)
_CROSSING = Layout(
    "buf_alarm",
    "port_buf_pkts:I port_buf_bytes:I port_rate_bps:Q cookie:Q priority:H 2x n_i:I crossing_ns:Q",
)
_PORT_CONFIG = Layout(
    "port_config",
    "port_no:I flags:I k_pkts:I rtt_us:I capacity_bps:Q common_rtt_us:I least_window_bytes:I cookie:Q"
    " priority:H mark_mode:H mark_min_pkts:I mark_max_pkts:I 4x",
    flags=PortConfigFlags,
    mark_mode=MarkMode,
)
_COUNTERS_REQUEST = Layout("port_counters_request", "port_no:I 4x")
_COUNTERS = Layout(
    "port_counters",
    "port_no:I n_i:I fair_share_bytes:I flags:I capacity_bps:Q queue_pkts:I queue_bytes:I"
    " queue_max_pkts:I queue_max_bytes:I alarms:Q normals:Q syns_counted:Q fins_counted:Q acks_seen:Q"
    " clamped:Q marked:Q drops:Q unscaled:Q untracked:Q 8x",
    flags=PortCountersFlags,
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
_ACTION = Layout("ofp_action", "type:H len:H experimenter:I subtype:H")
_MOD_WINDOW = Layout("mod_window", "alpha:B 1x window_bytes:I", alpha=positive)
_COUNT_NI = Layout("count_ni", "2x port:I")
_SET_WINDOW = Layout("set_window", "2x value:I")

_CROSSINGS: dict[int, type[BufAlarm] | type[BufNormal]] = {1: BufAlarm, 2: BufNormal}
_PORT_CONFIGS: dict[int, type[PortConfig] | type[PortConfigReply]] = {3: PortConfig, 4: PortConfigReply}
_ACTIONS: dict[int, tuple[type[Action], Layout]] = {
    1: (ModWindow, _MOD_WINDOW),
    2: (IncrementNi, _COUNT_NI),
    3: (DecrementNi, _COUNT_NI),
    4: (SetWindow, _SET_WINDOW),
}
_EXP_TYPES: dict[type, int] = {cls: number for number, cls in (_CROSSINGS | _PORT_CONFIGS).items()}
_SUBTYPES: dict[type, int] = {cls: number for number, (cls, _) in _ACTIONS.items()}
_PORT_COUNTERS = 1

PORT_COUNTERS_MAX = (0xFFFF - _HEADER.size - _MULTIPART.size) // _COUNTERS.size
"""The most records that one PortCountersReply can carry."""


def decode_header(data: bytes) -> Header:
    """The ofp_header at the start of ``data``. Raises Truncated."""
    return Header(**_HEADER.unpack(data[: _HEADER.size]))


def is_extension_message(data: bytes) -> bool:
    """Whether an OpenFlow message carries our experimenter id, well-formed or not; never raises."""
    at = _EXPERIMENTER_AT.get(data[1]) if len(data) > 1 else None
    if at is None or data[at : at + 4] != _OUR_ID:
        return False
    return data[1] == OFPT_EXPERIMENTER or data[8:10] == b"\xff\xff"


def is_extension_action(data: bytes) -> bool:
    """Whether an action carries our experimenter id; never raises."""
    return data[:2] == b"\xff\xff" and data[4:8] == _OUR_ID


def decode_message(data: bytes) -> Message:
    """The message that ``data``, one whole OpenFlow message, carries. Raises WireError."""
    header = decode_header(data)
    if header.length > len(data):
        raise Truncated("ofp_header.length", f"{header.length} bytes announced, {len(data)} there")
    if header.length < len(data):
        raise BadLength("ofp_header.length", f"{header.length} bytes announced, {len(data)} there")
    _check_version(header.version)
    body = data[_HEADER.size :]
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
        port, rest = _take_port(version, rest)
        return crossing(port=port, **_CROSSING.unpack(rest))
    if port_config := _PORT_CONFIGS.get(exp_type):
        return port_config(**_PORT_CONFIG.unpack(rest))
    raise UnknownType("ofp_experimenter.exp_type", f"{exp_type} is unknown")


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
    try:
        return ExperimenterError(ErrorCode(head["exp_type"]), data)
    except ValueError as error:
        raise BadValue("ofp_error.exp_type", f"{head['exp_type']} is no error code") from error


def encode_message(message: Message, version: int = OFP13, xid: int = 0) -> bytes:
    """The whole OpenFlow message. Raises BadValue, naming the field that cannot be sent."""
    _check_version(version)
    of_type, body = _encode_body(message, version)
    length = _HEADER.size + len(body)
    return _HEADER.pack(version=version, type=of_type, length=length, xid=xid) + body


def _encode_body(message: Message, version: int) -> tuple[int, bytes]:
    match message:
        case BufAlarm() | BufNormal():
            rest = encode_port(message.port, version) + _CROSSING.pack(**_values(message))
            return OFPT_EXPERIMENTER, _experimenter(message) + rest
        case PortConfig() | PortConfigReply():
            return OFPT_EXPERIMENTER, _experimenter(message) + _PORT_CONFIG.pack(**_values(message))
        case PortCountersRequest():
            return OFPT_MULTIPART_REQUEST, _multipart() + _COUNTERS_REQUEST.pack(port_no=message.port_no)
        case PortCountersReply():
            records = b"".join(_COUNTERS.pack(**_values(record)) for record in message.records)
            return OFPT_MULTIPART_REPLY, _multipart(message.more) + records
        case ExperimenterError():
            head = _ERROR.pack(type=0xFFFF, exp_type=message.code, experimenter=WEIR_EXPERIMENTER_ID)
            return OFPT_ERROR, head + message.data


def _experimenter(message: Message) -> bytes:
    return _EXPERIMENTER.pack(experimenter=WEIR_EXPERIMENTER_ID, exp_type=_EXP_TYPES[type(message)])


def _multipart(more: bool = False) -> bytes:
    return _MULTIPART.pack(
        type=OFPMP_EXPERIMENTER, flags=int(more), experimenter=WEIR_EXPERIMENTER_ID, exp_type=_PORT_COUNTERS
    )


def decode_port(data: bytes, version: int = OFP13) -> OfpPort:
    """The ofp_port that ``data`` is, no more and no less. Raises WireError."""
    port, rest = _take_port(version, data)
    if rest:
        raise BadLength("ofp_port", f"{len(rest)} bytes left over")
    return port


def _take_port(version: int, data: bytes) -> tuple[OfpPort, bytes]:
    """The ofp_port at the start of ``data``, and what follows it."""
    _check_version(version)
    values = _PORT_13.unpack(data[: _PORT_13.size])
    values["hw_addr"] = values["hw_addr"].hex(":")
    values["name"] = values["name"].split(b"\0", 1)[0]
    return OfpPort(**values), data[_PORT_13.size :]


def encode_port(port: OfpPort, version: int = OFP13) -> bytes:
    """The bytes of an ofp_port. Raises BadValue."""
    _check_version(version)
    if not _HW_ADDR.fullmatch(port.hw_addr):
        raise BadValue("ofp_port.hw_addr", f"cannot be {port.hw_addr!r}")
    if len(port.name) > 16 or b"\0" in port.name:
        raise BadValue("ofp_port.name", f"cannot be {port.name!r}")
    hw_addr = bytes.fromhex(port.hw_addr.replace(":", ""))
    return _PORT_13.pack(**_values(port) | {"hw_addr": hw_addr})


def _check_version(version: int) -> None:
    if version != OFP13:
        raise UnknownType("ofp_header.version", f"{version:#04x}: only OpenFlow 1.3 (0x04) is implemented")


def decode_action(data: bytes) -> Action:
    """The action that ``data``, one whole action, is. Raises WireError."""
    head, rest = _open(_ACTION, data)
    if head["len"] != len(data):
        error = Truncated if head["len"] > len(data) else BadLength
        raise error("ofp_action.len", f"{head['len']} bytes announced, {len(data)} there")
    if head["subtype"] not in _ACTIONS:
        raise UnknownType("ofp_action.subtype", f"{head['subtype']} is unknown")
    cls, layout = _ACTIONS[head["subtype"]]
    return cls(**layout.unpack(rest))


def encode_action(action: Action) -> bytes:
    """The whole action. Raises BadValue, naming the field that cannot be sent."""
    subtype = _SUBTYPES[type(action)]
    _, layout = _ACTIONS[subtype]
    head = _ACTION.pack(
        type=OFPAT_EXPERIMENTER,
        len=_ACTION.size + layout.size,
        experimenter=WEIR_EXPERIMENTER_ID,
        subtype=subtype,
    )
    return head + layout.pack(**_values(action))
