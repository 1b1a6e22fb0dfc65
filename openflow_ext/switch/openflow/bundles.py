"""Bundles in one session: OFPT_BUNDLE_* of OpenFlow 1.4 and later, and ONF's extension of OpenFlow 1.3.

A FLOW_MOD in a bundle acts when the bundle is committed. Until then Open vSwitch holds its plain part, and
this module holds the parsed FLOW_MOD. At the commit both parts act, or neither does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from openflow_ext.switch.errors import Refused
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.extension_rules import rule_of
from openflow_ext.switch.openflow.flow_mods import FlowMod
from openflow_ext.switch.openflow.own_requests import Verdict

ONF_ID = (0x4F4E4600).to_bytes(4, "big")
_CONTROL_13, _ADD_13 = 2300, 2301
_OFPBCT_OPEN_REQUEST, _OFPBCT_COMMIT_REQUEST, _OFPBCT_DISCARD_REQUEST = 0, 4, 6
_OFPBFC_MSG_FAILED = 13
_CONTROL = struct.Struct("!IH")
_ADD_HEAD_SIZE = 8


@dataclass(slots=True)
class Bundle:
    """The FLOW_MODs that wait for a commit, each with the first bytes of the message that added it.

    ``removes_entries``: the bundle removes groups or meters, and Open vSwitch removes entries with them.
    ``unclear``: Open vSwitch has refused one of several messages whose first bytes are equal.
    """

    added: list[tuple[bytes, FlowMod]] = field(default_factory=list)
    removes_entries: bool = False
    unclear: bool = False

    @property
    def flow_mods(self) -> list[FlowMod]:
        return [flow_mod for _, flow_mod in self.added]

    def refused(self, quoted: bytes) -> None:
        """Open vSwitch did not take the message whose first bytes are ``quoted``."""
        others = [one for one in self.added if one[0] != quoted]
        if len(self.added) - len(others) > 1:
            self.unclear = True
        else:
            self.added = others


def is_bundle_message(message: bytes) -> bool:
    """Whether a message opens, fills, commits or discards a bundle, or answers such a message."""
    return _kind(message) is not None


def _kind(message: bytes) -> int | None:
    """OFPT_BUNDLE_CONTROL or OFPT_BUNDLE_ADD_MESSAGE, in the form of either OpenFlow version."""
    if message[0] > of.OFP13:
        return message[1] if message[1] in (of.OFPT_BUNDLE_CONTROL, of.OFPT_BUNDLE_ADD_MESSAGE) else None
    if message[0] < of.OFP13 or message[1] != of.OFPT_EXPERIMENTER or message[8:12] != ONF_ID:
        return None
    exp_type = int.from_bytes(message[12:16], "big")
    return {_CONTROL_13: of.OFPT_BUNDLE_CONTROL, _ADD_13: of.OFPT_BUNDLE_ADD_MESSAGE}.get(exp_type)


def _body_at(message: bytes) -> int:
    return of.HEADER_SIZE if message[0] > of.OFP13 else of.HEADER_SIZE + 8


class Bundles:
    """The bundles of one session."""

    def __init__(self) -> None:
        self._open: dict[int, Bundle] = {}
        self._committed = Bundle()
        self._discarded: set[bytes] = set()

    def follow(self, message: bytes, commit: Callable[[bytes, Bundle], Verdict]) -> Verdict:
        """Follow a bundle message of the controller. ``commit`` commits a bundle, at once or later."""
        body = message[_body_at(message) :]
        if _kind(message) == of.OFPT_BUNDLE_ADD_MESSAGE:
            return self._add(message, body)
        if len(body) < _CONTROL.size:
            return Verdict(forward=message)
        bundle_id, control = _CONTROL.unpack_from(body)
        if control == _OFPBCT_OPEN_REQUEST:
            self._open.pop(bundle_id, None)  # Open vSwitch has ended it after a timeout, or ends it now
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
        if of.removes_entries(inner):
            self._open.setdefault(bundle_id, Bundle()).removes_entries = True
        if inner[1:2] != bytes([of.OFPT_FLOW_MOD]):
            return Verdict(forward=message)
        try:
            flow_mod = FlowMod.parse(inner)
            _check(flow_mod)
        except ValueError:
            return Verdict(forward=message)
        except Refused as refusal:
            return Verdict(answer=of.error(message, refusal.error_type, refusal.code))
        sent = _with_inner(message, len(inner), flow_mod.plain)
        self._open.setdefault(bundle_id, Bundle()).added.append((sent[: of.ERROR_DATA_SIZE], flow_mod))
        return Verdict(forward=sent)

    def discard(self, commit: bytes) -> Verdict:
        """Turn a ``commit`` that cannot be carried out into a discard: Open vSwitch drops the bundle."""
        at = _body_at(commit) + 4
        self._discarded.add(commit[4:8])
        request = commit[:at] + _OFPBCT_DISCARD_REQUEST.to_bytes(2, "big") + commit[at + 2 :]
        return Verdict(forward=request, answer=_failure(commit, _OFPBFC_MSG_FAILED))

    def answers_discard(self, message: bytes) -> bool:
        """Whether a message answers a request of ``discard``, for which the controller did not ask."""
        if message[4:8] not in self._discarded:
            return False
        self._discarded.remove(message[4:8])
        return True

    def refused(self, error: bytes) -> None:
        """Open vSwitch refused a message, which may be one for a bundle.

        The error's xid does not identify it: the controller may have used that xid several times.
        """
        quoted = error[of.quoted_at(error) :][: of.ERROR_DATA_SIZE]
        for bundle in (*self._open.values(), self._committed):
            bundle.refused(quoted)


def _check(flow_mod: FlowMod) -> None:
    """Raises Refused if the data plane cannot carry out the FLOW_MOD when the bundle is committed."""
    flow_mod.refuse_window_match()
    if not flow_mod.actions:
        return
    if flow_mod.modifies:
        _ = flow_mod.operations
    elif flow_mod.command == of.OFPFC_ADD:
        rule_of(flow_mod)


def _with_inner(message: bytes, size: int, inner: bytes) -> bytes:
    """A bundle-add with ``inner`` instead of its own inner message, which has ``size`` bytes."""
    at = _body_at(message) + _ADD_HEAD_SIZE
    return of.resized(message[:at] + inner + message[at + size :])


def _failure(message: bytes, code: int) -> bytes:
    """OFPET_BUNDLE_FAILED, in the form of the message's OpenFlow version."""
    if message[0] > of.OFP13:
        return of.error(message, of.OFPET_BUNDLE_FAILED, code)
    data = ONF_ID + message[: of.ERROR_DATA_SIZE]
    length, xid = 12 + len(data), of.HEADER.unpack_from(message)[3]
    head = of.HEADER.pack(message[0], of.OFPT_ERROR, length, xid)
    return head + struct.pack("!HH", of.OFPET_EXPERIMENTER, _CONTROL_13 + code) + data
