"""Teaches an engine's OpenFlow parsers the extension, so that apps use it like any other message.

After ``install()`` an app writes ``@set_ev_cls(ofp_event.EventOFPBufAlarm, MAIN_DISPATCHER)``,
``parser.OFPActionModWindow(window=1536)``, ``parser.OFPMatch(..., tcp_window=(0, 0xff00))`` and
``datapath.send_msg(parser.OFPPortConfig(datapath, 3, ...))``, in OpenFlow 1.3 and 1.5. Messages, actions
and fields go to and from bytes in wire.py; ``_registry_classes.py`` gives them their form in the engine.

A message that cannot be decoded, ours or the engine's, is counted in ``malformed`` under its datapath id,
logged and dropped; the session lives on. (Of their own the engines neither count nor name the switch; a
match cut short ends a 1.3 session; a property of length 0 hangs Ryu's 1.5 parser.) Errors under our id
stay the engine's OFPErrorMsg, with ``experimenter`` and ``exp_type`` (a ``wire.ErrorCode``).

This module and its private half alone touch an engine's private names. Not implemented: ``tcp_window`` in
OFPActionSetField (MOD_WINDOW and SET_WINDOW are how a window is changed); a guard for a length of 0 in a
HELLO's element, a flow entry or an instruction, which hangs the parsers of both engines.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

from openflow_ext import engine, wire
from openflow_ext._registry_classes import (
    action_class,
    counters_reply_class,
    counters_request_class,
    message_class,
)

LOG = logging.getLogger(__name__)

malformed: Counter[int | None] = Counter()
"""Messages dropped, by datapath id (None: before the switch has told it)."""

_VERSIONS = {wire.OFP13: "v1_3", wire.OFP15: "v1_5"}
_MESSAGES: dict[str, type[Any]] = {
    "OFPBufAlarm": wire.BufAlarm,
    "OFPBufNormal": wire.BufNormal,
    "OFPPortConfig": wire.PortConfig,
    "OFPPortConfigReply": wire.PortConfigReply,
    "OFPFlowReport": wire.FlowReport,
    "OFPFlowReportConfig": wire.FlowReportConfig,
    "OFPArm": wire.Arm,
    "OFPReflex": wire.Reflex,
}
_ITEMS: dict[str, type[Any]] = {"OFPFlowRecord": wire.FlowRecord, "OFPArmEntry": wire.ArmEntry}
_ACTIONS: dict[str, tuple[type[Any], dict[str, str]]] = {
    "OFPActionModWindow": (wire.ModWindow, {"window": "window_bytes", "alpha": "alpha"}),
    "OFPActionIncrementNi": (wire.IncrementNi, {"port": "port"}),
    "OFPActionDecrementNi": (wire.DecrementNi, {"port": "port"}),
    "OFPActionSetWindow": (wire.SetWindow, {"value": "value"}),
}
_RECEIVED = (
    *(wire.BufAlarm, wire.BufNormal, wire.PortConfigReply, wire.PortCountersReply),
    *(wire.FlowReport, wire.Reflex),
)


def install(name: str | None = None) -> None:
    """Teach ``name`` ("ryu" or "os_ken"; by default the chosen engine) the extension. Idempotent."""
    name = name or engine.name
    for version, suffix in _VERSIONS.items():
        parser = engine.load(f"ofproto.ofproto_{suffix}_parser", name)
        if not hasattr(parser, "OFPBufAlarm"):
            _install_version(name, version, suffix, parser)


def ordered_match(parser: Any, fields: list[tuple[str, Any]]) -> Any:
    """An OFPMatch in a third of the time: of fields in the order of their OXM types, as a parser gives them.

    Of its own the engine brings each value into three forms to sort and complete them.
    """
    return parser.OFPMatch(_ordered_fields=fields)


def _install_version(name: str, version: int, suffix: str, parser: Any) -> None:
    ofproto_parser = engine.load("ofproto.ofproto_parser", name)
    ofp_event = engine.load("controller.ofp_event", name)
    pack_into = engine.load("lib.pack_utils", name).msg_pack_into
    messages = [message_class(parser, *item) for item in _MESSAGES.items()]
    messages += [counters_request_class(parser), counters_reply_class(parser, ofproto_parser)]
    actions = [action_class(parser, pack_into, *item) for item in _ACTIONS.items()]
    for cls in messages + actions:
        _add(parser, cls)
    for cls_name, item in _ITEMS.items():
        setattr(parser, cls_name, item)
    for cls in messages:
        ofp_event._create_ofp_msg_ev_class(cls)
    _hook_actions(parser, {cls.wire_cls: cls for cls in actions})
    _hook_fields(engine.load(f"ofproto.ofproto_{suffix}", name), name)
    if hasattr(parser, "OFPPropBase"):
        _guard_properties(parser.OFPPropBase)
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
            if not _is_ours(data):
                return engines_own(datapath, version, msg_type, msg_len, xid, buf)
            message = wire.decode_message(data)
            if type(message) not in received:
                raise wire.UnknownType("ofp_header.type", f"a switch does not send {type(message).__name__}")
        except Exception as error:  # whatever a parser trips over, the session must outlive it
            _drop(datapath, error)
            return None
        msg = received[type(message)].from_wire(datapath, message)
        msg.cls_msg_type = msg_type  # in native framing it is not the class's
        msg.set_headers(version, msg_type, msg_len, xid)
        msg.set_buf(data)
        return msg

    return parse


def _is_ours(data: bytes) -> bool:
    if wire.is_native_message(data):
        return True
    return data[1] != wire.OFPT_ERROR and wire.is_extension_message(data)


def _drop(datapath: Any, error: Exception) -> None:
    malformed[datapath.id] += 1
    dpid = "unknown" if datapath.id is None else f"{datapath.id:016x}"
    engines_own = None if isinstance(error, wire.WireError) else error
    LOG.warning(
        "switch %s at %s: malformed message dropped: %s",
        dpid,
        datapath.address,
        repr(engines_own) if engines_own else error,
        exc_info=engines_own,
    )


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


def _hook_fields(ofproto: Any, engine_name: str) -> None:
    """Make OFPXMT_OFB_TCP_WINDOW a field of OFPMatch, ``tcp_window``."""
    oxm_fields = engine.load("ofproto.oxm_fields", engine_name)
    type_desc = engine.load("lib.type_desc", engine_name)

    our_id = {"experimenter_id": wire.WEIR_EXPERIMENTER_ID}
    ours: Any = type("WeirExperimenter", (oxm_fields.ONFExperimenter,), our_id)
    ofproto.OFPXMT_OFB_TCP_WINDOW = wire.OFPXMT_OFB_TCP_WINDOW
    ofproto.oxm_types.append(ours("tcp_window", wire.OFPXMT_OFB_TCP_WINDOW, type_desc.Int2))
    oxm_fields.generate(ofproto.__name__)


def _guard_properties(base: Any) -> None:
    """Refuse a property of length 0, past which Ryu's 1.5 parser never gets (os-ken's does)."""
    engines_own = base.parse.__func__

    def parse(cls: Any, buf: bytes) -> Any:
        if bytes(buf[2:4]) == b"\0\0":
            raise wire.BadLength("ofp_prop.length", "cannot be 0")
        return engines_own(cls, buf)

    base.parse = classmethod(parse)
