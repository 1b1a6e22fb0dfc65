"""Adds the extension to the OpenFlow parsers of Ryu and os-ken, so that apps use it like any message.

After ``install()`` an app writes ``@set_ev_cls(ofp_event.EventOFPBufAlarm, MAIN_DISPATCHER)``,
``parser.OFPActionModWindow(window=1536)``, ``parser.OFPMatch(..., tcp_window=(0, 0xff00))`` and
``datapath.send_msg(parser.OFPPortConfig(datapath, 3, ...))``, in OpenFlow 1.3 and 1.5. The wire message
``PortConfig`` becomes the class ``OFPPortConfig``, and so on. ``openflow_ext.wire`` encodes and decodes;
``registry_classes`` builds the engine's classes. Open vSwitch's action ``parser.NXActionController2`` gets
the meter that the engines leave out: ``meter_id``.

A message that cannot be decoded is counted in ``malformed`` under its datapath id, logged at most once in
LOG_EVERY_S for a switch, and dropped. The session continues, but a malformed HELLO ends it. This also holds
for messages that the engine itself decodes, because the engines neither count them nor name the switch.
``message_check`` checks the lengths of a message before an engine's parser sees it: many loops of these
parsers do not end at a length of 0. Errors under Weir's experimenter id remain the engine's OFPErrorMsg,
with ``experimenter`` and ``exp_type`` (a ``wire.ErrorCode``).

Only this module and ``registry_classes`` use private names of an engine. Not implemented: ``tcp_window`` in
OFPActionSetField (MOD_WINDOW and SET_WINDOW change a window).
"""

from __future__ import annotations

import logging
import struct
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from openflow_ext import engine, message_check, native_threads, wire
from openflow_ext.registry_classes import (
    action_class,
    controller2_class,
    counters_reply_class,
    counters_request_class,
    message_class,
)
from openflow_ext.sessions import guard, handler_errors
from openflow_ext.sessions.guard import ended_sessions as ended_sessions
from weir_base.log_limit import LogLimit, more_held_back

LOG = logging.getLogger(__name__)

LOG_EVERY_S = 1.0
malformed: Counter[int | None] = Counter()
"""Dropped messages by datapath id; None counts messages from before the switch sent its id."""

log_limit = LogLimit(LOG_EVERY_S)
_METER_FEATURES_15 = 24
"""The size of ofp_meter_features in OpenFlow 1.5."""
_MOST_COUNTED = 10_000
"""Datapath ids in ``malformed``. A peer can invent ids, so further ones are counted under None."""
_VERSIONS = {wire.OFP13: "v1_3", wire.OFP15: "v1_5"}
_OTHER_VERSIONS = {1: "v1_0", 3: "v1_2", 5: "v1_4"}
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
    native_threads.repair(name)
    guard.install(name)
    handler_errors.limit(name)
    ofproto_parser = engine.load("ofproto.ofproto_parser", name)
    if hasattr(engine.load("ofproto.ofproto_v1_3_parser", name), "OFPBufAlarm"):
        return
    for version in range(256):
        suffix = _OTHER_VERSIONS.get(version)
        parser = engine.load(f"ofproto.ofproto_{suffix}_parser", name).msg_parser if suffix else None
        ofproto_parser.register_msg_parser(version)(_heard(_other_version(parser)))
    for version, suffix in _VERSIONS.items():
        _install_version(name, version, suffix, engine.load(f"ofproto.ofproto_{suffix}_parser", name))


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
    _replace_controller2(parser, pack_into)
    _hook_fields(engine.load(f"ofproto.ofproto_{suffix}", name), name)
    if hasattr(parser, "OFPPropBase"):
        _guard_properties(parser.OFPPropBase)
    _accept_short_features(parser.OFPMeterFeaturesStats)
    received = {cls.wire_cls: cls for cls in messages if cls.wire_cls in _FROM_SWITCH}
    ofproto_parser.register_msg_parser(version)(_heard(_message_parser(parser.msg_parser, received)))


def _heard(parse: Callable[..., Any]) -> Callable[..., Any]:
    """``parse``, and then the guard of the session, which may drop the message too.

    A datapath that is not a session of the engine's controller has no guard.
    """

    def parse_and_hear(datapath: Any, *args: Any) -> Any:
        msg = parse(datapath, *args)
        hear = getattr(datapath, "hear", None)
        return msg if hear is None or hear(msg) else None

    return parse_and_hear


