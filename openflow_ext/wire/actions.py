"""The extension's actions and its OXM field: their classes, and to bytes and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from openflow_ext.wire.errors import BadLength, BadValue, Truncated, UnknownType
from openflow_ext.wire.layout import Layout, positive
from openflow_ext.wire.openflow import (
    OFPAT_EXPERIMENTER,
    OFPP_ANY,
    OFPXMC_EXPERIMENTER,
    OFPXMT_OFB_TCP_WINDOW,
    WEIR_EXPERIMENTER_ID,
)
from openflow_ext.wire.types import DEFAULT_ALPHA

__all__ = [
    "ACTIONS",
    "FAIR_SHARE",
    "Action",
    "DecrementNi",
    "Field",
    "IncrementNi",
    "ModWindow",
    "Observe",
    "SetWindow",
    "TcpWindow",
    "decode_action",
    "decode_field",
    "encode_action",
    "encode_field",
    "is_extension_action",
    "is_extension_field",
]

FAIR_SHARE = 0xFFFFFFFF
"""Value of SetWindow that stands for the fair share of the port at which the ACK arrives."""


@dataclass(frozen=True, slots=True)
class ModWindow:
    """OFPAT_MOD_WINDOW: lower the window to ``window_bytes``.

    With each segment that matches, that limit falls by ``alpha`` (at least 1) MSS, but not below one MSS.
    """

    window_bytes: int
    alpha: int = DEFAULT_ALPHA


@dataclass(frozen=True, slots=True)
class IncrementNi:
    """OFPAT_INCREMENT_NI: count one more flow at ``port``; OFPP_ANY is the packet's output port."""

    port: int = OFPP_ANY


@dataclass(frozen=True, slots=True)
class DecrementNi:
    """OFPAT_DECREMENT_NI: count one flow fewer at ``port``; OFPP_ANY is the packet's output port."""

    port: int = OFPP_ANY


@dataclass(frozen=True, slots=True)
class SetWindow:
    """OFPAT_SET_WINDOW: lower the window to ``value`` bytes, or to the port's FAIR_SHARE."""

    value: int = FAIR_SHARE


@dataclass(frozen=True, slots=True)
class Observe:
    """OFPAT_OBSERVE: the window action of the same entry changes no segment.

    The entry counts the segments whose window it would lower. This is an action of its own instead of a flag,
    so that a switch that does not know it refuses the entry instead of carrying it out.
    """


@dataclass(frozen=True, slots=True)
class TcpWindow:
    """OFPXMT_OFB_TCP_WINDOW: the 16-bit window field of the segment, before scaling."""

    value: int
    mask: int | None = None


Action: TypeAlias = ModWindow | IncrementNi | DecrementNi | SetWindow | Observe
Field: TypeAlias = TcpWindow

_EXPERIMENTER_ID = WEIR_EXPERIMENTER_ID.to_bytes(4, "big")
_ACTION = Layout("ofp_action", "type:H len:H experimenter:I subtype:H")
_COUNT_NI = Layout("count_ni", "2x port:I")
_FORMATS: dict[type[Action], tuple[int, Layout]] = {
    ModWindow: (1, Layout("mod_window", "alpha:B 1x window_bytes:I", alpha=positive)),
    IncrementNi: (2, _COUNT_NI),
    DecrementNi: (3, _COUNT_NI),
    SetWindow: (4, Layout("set_window", "2x value:I")),
    Observe: (5, Layout("observe", "6x")),
}
"""The subtype and the layout of each action."""

ACTIONS = tuple(_FORMATS)
"""The classes of the extension's actions."""

_BY_SUBTYPE = {subtype: (cls, layout) for cls, (subtype, layout) in _FORMATS.items()}
_FIELD = Layout("oxm", "oxm_class:H field_and_hasmask:B length:B experimenter:I")
_WINDOW = Layout("tcp_window", "value:H")
_MASKED_WINDOW = Layout("tcp_window", "value:H mask:H")
_OXM_HEADER_BYTES = 4
"""An OXM's length does not count its header, but it counts the experimenter id."""


