"""FLOW_MODs: parsed once, and divided into the extension's part and Open vSwitch's part. No I/O."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

from openflow_ext import wire
from openflow_ext.switch.dataplane.rules import CountOp, WindowOp
from openflow_ext.switch.errors import Refused
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.matches import TCP_WINDOW, Fields, bad_match, read_match
from weir_base.window import LARGEST_WINDOW_BYTES

MODIFIES: Final = (of.OFPFC_MODIFY, of.OFPFC_MODIFY_STRICT)
_STRICT: Final = (of.OFPFC_MODIFY_STRICT, of.OFPFC_DELETE_STRICT)
_BEFORE_APPLY: Final = (of.OFPIT_METER,)
"""The instructions that a switch executes before apply-actions (OpenFlow 1.3.5, section 5.9)."""
_WITH_ACTIONS: Final = (of.OFPIT_WRITE_ACTIONS, of.OFPIT_APPLY_ACTIONS)
_EXPERIMENTER_ID: Final = wire.WEIR_EXPERIMENTER_ID.to_bytes(4, "big")


def may_extend(flow_mod: bytes) -> bool:
    """A quick test: False if ``flow_mod`` cannot contain an action or a field of the extension."""
    return _EXPERIMENTER_ID in flow_mod


@dataclass(frozen=True, slots=True)
class Operations:
    """The extension's actions of one FLOW_MOD, decoded. See Rule for the fields."""

    window_op: WindowOp = WindowOp.NONE
    window_bytes: int = 0
    alpha: int = 0
    count_op: CountOp = CountOp.NONE
    count_port: int | None = None
    observes: bool = False


@dataclass(frozen=True)
class FlowMod:
    """An OFPT_FLOW_MOD, parsed once and passed along.

    ``message`` and ``instructions`` are as the controller wrote them. ``actions`` are the extension's
    actions. ``plain`` is the message without them, for Open vSwitch. ``match`` includes its padding.
    """

    message: bytes
    plain: bytes
    actions: tuple[bytes, ...]
    match: bytes
    instructions: bytes
    cookie: int
    cookie_mask: int
    table_id: int
    command: int
    idle_timeout_s: int
    hard_timeout_s: int
    priority: int
    out_port: int
    out_group: int

    _LAYOUT: ClassVar = struct.Struct("!QQBBHHH4xII4x")
    MATCH_AT: ClassVar = 48

    @classmethod
    def parse(cls, message: bytes) -> FlowMod:
        """Raises ValueError if a length field is wrong. Open vSwitch answers such a message."""
        if len(message) < cls.MATCH_AT + 8:
            raise ValueError(f"FLOW_MOD of {len(message)} bytes")
        fixed = cls._LAYOUT.unpack_from(message, of.HEADER_SIZE)
        (match_length,) = struct.unpack_from("!H", message, cls.MATCH_AT + 2)
        instructions_at = cls.MATCH_AT + (match_length + 7) // 8 * 8
        if match_length < 4 or instructions_at > len(message):
            raise ValueError(f"match of {match_length} bytes")
        instructions = message[instructions_at:]
        kept, actions = _take_instructions(instructions)
        plain = of.resized(message[:instructions_at] + kept) if actions else message
        return cls(message, plain, actions, message[cls.MATCH_AT : instructions_at], instructions, *fixed)

    @cached_property
    def fields(self) -> Fields:
        """The fields of the match. Raises Refused."""
        return read_match(self.match)

    @cached_property
    def operations(self) -> Operations:
        """The extension's actions, decoded. Raises Refused if no entry can have them."""
        operations = Operations()
        for raw in self.actions:
            operations = _with_action(operations, _decode_action(raw))
        if operations.observes and not operations.window_op:
            raise bad_action(of.OFPBAC_BAD_ARGUMENT, "OBSERVE needs MOD_WINDOW or SET_WINDOW beside it")
        return operations

    @property
    def modifies(self) -> bool:
        """Whether this is a MODIFY, strict or not."""
        return self.command in MODIFIES

    @property
    def strict(self) -> bool:
        """Whether a MODIFY or DELETE selects only entries with its own priority and match."""
        return self.command in _STRICT

    @property
    def tables(self) -> range:
        """The tables whose entries it selects."""
        return (
            range(of.OFPTT_ALL) if self.table_id == of.OFPTT_ALL else range(self.table_id, self.table_id + 1)
        )

    def selects_cookie(self, cookie: int) -> bool:
        """Whether it selects entries with this cookie."""
        return not (cookie ^ self.cookie) & self.cookie_mask

    def refuse_window_match(self) -> None:
        """Raises Refused for a match on tcp_window. Neither Open vSwitch nor the data plane can match it."""
        if _EXPERIMENTER_ID in self.match and TCP_WINDOW in self.fields:
            raise bad_match(of.OFPBMC_BAD_FIELD, "tcp_window: the switch cannot match on the TCP window")


