"""Builds an engine's classes for the extension's messages and actions. Used by ``registry`` only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from openflow_ext import wire

_NXAC2PT_METER_ID = 5
_CONTROLLER2_PROPERTIES = 6
"""The offset of the properties in a CONTROLLER2 action, behind its subtype."""

_SPEEDS = ("curr", "advertised", "supported", "peer", "curr_speed", "max_speed")
_LISTS: dict[type, tuple[str, str, Callable[..., Any]]] = {
    wire.FlowReport: ("records", "OFPFlowRecord", wire.FlowRecord),
    wire.Arm: ("entries", "OFPArmEntry", wire.ArmEntry),
}
"""For a message that carries a list: the list's attribute, and the name in JSON and the class of an item."""

_ACTION_ARGUMENTS = {"window_bytes": "window"}
"""Fields of wire actions that have another name as an argument of the engine's action."""


def message_class(parser: Any, wire_cls: type[Any]) -> Any:
    """The engine's message class ``OFP<name>`` with the fields, order and defaults of ``wire_cls``."""
    names = [field.name for field in fields(wire_cls)]

    class ExtensionMessage(parser.MsgBase):  # type: ignore[misc]  # untyped engine
        cls_msg_type = wire.OFPT_EXPERIMENTER

        def __init__(self, datapath: Any, *args: Any, **kwargs: Any) -> None:
            super().__init__(datapath)
            given = wire_cls(*args, **kwargs)
            for field in names:
                setattr(self, field, getattr(given, field))

        @classmethod
        def from_wire(cls, datapath: Any, message: Any) -> Any:
            values = {field: getattr(message, field) for field in names}
            if "port" in values:
                values["port"] = _port_to_engine(parser, message.port)
            return cls(datapath, **values)

        def to_wire(self) -> Any:
            values = {field: getattr(self, field) for field in names}
            if "port" in values:
                values["port"] = _port_from_engine(parser, self.port)
            return wire_cls(**values)

        def _serialize_body(self) -> None:
            _append_body(self)

    cls = _with_json_items(ExtensionMessage, *_LISTS[wire_cls]) if wire_cls in _LISTS else ExtensionMessage
    cls.wire_cls = wire_cls
    cls.__name__ = cls.__qualname__ = f"OFP{wire_cls.__name__}"
    return cls