def is_extension_action(data: bytes) -> bool:
    """Whether an action carries Weir's experimenter id. Never raises."""
    return data[:2] == b"\xff\xff" and data[4:8] == _EXPERIMENTER_ID


def decode_action(data: bytes) -> Action:
    """Decode ``data``, which is one whole action. Raises WireError."""
    head = _ACTION.unpack(data[: _ACTION.size])
    if head["type"] != OFPAT_EXPERIMENTER:
        raise UnknownType("ofp_action.type", f"{head['type']} is not EXPERIMENTER (65535)")
    if head["experimenter"] != WEIR_EXPERIMENTER_ID:
        raise UnknownType("ofp_action.experimenter", f"{head['experimenter']:#010x} is not Weir's id")
    if head["len"] != len(data):
        error = Truncated if head["len"] > len(data) else BadLength
        raise error("ofp_action.len", f"{head['len']} bytes announced, {len(data)} there")
    if head["subtype"] not in _BY_SUBTYPE:
        raise UnknownType("ofp_action.subtype", f"{head['subtype']} is unknown")
    cls, layout = _BY_SUBTYPE[head["subtype"]]
    return cls(**layout.unpack(data[_ACTION.size :]))


def encode_action(action: Action) -> bytes:
    """Encode a whole action. Raises BadValue, which names the field that cannot be sent."""
    subtype, layout = _FORMATS[type(action)]
    head = _ACTION.pack(
        type=OFPAT_EXPERIMENTER,
        len=_ACTION.size + layout.size,
        experimenter=WEIR_EXPERIMENTER_ID,
        subtype=subtype,
    )
    return head + layout.pack_fields(action)


def is_extension_field(data: bytes) -> bool:
    """Whether an OXM field carries Weir's experimenter id. Never raises."""
    return is_extension_action(data)  # the id follows four bytes that start with 0xffff in both


def decode_field(data: bytes) -> Field:
    """Decode ``data``, which is one whole OXM field. Raises WireError."""
    head = _FIELD.unpack(data[: _FIELD.size])
    if head["oxm_class"] != OFPXMC_EXPERIMENTER:
        raise UnknownType("oxm.oxm_class", f"{head['oxm_class']:#06x} is not EXPERIMENTER (0xffff)")
    if head["experimenter"] != WEIR_EXPERIMENTER_ID:
        raise UnknownType("oxm.experimenter", f"{head['experimenter']:#010x} is not Weir's id")
    field, has_mask = head["field_and_hasmask"] >> 1, head["field_and_hasmask"] & 1
    if field != OFPXMT_OFB_TCP_WINDOW:
        raise UnknownType("oxm.oxm_field", f"{field} is unknown")
    announced, present = head["length"], len(data) - _OXM_HEADER_BYTES
    if announced != present:
        error = Truncated if announced > present else BadLength
        raise error("oxm.length", f"{announced} bytes announced, {present} there")
    window = TcpWindow(**(_MASKED_WINDOW if has_mask else _WINDOW).unpack(data[_FIELD.size :]))
    _check_mask(window)
    return window


def encode_field(field: Field) -> bytes:
    """Encode a whole OXM field. Raises BadValue."""
    layout = _WINDOW if field.mask is None else _MASKED_WINDOW
    value = layout.pack_fields(field)
    _check_mask(field)
    head = _FIELD.pack(
        oxm_class=OFPXMC_EXPERIMENTER,
        field_and_hasmask=OFPXMT_OFB_TCP_WINDOW << 1 | (field.mask is not None),
        length=_FIELD.size + layout.size - _OXM_HEADER_BYTES,
        experimenter=WEIR_EXPERIMENTER_ID,
    )
    return head + value


def _check_mask(window: TcpWindow) -> None:
    if window.mask is not None and window.value & ~window.mask:
        raise BadValue("tcp_window.value", f"{window.value:#06x} has bits outside {window.mask:#06x}")