# -- instructions --------------------------------------------------------------------------------------


def tlvs(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The (type, whole element) of instructions or actions. Raises ValueError if a length field is wrong."""
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise ValueError(f"{len(data) - at} bytes left over")
        kind, length = struct.unpack_from("!HH", data, at)
        if length < 8 or at + length > len(data):
            raise ValueError(f"length {length} of {len(data) - at} bytes")
        yield kind, data[at : at + length]
        at += length


def _take_instructions(instructions: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    """The instructions without the extension's actions, and these actions.

    An instruction without any action left is dropped. Every other byte is kept.
    """
    kept: list[bytes] = []
    taken: list[bytes] = []
    for kind, instruction in tlvs(instructions):
        rest, actions = _take_actions(instruction) if kind in _WITH_ACTIONS else (instruction, [])
        kept.append(rest)
        taken += actions
    return b"".join(kept), tuple(taken)


def _take_actions(instruction: bytes) -> tuple[bytes, list[bytes]]:
    """An instruction without the extension's actions (empty if it had no others), and these actions."""
    kept: list[bytes] = []
    taken: list[bytes] = []
    for _, action in tlvs(instruction[8:]):
        (taken if wire.is_extension_action(action) else kept).append(action)
    if not taken:
        return instruction, []
    actions = b"".join(kept)
    if not actions:
        return b"", taken
    return instruction[:2] + struct.pack("!H", 8 + len(actions)) + instruction[4:8] + actions, taken


def with_actions_first(instructions: bytes, actions: bytes) -> bytes:
    """``instructions`` with ``actions`` first in their apply-actions. Raises ValueError."""
    found = list(tlvs(instructions))
    before = b"".join(raw for kind, raw in found if kind in _BEFORE_APPLY)
    after = [(kind, raw) for kind, raw in found if kind not in _BEFORE_APPLY]
    applied = b"".join(raw[8:] for kind, raw in after if kind == of.OFPIT_APPLY_ACTIONS)
    apply = struct.pack("!HH4x", of.OFPIT_APPLY_ACTIONS, 8 + len(actions) + len(applied)) + actions + applied
    return before + apply + b"".join(raw for kind, raw in after if kind != of.OFPIT_APPLY_ACTIONS)


def sends_to(instructions: bytes, out_port: int, out_group: int) -> bool:
    """Whether a command that is restricted to a port and a group selects an entry with ``instructions``.

    OFPP_ANY and OFPG_ANY mean no restriction. Raises ValueError if a length field is wrong.
    """
    if (out_port, out_group) == (of.OFPP_ANY, of.OFPG_ANY):
        return True
    targets = set(_targets(instructions))
    to_port = out_port == of.OFPP_ANY or (of.OFPAT_OUTPUT, out_port) in targets
    to_group = out_group == of.OFPG_ANY or (of.OFPAT_GROUP, out_group) in targets
    return to_port and to_group


def _targets(instructions: bytes) -> Iterator[tuple[int, int]]:
    """The (action type, number) of each port and each group to which ``instructions`` send."""
    for kind, instruction in tlvs(instructions):
        if kind not in _WITH_ACTIONS:
            continue
        for action_type, action in tlvs(instruction[8:]):
            if action_type in (of.OFPAT_OUTPUT, of.OFPAT_GROUP):
                yield action_type, int.from_bytes(action[4:8], "big")


# -- the extension's actions ---------------------------------------------------------------------------


def _decode_action(raw: bytes) -> wire.Action:
    try:
        return wire.decode_action(raw)
    except wire.UnknownType as error:
        raise bad_action(of.OFPBAC_BAD_EXP_TYPE, str(error)) from error
    except wire.BadValue as error:
        raise bad_action(of.OFPBAC_BAD_ARGUMENT, str(error)) from error
    except wire.WireError as error:
        raise bad_action(of.OFPBAC_BAD_LEN, str(error)) from error


def _with_action(operations: Operations, action: wire.Action) -> Operations:
    match action:
        case wire.ModWindow(window_bytes, alpha):
            return _with_window(operations, WindowOp.MOD_WINDOW, window_bytes, alpha)
        case wire.SetWindow(wire.FAIR_SHARE):
            return _with_window(operations, WindowOp.FAIR_SHARE)
        case wire.SetWindow(window_bytes):
            return _with_window(operations, WindowOp.SET_WINDOW, window_bytes)
        case wire.IncrementNi(port):
            return _with_count(operations, CountOp.INCREMENT_NI, port)
        case wire.DecrementNi(port):
            return _with_count(operations, CountOp.DECREMENT_NI, port)
        case wire.Observe():
            if operations.observes:
                raise bad_action(of.OFPBAC_TOO_MANY, "an entry can have only one OBSERVE")
            return dataclasses.replace(operations, observes=True)


def _with_window(operations: Operations, op: WindowOp, window_bytes: int = 0, alpha: int = 0) -> Operations:
    if operations.window_op:
        raise bad_action(of.OFPBAC_TOO_MANY, "an entry can have only one window action")
    if op is not WindowOp.FAIR_SHARE and not 1 <= window_bytes <= LARGEST_WINDOW_BYTES:
        raise bad_action(
            of.OFPBAC_BAD_ARGUMENT, f"window {window_bytes}: expected 1 to {LARGEST_WINDOW_BYTES}"
        )
    return dataclasses.replace(operations, window_op=op, window_bytes=window_bytes, alpha=alpha)


def _with_count(operations: Operations, op: CountOp, port: int) -> Operations:
    if operations.count_op:
        raise bad_action(of.OFPBAC_TOO_MANY, "an entry can have only one count action")
    return dataclasses.replace(operations, count_op=op, count_port=None if port == of.OFPP_ANY else port)


def bad_action(code: int, reason: str) -> Refused:
    """The refusal of an action."""
    return Refused(of.OFPET_BAD_ACTION, code, reason)


def actions_of(operations: Operations) -> bytes:
    """The actions by which a controller writes ``operations``: the inverse of FlowMod.operations."""
    return b"".join(map(wire.encode_action, _actions_of(operations)))


def _actions_of(operations: Operations) -> Iterable[wire.Action]:
    if operations.observes:
        yield wire.Observe()
    match operations.window_op:
        case WindowOp.MOD_WINDOW:
            yield wire.ModWindow(operations.window_bytes, operations.alpha)
        case WindowOp.SET_WINDOW:
            yield wire.SetWindow(operations.window_bytes)
        case WindowOp.FAIR_SHARE:
            yield wire.SetWindow(wire.FAIR_SHARE)
    port = of.OFPP_ANY if operations.count_port is None else operations.count_port
    match operations.count_op:
        case CountOp.INCREMENT_NI:
            yield wire.IncrementNi(port)
        case CountOp.DECREMENT_NI:
            yield wire.DecrementNi(port)
