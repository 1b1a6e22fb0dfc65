"""The extension's actions and its OXM field <-> bytes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from openflow_ext._wire_errors import (
    OFPAT_EXPERIMENTER,
    OFPXMC_EXPERIMENTER,
    OFPXMT_OFB_TCP_WINDOW,
    WEIR_EXPERIMENTER_ID,
    BadLength,
    BadValue,
    Truncated,
    UnknownType,
)
from openflow_ext._wire_layout import Layout, positive
from openflow_ext._wire_types import Action, DecrementNi, Field, IncrementNi, ModWindow, SetWindow, TcpWindow

_OUR_ID = WEIR_EXPERIMENTER_ID.to_bytes(4, "big")
_ACTION = Layout("ofp_action", "type:H len:H experimenter:I subtype:H")
_COUNT_NI = Layout("count_ni", "2x port:I")
_ACTIONS: dict[int, tuple[type[Action], Layout]] = {
    1: (ModWindow, Layout("mod_window", "alpha:B 1x window_bytes:I", alpha=positive)),
    2: (IncrementNi, _COUNT_NI),
    3: (DecrementNi, _COUNT_NI),
    4: (SetWindow, Layout("set_window", "2x value:I")),
}
_SUBTYPES: dict[type, int] = {cls: number for number, (cls, _) in _ACTIONS.items()}
_FIELD = Layout("oxm", "oxm_class:H field_and_hasmask:B length:B experimenter:I")
_WINDOW = Layout("tcp_window", "value:H")
_MASKED_WINDOW = Layout("tcp_window", "value:H mask:H")
_OXM_LENGTH_AT = 4
"""OXM's length counts from behind itself, the experimenter id included."""


def is_extension_action(data: bytes) -> bool:
    """Whether an action carries our experimenter id; never raises."""
    return data[:2] == b"\xff\xff" and data[4:8] == _OUR_ID


def decode_action(data: bytes) -> Action:
    """The action that ``data``, one whole action, is. Raises WireError."""
    head = _ACTION.unpack(data[: _ACTION.size])
    if head["type"] != OFPAT_EXPERIMENTER:
        raise UnknownType("ofp_action.type", f"{head['type']} is not EXPERIMENTER (65535)")
    if head["experimenter"] != WEIR_EXPERIMENTER_ID:
        raise UnknownType("ofp_action.experimenter", f"{head['experimenter']:#010x} is not ours")
    if head["len"] != len(data):
        error = Truncated if head["len"] > len(data) else BadLength
        raise error("ofp_action.len", f"{head['len']} bytes announced, {len(data)} there")
    if head["subtype"] not in _ACTIONS:
        raise UnknownType("ofp_action.subtype", f"{head['subtype']} is unknown")
    cls, layout = _ACTIONS[head["subtype"]]
    return cls(**layout.unpack(data[_ACTION.size :]))


def _values(item: Action | Field) -> dict[str, Any]:
    return {field.name: getattr(item, field.name) for field in fields(item)}


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


def is_extension_field(data: bytes) -> bool:
    """Whether an OXM field carries our experimenter id; never raises."""
    return is_extension_action(data)  # both have the id behind four bytes that start with 0xffff


def decode_field(data: bytes) -> Field:
    """The field that ``data``, one whole OXM field, is. Raises WireError."""
    head = _FIELD.unpack(data[: _FIELD.size])
    if head["oxm_class"] != OFPXMC_EXPERIMENTER:
        raise UnknownType("oxm.oxm_class", f"{head['oxm_class']:#06x} is not EXPERIMENTER (0xffff)")
    if head["experimenter"] != WEIR_EXPERIMENTER_ID:
        raise UnknownType("oxm.experimenter", f"{head['experimenter']:#010x} is not ours")
    field, masked = head["field_and_hasmask"] >> 1, head["field_and_hasmask"] & 1
    if field != OFPXMT_OFB_TCP_WINDOW:
        raise UnknownType("oxm.oxm_field", f"{field} is unknown")
    if head["length"] + _OXM_LENGTH_AT != len(data):
        error = Truncated if head["length"] + _OXM_LENGTH_AT > len(data) else BadLength
        raise error("oxm.length", f"{head['length']} bytes announced, {len(data) - _OXM_LENGTH_AT} there")
    window = TcpWindow(**(_MASKED_WINDOW if masked else _WINDOW).unpack(data[_FIELD.size :]))
    _check_mask(window)
    return window


def encode_field(field: Field) -> bytes:
    """The whole OXM field. Raises BadValue."""
    layout = _WINDOW if field.mask is None else _MASKED_WINDOW
    value = layout.pack(**_values(field))
    _check_mask(field)
    head = _FIELD.pack(
        oxm_class=OFPXMC_EXPERIMENTER,
        field_and_hasmask=OFPXMT_OFB_TCP_WINDOW << 1 | (field.mask is not None),
        length=_FIELD.size + layout.size - _OXM_LENGTH_AT,
        experimenter=WEIR_EXPERIMENTER_ID,
    )
    return head + value


def _check_mask(window: TcpWindow) -> None:
    if window.mask is not None and window.value & ~window.mask:
        raise BadValue("tcp_window.value", f"{window.value:#06x} has bits outside {window.mask:#06x}")