def _other_version(engine_parser: Callable[..., Any] | None) -> Callable[..., Any]:
    """A parser for an OpenFlow version in which no switch may speak, except to say HELLO."""

    def parse(datapath: Any, version: int, msg_type: int, msg_len: int, xid: int, buf: bytes) -> Any:
        try:
            message_check.check(bytes(buf))
            if engine_parser is None:
                raise wire.UnknownType("ofp_header.version", f"{version} is unknown to the controller")
            return engine_parser(datapath, version, msg_type, msg_len, xid, buf)
        except Exception as error:  # no parser error may end the session
            _drop(datapath, msg_type, error)
            return None

    return parse


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
                message_check.check(data)
                return engine_parser(datapath, version, msg_type, msg_len, xid, buf)
            message = wire.decode_message(data)
            if type(message) not in received:
                raise wire.UnknownType("ofp_header.type", f"a switch does not send {type(message).__name__}")
        except Exception as error:  # no parser error may end the session
            _drop(datapath, msg_type, error)
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


def _drop(datapath: Any, msg_type: int, error: Exception) -> None:
    """Count and log a malformed message, with a traceback if the engine's parser failed.

    After a malformed HELLO the session ends, because the version stays unknown.
    """
    known = datapath.id in malformed or len(malformed) < _MOST_COUNTED
    malformed[datapath.id if known else None] += 1
    dpid = "unknown" if datapath.id is None else f"{datapath.id:016x}"
    held_back = log_limit.passes(datapath.id or datapath.address[0], time.monotonic())
    if held_back is not None:
        engine_error = None if isinstance(error, wire.WireError) else error
        LOG.warning(
            "switch %s at %s: malformed message dropped: %s%s",
            dpid,
            datapath.address,
            repr(engine_error) if engine_error else error,
            more_held_back(held_back),
            exc_info=engine_error,
        )
    if msg_type == message_check.OFPT_HELLO:
        datapath.close()


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


def _replace_controller2(parser: Any, pack_into: Callable[..., None]) -> None:
    """Add the meter to Nicira's action CONTROLLER2."""
    cls = controller2_class(parser, pack_into)
    cls.__module__ = parser.__name__
    parser.NXActionController2 = cls
    parser.NXAction.register(cls)


def _hook_fields(ofproto: Any, engine_name: str) -> None:
    """Make OFPXMT_OFB_TCP_WINDOW a field of OFPMatch, ``tcp_window``."""
    oxm_fields = engine.load("ofproto.oxm_fields", engine_name)
    type_desc = engine.load("lib.type_desc", engine_name)

    experimenter_id = {"experimenter_id": wire.WEIR_EXPERIMENTER_ID}
    field_cls: Any = type("WeirExperimenter", (oxm_fields.ONFExperimenter,), experimenter_id)
    ofproto.OFPXMT_OFB_TCP_WINDOW = wire.OFPXMT_OFB_TCP_WINDOW
    ofproto.oxm_types.append(field_cls("tcp_window", wire.OFPXMT_OFB_TCP_WINDOW, type_desc.Int2))
    oxm_fields.generate(ofproto.__name__)


def _accept_short_features(stats: Any) -> None:
    """Accept METER_FEATURES of Open vSwitch 3.1: in OpenFlow 1.5 it is as short as in 1.3.

    Without the fields at its end, both engines' 1.5 parsers fail.
    """
    engine_parse = stats.parser.__func__

    def parse(cls: Any, buf: bytes, offset: int) -> Any:
        return engine_parse(cls, bytes(buf) + bytes(_METER_FEATURES_15), offset)

    stats.parser = classmethod(parse)


def _guard_properties(base: Any) -> None:
    """Refuse a property of length 0, on which Ryu's 1.5 parser loops forever (os-ken's does not)."""
    engine_parse = base.parse.__func__

    def parse(cls: Any, buf: bytes) -> Any:
        if bytes(buf[2:4]) == b"\0\0":
            raise wire.BadLength("ofp_prop.length", "cannot be 0")
        return engine_parse(cls, buf)

    base.parse = classmethod(parse)
