"""Teaches an engine's OpenFlow parsers the extension, so that apps use it like any other message.

After ``install()`` an app writes ``@set_ev_cls(ofp_event.EventOFPBufAlarm, MAIN_DISPATCHER)``,
``parser.OFPActionModWindow(window=1536)`` and ``datapath.send_msg(parser.OFPPortConfig(datapath, 3, ...))``.
Messages and actions go to and from bytes in wire.py; here is only their form in the engine.

A message with our id, or with an action of ours, that cannot be decoded is counted in ``malformed`` under
its datapath id, logged and dropped; the session lives on. Errors under our id stay the engine's
OFPErrorMsg, with ``experimenter`` and ``exp_type`` (a ``wire.ErrorCode``).

This module alone touches an engine's private names. Not implemented: OpenFlow 1.5 (an ``_VERSIONS``
entry, once wire.py knows its ofp_port).
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, astuple, fields
from typing import Any

from openflow_ext import engine, wire

LOG = logging.getLogger(__name__)

malformed: Counter[int | None] = Counter()
"""Messages dropped, by datapath id (None: before the switch has told it)."""

_VERSIONS = {wire.OFP13: "v1_3"}
_MESSAGES: dict[str, type[Any]] = {
    "OFPBufAlarm": wire.BufAlarm,
    "OFPBufNormal": wire.BufNormal,
    "OFPPortConfig": wire.PortConfig,
    "OFPPortConfigReply": wire.PortConfigReply,
}
_ACTIONS: dict[str, tuple[type[Any], dict[str, str]]] = {
    "OFPActionModWindow": (wire.ModWindow, {"window": "window_bytes", "alpha": "alpha"}),
    "OFPActionIncrementNi": (wire.IncrementNi, {"port": "port"}),
    "OFPActionDecrementNi": (wire.DecrementNi, {"port": "port"}),
    "OFPActionSetWindow": (wire.SetWindow, {"value": "value"}),
}
_RECEIVED = (wire.BufAlarm, wire.BufNormal, wire.PortConfigReply, wire.PortCountersReply)


def install(name: str | None = None) -> None:
    """Teach ``name`` ("ryu" or "os_ken"; by default the chosen engine) the extension. Idempotent."""
    name = name or engine.name
    ofproto_parser = engine.load("ofproto.ofproto_parser", name)
    ofp_event = engine.load("controller.ofp_event", name)
    for version, suffix in _VERSIONS.items():
        parser = engine.load(f"ofproto.ofproto_{suffix}_parser", name)
        if hasattr(parser, "OFPBufAlarm"):
            continue
        messages = [_message_class(parser, *item) for item in _MESSAGES.items()]
        messages += [_counters_request_class(parser), _counters_reply_class(parser, ofproto_parser)]
        actions = [_action_class(parser, name, *item) for item in _ACTIONS.items()]
        for cls in messages + actions:
            _add(parser, cls)
        for cls in messages:
            ofp_event._create_ofp_msg_ev_class(cls)
        _hook_actions(parser, {cls.wire_cls: cls for cls in actions})
        received = {cls.wire_cls: cls for cls in messages if cls.wire_cls in _RECEIVED}
        ofproto_parser.register_msg_parser(version)(_message_parser(parser.msg_parser, received))


def _add(parser: Any, cls: Any) -> None:
    """Make ``cls`` a name of ``parser``; the engines' JSON finds classes by module and name."""
    cls.__module__ = parser.__name__
    cls.__doc__ = cls.wire_cls.__doc__
    setattr(parser, cls.__name__, cls)


def _message_parser(engines_own: Callable[..., Any], received: dict[type, Any]) -> Callable[..., Any]:
    """A parser of one version's messages: ours by wire.py, the rest by the engine."""

    def parse(datapath: Any, version: int, msg_type: int, msg_len: int, xid: int, buf: bytes) -> Any:
        data = bytes(buf)
        try:
            if msg_type == wire.OFPT_ERROR or not wire.is_extension_message(data):
                return engines_own(datapath, version, msg_type, msg_len, xid, buf)
            message = wire.decode_message(data)
            if type(message) not in received:
                raise wire.UnknownType("ofp_header.type", f"a switch does not send {type(message).__name__}")
        except wire.WireError as error:
            _drop(datapath, error)
            return None
        msg = received[type(message)].from_wire(datapath, message)
        msg.set_headers(version, msg_type, msg_len, xid)
        msg.set_buf(data)
        return msg

    return parse


def _drop(datapath: Any, error: wire.WireError) -> None:
    malformed[datapath.id] += 1
    dpid = "unknown" if datapath.id is None else f"{datapath.id:016x}"
    LOG.warning("switch %s at %s: malformed message dropped: %s", dpid, datapath.address, error)