def _with_json_items(base: Any, field: str, item_name: str, item_cls: Callable[..., Any]) -> Any:
    """``base`` with JSON for its list: each item under its class name, addresses as text."""

    class MessageWithItems(base):  # type: ignore[misc]  # untyped engine
        def to_jsondict(self, *args: Any, **kwargs: Any) -> Any:
            items = [{item_name: _item_to_json(item)} for item in getattr(self, field)]
            jsondict = super().to_jsondict(*args, **kwargs)
            return {name: values | {field: items} for name, values in jsondict.items()}

        @classmethod
        def from_jsondict(cls, dict_: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
            plain = {key: value for key, value in dict_.items() if key != field}
            items = [item_cls(**_item_from_json(item[item_name])) for item in dict_.get(field, ())]
            msg = super().from_jsondict(plain, *args, **kwargs)
            setattr(msg, field, tuple(items))
            return msg

    return MessageWithItems


def _item_to_json(item: Any) -> dict[str, Any]:
    values = {key: getattr(item, key) for key in type(item).__annotations__}
    return {
        key: str(value) if isinstance(value, IPv4Address | IPv6Address) else value
        for key, value in values.items()
    }


def _item_from_json(values: dict[str, Any]) -> dict[str, Any]:
    try:
        return {key: ip_address(value) if isinstance(value, str) else value for key, value in values.items()}
    except ValueError as error:
        raise wire.BadValue("flow.address", str(error)) from error


def _append_body(msg: Any) -> None:
    """Append the body to the buffer of ``msg``. The engine fills in the header later."""
    framing: wire.Framing = (
        "native" if msg.msg_type in (wire.OFPT_BUF_ALARM, wire.OFPT_BUF_NORMAL) else "experimenter"
    )
    msg.buf += wire.encode_message(msg.to_wire(), msg.version, framing=framing)[len(msg.buf) :]


def _has_port_properties(parser: Any) -> bool:
    return hasattr(parser, "OFPPortDescPropEthernet")


def _port_to_engine(parser: Any, port: wire.OfpPort) -> Any:
    values = {field.name: getattr(port, field.name) for field in fields(port)}
    ethernet, others = values.pop("ethernet"), values.pop("properties")
    if not _has_port_properties(parser):
        return parser.OFPPort(**values)
    speeds = {name: values.pop(name) for name in _SPEEDS}
    properties = [parser.OFPPortDescPropEthernet(0, 32, **speeds)] if ethernet else []
    for data in others:
        unknown = parser.OFPPropUnknown(buf=data)
        unknown.type, unknown.length = int.from_bytes(data[:2], "big"), len(data)
        properties.append(unknown)
    length = len(wire.encode_port(port, wire.OFP15))
    return parser.OFPPort(**values, length=length, properties=properties)


def _port_from_engine(parser: Any, port: Any) -> wire.OfpPort:
    if not _has_port_properties(parser):
        return wire.OfpPort(**port._asdict())
    values = {name: getattr(port, name) for name in ("port_no", "hw_addr", "name", "config", "state")}
    values["ethernet"] = False
    others = []
    for prop in port.properties or ():
        if isinstance(prop, parser.OFPPortDescPropEthernet):
            values |= {name: getattr(prop, name) for name in _SPEEDS} | {"ethernet": True}
        elif isinstance(prop, parser.OFPPropUnknown):
            length = int.from_bytes(prop.buf[2:4], "big")  # the engine leaves later properties in buf
            others.append(bytes(prop.buf[:length]))
        else:
            raise wire.BadValue("ofp_port.properties", f"cannot hold {type(prop).__name__}")
    return wire.OfpPort(**values, properties=tuple(others))


def counters_request_class(parser: Any) -> Any:
    """The engine's multipart request for port counters."""

    class OFPPortCountersRequest(parser.MsgBase):  # type: ignore[misc]  # untyped engine
        cls_msg_type = wire.OFPT_MULTIPART_REQUEST
        wire_cls = wire.PortCountersRequest

        def __init__(self, datapath: Any, flags: int = 0, port_no: int = wire.OFPP_ANY) -> None:
            super().__init__(datapath)
            if flags:
                raise wire.BadValue("port_counters_request.flags", f"cannot be {flags!r}, only 0")
            self.flags = flags
            self.port_no = port_no

        def to_wire(self) -> wire.PortCountersRequest:
            return wire.PortCountersRequest(self.port_no)

        def _serialize_body(self) -> None:
            _append_body(self)

    return OFPPortCountersRequest


def counters_reply_class(parser: Any) -> Any:
    """The engine's multipart reply; ``body`` holds ``wire.PortCountersRecord`` objects."""

    class OFPPortCountersReply(parser.MsgBase):  # type: ignore[misc]  # untyped engine
        cls_msg_type = wire.OFPT_MULTIPART_REPLY

        def __init__(self, datapath: Any, body: Any = (), flags: int = 0) -> None:
            super().__init__(datapath)
            self.body = body
            self.flags = flags

        @classmethod
        def from_wire(cls, datapath: Any, message: wire.PortCountersReply) -> Any:
            return cls(datapath, message.records, wire.OFPMPF_REPLY_MORE if message.more else 0)

        def to_wire(self) -> wire.PortCountersReply:
            more = bool(self.flags & wire.OFPMPF_REPLY_MORE)
            return wire.PortCountersReply(tuple(self.body), more=more)

        def _serialize_body(self) -> None:
            _append_body(self)

    cls = _with_json_items(OFPPortCountersReply, "body", "OFPPortCounters", wire.PortCountersRecord)
    cls.wire_cls = wire.PortCountersReply
    cls.__name__ = cls.__qualname__ = "OFPPortCountersReply"
    return cls


def action_class(parser: Any, pack_into: Callable[..., None], wire_cls: type[wire.Action]) -> Any:
    """The engine's action class ``OFPAction<name>`` with the fields, order and defaults of ``wire_cls``."""
    name = f"OFPAction{wire_cls.__name__}"
    field_of = {_ACTION_ARGUMENTS.get(field.name, field.name): field.name for field in fields(wire_cls)}

    class ExtensionAction(parser.OFPActionExperimenter):  # type: ignore[misc]  # untyped engine
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(wire.WEIR_EXPERIMENTER_ID)
            for key in ("type_", "len_", "experimenter"):  # fixed, but present in the engine's JSON
                kwargs.pop(key, None)
            values = dict(zip(field_of, args, strict=False)) | kwargs
            if len(args) > len(field_of) or values.keys() - field_of.keys():
                raise TypeError(f"{name} takes {', '.join(field_of)}")
            given = wire_cls(**{field_of[argument]: value for argument, value in values.items()})
            for argument, field in field_of.items():
                setattr(self, argument, getattr(given, field))
            self.len = len(wire.encode_action(given))

        @classmethod
        def from_wire(cls, action: wire.Action) -> Any:
            return cls(**{argument: getattr(action, field) for argument, field in field_of.items()})

        def to_wire(self) -> wire.Action:
            return wire_cls(**{field: getattr(self, argument) for argument, field in field_of.items()})

        @property
        def data(self) -> bytes:
            """The bytes after the experimenter id; Ryu's REST app shows them."""
            return wire.encode_action(self.to_wire())[8:]

        def serialize(self, buf: bytearray, offset: int) -> None:
            data = wire.encode_action(self.to_wire())
            pack_into(f"{len(data)}s", buf, offset, data)

    ExtensionAction.wire_cls = wire_cls
    ExtensionAction.__name__ = ExtensionAction.__qualname__ = name
    return ExtensionAction


def controller2_class(parser: Any, pack_into: Callable[..., None]) -> Any:
    """The engine's NXActionController2 with the property ``meter_id``, which the engines lack.

    The meter limits what the controller gets, and drops nothing else (ovs-actions(7), controller). 0: none.
    ``message_check`` has checked the properties: each has 8 bytes, except the user data.
    """

    class NXActionController2(parser.NXActionController2):  # type: ignore[misc]  # untyped engine
        def __init__(self, *args: Any, meter_id: int = 0, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.meter_id = meter_id

        @classmethod
        def parser(cls, buf: bytes) -> Any:
            rest, meter_id = bytes(buf[:_CONTROLLER2_PROPERTIES]), 0
            properties = bytes(buf[_CONTROLLER2_PROPERTIES:])
            while properties:
                kind, length = int.from_bytes(properties[:2], "big"), int.from_bytes(properties[2:4], "big")
                size = max(8, (length + 7) // 8 * 8)
                if kind == _NXAC2PT_METER_ID:
                    meter_id = int.from_bytes(properties[4:8], "big")
                else:
                    rest += properties[:size]
                properties = properties[size:]
            action = super().parser(rest)
            action.meter_id = meter_id
            return action

        def serialize_body(self) -> bytearray:
            body: bytearray = super().serialize_body()
            if self.meter_id:
                pack_into("!HHI", body, len(body), _NXAC2PT_METER_ID, 8, self.meter_id)
            return body

    return NXActionController2
