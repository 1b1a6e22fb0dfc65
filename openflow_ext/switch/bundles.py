"""Bundles in one session: OFPT_BUNDLE_* of OpenFlow 1.4 and later, ONF's extension of 1.3.

A FLOW_MOD in a bundle acts when the bundle is committed. The extension's actions are refused in a bundle;
what plain FLOW_MODs in it do to entries that have them is done here at the commit, and undone where
Open vSwitch refuses that.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from openflow_ext.switch import openflow as of
from openflow_ext.switch import split

ONF_ID = (0x4F4E4600).to_bytes(4, "big")
_CONTROL_13, _ADD_13 = 2300, 2301
_OFPBCT_COMMIT_REQUEST, _OFPBCT_DISCARD_REQUEST = 4, 6
_MSG_UNSUP = 10
_CONTROL, _ADDED = struct.Struct("!IH"), struct.Struct("!I")
_ADD_HEAD_SIZE = 8


@dataclass(frozen=True, slots=True)
class _Added:
    xid: bytes
    message: bytes


def is_bundle_message(message: bytes) -> bool:
    """Whether a controller's message opens, fills or ends a bundle."""
    return _kind(message) is not None


def _kind(message: bytes) -> int | None:
    """OFPT_BUNDLE_CONTROL or OFPT_BUNDLE_ADD_MESSAGE, in either form."""
    if message[0] > of.OFP13:
        return message[1] if message[1] in (of.OFPT_BUNDLE_CONTROL, of.OFPT_BUNDLE_ADD_MESSAGE) else None
    if message[0] < of.OFP13 or message[1] != of.OFPT_EXPERIMENTER or message[8:12] != ONF_ID:
        return None
    exp_type = int.from_bytes(message[12:16], "big")
    return {_CONTROL_13: of.OFPT_BUNDLE_CONTROL, _ADD_13: of.OFPT_BUNDLE_ADD_MESSAGE}.get(exp_type)


def _body(message: bytes) -> bytes:
    return message[of.HEADER_SIZE if message[0] > of.OFP13 else of.HEADER_SIZE + 8 :]


class Bundles:
    """The FLOW_MODs that wait in a session's bundles."""

    def __init__(self) -> None:
        self._open: dict[int, list[_Added]] = {}

    def refusal(self, message: bytes) -> bytes:
        """The error for a message that brings an action of the extension into a bundle; else nothing."""
        if _kind(message) != of.OFPT_BUNDLE_ADD_MESSAGE:
            return b""
        inner = _body(message)[_ADD_HEAD_SIZE:]
        try:
            extended = inner[1:2] == bytes([of.OFPT_FLOW_MOD]) and split.split(_cut(inner)).actions
        except ValueError:
            return b""
        return _unsupported(message) if extended else b""

    def take(self, message: bytes) -> list[bytes]:
        """Follow a bundle; the FLOW_MODs that a commit carries out now."""
        body = _body(message)
        if len(body) < _CONTROL.size:
            return []
        if _kind(message) == of.OFPT_BUNDLE_ADD_MESSAGE:
            (bundle_id,) = _ADDED.unpack_from(body)
            inner = body[_ADD_HEAD_SIZE:]
            if inner[1:2] == bytes([of.OFPT_FLOW_MOD]):
                self._open.setdefault(bundle_id, []).append(_Added(message[4:8], _cut(inner)))
            return []
        bundle_id, control = _CONTROL.unpack_from(body)
        if control not in (_OFPBCT_COMMIT_REQUEST, _OFPBCT_DISCARD_REQUEST):
            return []
        added = self._open.pop(bundle_id, [])
        return [one.message for one in added] if control == _OFPBCT_COMMIT_REQUEST else []

    def refused(self, error: bytes) -> None:
        """Open vSwitch did not take a message into a bundle."""
        for added in self._open.values():
            added[:] = [one for one in added if one.xid != error[4:8]]


def _cut(inner: bytes) -> bytes:
    """The message in a bundle-add, without the properties behind it."""
    return inner[: int.from_bytes(inner[2:4], "big")]


def _unsupported(message: bytes) -> bytes:
    """OFPBFC_MSG_UNSUP, as the version has it."""
    if message[0] > of.OFP13:
        return of.error(message, of.OFPET_BUNDLE_FAILED, _MSG_UNSUP)
    data = ONF_ID + message[: of.ERROR_DATA_SIZE]
    length, xid = 12 + len(data), of.HEADER.unpack_from(message)[3]
    head = of.HEADER.pack(message[0], of.OFPT_ERROR, length, xid)
    return head + struct.pack("!HH", of.OFPET_EXPERIMENTER, _CONTROL_13 + _MSG_UNSUP) + data