def _message_class(parser: Any, name: str, wire_cls: type[Any]) -> Any:
    """An engine's message class with the fields, order and defaults of ``wire_cls``."""
    names = [field.name for field in fields(wire_cls)]

    class Message(parser.MsgBase):
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
                values["port"] = parser.OFPPort(**asdict(message.port))
            return cls(datapath, **values)

        def to_wire(self) -> Any:
            values = {field: getattr(self, field) for field in names}
            if "port" in values:
                values["port"] = wire.OfpPort(**self.port._asdict())
            return wire_cls(**values)

        def _serialize_body(self) -> None:
            _append_body(self)

    Message.wire_cls = wire_cls
    Message.__name__ = Message.__qualname__ = name
    return Message


def _append_body(msg: Any) -> None:
    """Put the body of ``msg`` behind the header that the engine fills in."""
    msg.buf += wire.encode_message(msg.to_wire(), msg.version)[len(msg.buf) :]


def _counters_request_class(parser: Any) -> Any:
    class OFPPortCountersRequest(parser.MsgBase):
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


def _counters_reply_class(parser: Any, ofproto_parser: Any) -> Any:
    names = [field.name for field in fields(wire.PortCountersRecord)]
    record_cls = ofproto_parser.namedtuple("OFPPortCounters", names)
    record_cls.wire_cls = wire.PortCountersRecord
    record_cls.__name__ = "OFPPortCounters"
    _add(parser, record_cls)

    class OFPPortCountersReply(parser.MsgBase):
        cls_msg_type = wire.OFPT_MULTIPART_REPLY
        wire_cls = wire.PortCountersReply

        def __init__(self, datapath: Any, body: list[Any] | None = None, flags: int = 0) -> None:
            super().__init__(datapath)
            self.body = body or []
            self.flags = flags

        @classmethod
        def from_wire(cls, datapath: Any, message: wire.PortCountersReply) -> Any:
            body = [record_cls(*astuple(record)) for record in message.records]
            return cls(datapath, body, wire.OFPMPF_REPLY_MORE if message.more else 0)

        def to_wire(self) -> wire.PortCountersReply:
            records = tuple(wire.PortCountersRecord(*record) for record in self.body)
            return wire.PortCountersReply(records, more=bool(self.flags & wire.OFPMPF_REPLY_MORE))

        def _serialize_body(self) -> None:
            _append_body(self)

    return OFPPortCountersReply


def _action_class(parser: Any, engine_name: str, name: str, spec: tuple[type[Any], dict[str, str]]) -> Any:
    """An engine's action class; ``spec``: the wire class, and our argument -> its field."""
    wire_cls, names = spec
    pack_into = engine.load("lib.pack_utils", engine_name).msg_pack_into

    class Action(parser.OFPActionExperimenter):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(wire.WEIR_EXPERIMENTER_ID)
            for key in ("type_", "len_", "experimenter"):  # the engines' JSON has them; they are fixed
                kwargs.pop(key, None)
            values = dict(zip(names, args, strict=False)) | kwargs
            if len(args) > len(names) or values.keys() - names.keys():
                raise TypeError(f"{name} takes {', '.join(names)}")
            given = wire_cls(**{names[argument]: value for argument, value in values.items()})
            for argument, field in names.items():
                setattr(self, argument, getattr(given, field))
            self.len = len(wire.encode_action(given))

        @classmethod
        def from_wire(cls, action: Any) -> Any:
            return cls(**{argument: getattr(action, field) for argument, field in names.items()})

        def to_wire(self) -> Any:
            return wire_cls(**{field: getattr(self, argument) for argument, field in names.items()})

        @property
        def data(self) -> bytes:
            """What follows the experimenter id; Ryu's REST app shows it."""
            return wire.encode_action(self.to_wire())[8:]

        def serialize(self, buf: bytearray, offset: int) -> None:
            data = wire.encode_action(self.to_wire())
            pack_into(f"{len(data)}s", buf, offset, data)

    Action.wire_cls = wire_cls
    Action.__name__ = Action.__qualname__ = name
    return Action


def _hook_actions(parser: Any, actions: dict[type, Any]) -> None:
    """Take the engine's experimenter actions' place: ours by wire.py, others (Nicira's) by the engine."""

    class Dispatch(parser.OFPActionExperimenter):
        @classmethod
        def parser(cls, buf: bytes, offset: int) -> Any:
            (length,) = struct.unpack_from("!H", buf, offset + 2)
            data = bytes(buf[offset : offset + length])
            if length < 8 or length != len(data):
                raise wire.BadLength("ofp_action.len", f"{length} bytes announced, {len(buf) - offset} there")
            if not wire.is_extension_action(data):
                return super().parser(buf, offset)
            action = wire.decode_action(data)
            return actions[type(action)].from_wire(action)

    register = parser.OFPAction.register_action_type
    register(wire.OFPAT_EXPERIMENTER, parser.OFPActionExperimenter.cls_action_len)(Dispatch)
