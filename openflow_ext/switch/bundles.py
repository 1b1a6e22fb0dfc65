"""Bundles in one session: OFPT_BUNDLE_* of OpenFlow 1.4 and later, ONF's extension of 1.3.

A FLOW_MOD in a bundle acts when the bundle is committed. Open vSwitch holds its plain rest until then, this
the whole of it: at the commit both parts act, or neither.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from openflow_ext.switch import openflow as of
from openflow_ext.switch import split
from openflow_ext.switch.errors import Refused
from openflow_ext.switch.exchange import Verdict
from openflow_ext.switch.split import Split

ONF_ID = (0x4F4E4600).to_bytes(4, "big")
_CONTROL_13, _ADD_13 = 2300, 2301
_OFPBCT_COMMIT_REQUEST, _OFPBCT_DISCARD_REQUEST = 4, 6
_MSG_FAILED = 13
_CONTROL = struct.Struct("!IH")
_ADD_HEAD_SIZE = 8


@dataclass(frozen=True, slots=True)
class Added:
    """A FLOW_MOD in a bundle: as the controller wrote it, read, and its two parts."""

    message: bytes
    flow_mod: of.FlowMod
    parts: Split

    @property
    def modifies(self) -> bool:
        """Whether it needs to know which entries it is about."""
        return bool(self.parts.actions) and self.flow_mod.command in of.MODIFIES


@dataclass(slots=True)
class Bundle:
    """What waits for the commit. ``takes_along``: groups end, and entries with them."""

    added: list[Added] = field(default_factory=list)
    takes_along: bool = False


def is_bundle_message(message: bytes) -> bool:
    """Whether a message opens, fills or ends a bundle, or answers one that does."""
    return _kind(message) is not None


def _kind(message: bytes) -> int | None:
    """OFPT_BUNDLE_CONTROL or OFPT_BUNDLE_ADD_MESSAGE, in either form."""
    if message[0] > of.OFP13:
        return message[1] if message[1] in (of.OFPT_BUNDLE_CONTROL, of.OFPT_BUNDLE_ADD_MESSAGE) else None
    if message[0] < of.OFP13 or message[1] != of.OFPT_EXPERIMENTER or message[8:12] != ONF_ID:
        return None
    exp_type = int.from_bytes(message[12:16], "big")
    return {_CONTROL_13: of.OFPT_BUNDLE_CONTROL, _ADD_13: of.OFPT_BUNDLE_ADD_MESSAGE}.get(exp_type)


def _body_at(message: bytes) -> int:
    return of.HEADER_SIZE if message[0] > of.OFP13 else of.HEADER_SIZE + 8


class Bundles:
    """What waits in a session's bundles."""

    def __init__(self) -> None:
        self._open: dict[int, Bundle] = {}
        self._committed = Bundle()
        self._discarded: set[bytes] = set()

    def take(self, message: bytes, commit: Callable[[bytes, Bundle], Verdict]) -> Verdict:
        """Follow a bundle. ``commit`` carries out one that the message commits, now or later."""
        body = message[_body_at(message) :]
        if _kind(message) == of.OFPT_BUNDLE_ADD_MESSAGE:
            return self._add(message, body)
        if len(body) < _CONTROL.size:
            return Verdict(forward=message)
        bundle_id, control = _CONTROL.unpack_from(body)
        if control not in (_OFPBCT_COMMIT_REQUEST, _OFPBCT_DISCARD_REQUEST):
            return Verdict(forward=message)
        bundle = self._open.pop(bundle_id, Bundle())
        if control == _OFPBCT_DISCARD_REQUEST:
            return Verdict(forward=message)
        self._committed = bundle
        return commit(message, bundle)

    def _add(self, message: bytes, body: bytes) -> Verdict:
        inner = body[_ADD_HEAD_SIZE : _ADD_HEAD_SIZE + int.from_bytes(body[10:12], "big")]
        bundle_id = int.from_bytes(body[:4], "big")
        if of.takes_entries_along(inner):
            self._open.setdefault(bundle_id, Bundle()).takes_along = True
        if inner[1:2] != bytes([of.OFPT_FLOW_MOD]):
            return Verdict(forward=message)
        try:
            added = _checked(inner)
        except ValueError:
            return Verdict(forward=message)
        except Refused as refusal:
            return Verdict(answer=of.error(message, refusal.error_type, refusal.code))
        self._open.setdefault(bundle_id, Bundle()).added.append(added)
        return Verdict(forward=_with_inner(message, len(inner), added.parts.rest))

    def discard(self, commit: bytes) -> Verdict:
        """What becomes of a ``commit`` that cannot be carried out: Open vSwitch forgets the bundle."""
        at = _body_at(commit) + 4
        self._discarded.add(commit[4:8])
        request = commit[:at] + _OFPBCT_DISCARD_REQUEST.to_bytes(2, "big") + commit[at + 2 :]
        return Verdict(forward=request, answer=_failure(commit, _MSG_FAILED))

    def answers_discard(self, message: bytes) -> bool:
        """Whether a message answers what ``discard`` asked: the controller asked for no such thing."""
        if message[4:8] not in self._discarded:
            return False
        self._discarded.remove(message[4:8])
        return True

    def refused(self, error: bytes) -> None:
        """Open vSwitch did not take a message into a bundle."""
        for bundle in (*self._open.values(), self._committed):
            bundle.added = [one for one in bundle.added if one.message[4:8] != error[4:8]]


def _checked(inner: bytes) -> Added:
    """A FLOW_MOD and its parts. Raises Refused where they could not be carried out, ValueError where its
    lengths lie."""
    flow_mod = of.FlowMod.parse(inner)
    parts = split.split(inner)
    split.refuse_windows(flow_mod.match)
    if parts.actions and flow_mod.command in of.MODIFIES:
        split.check_modify(flow_mod, parts.actions)
    if parts.actions and flow_mod.command == of.OFPFC_ADD:
        split.rule_for(flow_mod, parts.actions)
    return Added(inner, flow_mod, parts)


def _with_inner(message: bytes, size: int, inner: bytes) -> bytes:
    """A bundle-add with ``inner`` instead of its message, which has ``size`` bytes."""
    at = _body_at(message) + _ADD_HEAD_SIZE
    return of.resized(message[:at] + inner + message[at + size :])


def _failure(message: bytes, code: int) -> bytes:
    """OFPET_BUNDLE_FAILED, as the version has it."""
    if message[0] > of.OFP13:
        return of.error(message, of.OFPET_BUNDLE_FAILED, code)
    data = ONF_ID + message[: of.ERROR_DATA_SIZE]
    length, xid = 12 + len(data), of.HEADER.unpack_from(message)[3]
    head = of.HEADER.pack(message[0], of.OFPT_ERROR, length, xid)
    return head + struct.pack("!HH", of.OFPET_EXPERIMENTER, _CONTROL_13 + code) + data
