"""Adds the extension to the OpenFlow parsers of Ryu and os-ken, so that apps use it like any message.

After ``install()`` an app writes ``@set_ev_cls(ofp_event.EventOFPBufAlarm, MAIN_DISPATCHER)``,
``parser.OFPActionModWindow(window=1536)``, ``parser.OFPMatch(..., tcp_window=(0, 0xff00))`` and
``datapath.send_msg(parser.OFPPortConfig(datapath, 3, ...))``, in OpenFlow 1.3 and 1.5. The wire message
``PortConfig`` becomes the class ``OFPPortConfig``, and so on. ``openflow_ext.wire`` encodes and decodes;
``registry_classes`` builds the engine's classes.

A message that cannot be decoded is counted in ``malformed`` under its datapath id, logged and dropped. The
session continues. This also holds for messages that the engine itself decodes, because the engines neither
count them nor name the switch. In Ryu, a truncated match ends a 1.3 session and a property of length 0
hangs the 1.5 parser. Errors under Weir's experimenter id remain the engine's OFPErrorMsg, with
``experimenter`` and ``exp_type`` (a ``wire.ErrorCode``).

Only this module and ``registry_classes`` use private names of an engine. Not implemented: ``tcp_window`` in
OFPActionSetField (MOD_WINDOW and SET_WINDOW change a window); a guard against a length of 0 in a HELLO
element, a flow entry or an instruction, which hangs the parsers of both engines.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

from openflow_ext import engine, wire
from openflow_ext.registry_classes import (
    action_class,
    counters_reply_class,
    counters_request_class,
    message_class,
)

LOG = logging.getLogger(__name__)

malformed: Counter[int | None] = Counter()
"""Dropped messages by datapath id; None counts messages from before the switch sent its id."""

_VERSIONS = {wire.OFP13: "v1_3", wire.OFP15: "v1_5"}
_RECORDS: dict[str, type[Any]] = {
    "OFPFlowRecord": wire.FlowRecord,
    "OFPArmEntry": wire.ArmEntry,
    "OFPPortCounters": wire.PortCountersRecord,
}
"""Classes of the records in messages. The engine's parser offers them under these names."""

_FROM_SWITCH = {
    *(cls for cls, message in wire.EXPERIMENTER_MESSAGES.items() if message.sender == "switch"),
    wire.PortCountersReply,
}


def install(name: str | None = None) -> None:
    """Add the extension to the engine ``name`` ("ryu" or "os_ken"; default: the chosen one). Idempotent."""
    name = name or engine.name
    for version, suffix in _VERSIONS.items():
        parser = engine.load(f"ofproto.ofproto_{suffix}_parser", name)
        if not hasattr(parser, "OFPBufAlarm"):
            _install_version(name, version, suffix, parser)


def ordered_match(parser: Any, fields: list[tuple[str, Any]]) -> Any:
    """Build an OFPMatch from fields that are already in the order of their OXM types.

    This skips the engine's sorting and normalizing, in which it encodes and decodes every value.
    """
    return parser.OFPMatch(_ordered_fields=fields)


def _install_version(name: str, version: int, suffix: str, parser: Any) -> None:
    ofproto_parser = engine.load("ofproto.ofproto_parser", name)
    ofp_event = engine.load("controller.ofp_event", name)
    pack_into = engine.load("lib.pack_utils", name).msg_pack_into
    messages = [message_class(parser, cls) for cls in wire.EXPERIMENTER_MESSAGES]
    messages += [counters_request_class(parser), counters_reply_class(parser)]
    actions = [action_class(parser, pack_into, cls) for cls in wire.ACTIONS]
    for cls in messages + actions:
        _add_class(parser, cls)
    for record_name, record_cls in _RECORDS.items():
        setattr(parser, record_name, record_cls)
    for cls in messages:
        ofp_event._create_ofp_msg_ev_class(cls)
    _hook_actions(parser, {cls.wire_cls: cls for cls in actions})
    _hook_fields(engine.load(f"ofproto.ofproto_{suffix}", name), name)
    if hasattr(parser, "OFPPropBase"):
        _guard_properties(parser.OFPPropBase)
    received = {cls.wire_cls: cls for cls in messages if cls.wire_cls in _FROM_SWITCH}
    ofproto_parser.register_msg_parser(version)(_message_parser(parser.msg_parser, received))


def _add_class(parser: Any, cls: Any) -> None:
    """Make ``cls`` an attribute of ``parser``. The engine's JSON finds a class by module and name."""
    cls.__module__ = parser.__name__
    cls.__doc__ = cls.wire_cls.__doc__
    setattr(parser, cls.__name__, cls)


def _message_parser(engine_parser: Callable[..., Any], received: dict[type, Any]) -> Callable[..., Any]:
    """A parser for one OpenFlow version that decodes the extension's messages and leaves the rest alone."""

    def parse(datapath: Any, version: int, msg_type: int, msg_len: int, xid: int, buf: bytes) -> Any:
        data = bytes(buf)
        try:
            if not _is_extension(data):
                return engine_parser(datapath, version, msg_type, msg_len, xid, buf)
            message = wire.decode_message(data)
            if type(message) not in received:
                raise wire.UnknownType("ofp_header.type", f"a switch does not send {type(message).__name__}")
        except Exception as error:  # no parser error may end the session
            _drop(datapath, error)
            return None
        msg = received[type(message)].from_wire(datapath, message)
        msg.cls_msg_type = msg_type  # native framing has a message type of its own
        msg.set_headers(version, msg_type, msg_len, xid)
        msg.set_buf(data)
        return msg

    return parse


def _is_extension(data: bytes) -> bool:
    if wire.is_native_message(data):
        return True
    return data[1] != wire.OFPT_ERROR and wire.is_extension_message(data)


def _drop(datapath: Any, error: Exception) -> None:
    """Count and log a malformed message, with a traceback if the engine's parser failed."""
    malformed[datapath.id] += 1
    dpid = "unknown" if datapath.id is None else f"{datapath.id:016x}"
    engine_error = None if isinstance(error, wire.WireError) else error
    LOG.warning(
        "switch %s at %s: malformed message dropped: %s",
        dpid,
        datapath.address,
        repr(engine_error) if engine_error else error,
        exc_info=engine_error,
    )


def _hook_actions(parser: Any, actions: dict[type, Any]) -> None:
    """Parse the extension's actions; the engine parses all others."""

    class ExperimenterActionParser(parser.OFPActionExperimenter):  # type: ignore[misc]  # untyped engine
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
    register(wire.OFPAT_EXPERIMENTER, parser.OFPActionExperimenter.cls_action_len)(ExperimenterActionParser)


def _hook_fields(ofproto: Any, engine_name: str) -> None:
    """Make OFPXMT_OFB_TCP_WINDOW a field of OFPMatch, ``tcp_window``."""
    oxm_fields = engine.load("ofproto.oxm_fields", engine_name)
    type_desc = engine.load("lib.type_desc", engine_name)

    experimenter_id = {"experimenter_id": wire.WEIR_EXPERIMENTER_ID}
    field_cls: Any = type("WeirExperimenter", (oxm_fields.ONFExperimenter,), experimenter_id)
    ofproto.OFPXMT_OFB_TCP_WINDOW = wire.OFPXMT_OFB_TCP_WINDOW
    ofproto.oxm_types.append(field_cls("tcp_window", wire.OFPXMT_OFB_TCP_WINDOW, type_desc.Int2))
    oxm_fields.generate(ofproto.__name__)


def _guard_properties(base: Any) -> None:
    """Refuse a property of length 0, on which Ryu's 1.5 parser loops forever (os-ken's does not)."""
    engine_parse = base.parse.__func__

    def parse(cls: Any, buf: bytes) -> Any:
        if bytes(buf[2:4]) == b"\0\0":
            raise wire.BadLength("ofp_prop.length", "cannot be 0")
        return engine_parse(cls, buf)

    base.parse = classmethod(parse)
