"""Verdicts on messages, and the agent's own requests to Open vSwitch in a controller's session."""

from __future__ import annotations

import itertools
import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass

from openflow_ext.switch.openflow import messages as of


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for a message: ``forward`` goes on in its direction, ``answer`` goes back to its sender.

    ``hold``: the messages behind it wait until the session stops holding. ``wait``: so does the message
    itself, and nothing else is set.
    """

    forward: bytes = b""
    answer: bytes = b""
    hold: bool = False
    wait: bool = False


Reply = Callable[[bytes, bool], Verdict]
"""Called with each message of a reply and whether it is the last. An empty message stands for an error."""


class OwnRequests:
    """The agent's own multipart requests. Their answers do not reach the controller.

    Their xids start at a random number, so that they differ from the controller's xids.
    """

    def __init__(self) -> None:
        self._xids = itertools.count(secrets.randbelow(1 << 31))
        self._waiting: dict[int, tuple[int, Reply]] = {}

    def ask(self, request: Callable[[int], bytes], reply: Reply) -> bytes:
        """The message that ``request`` makes with a new xid. ``reply`` will be called with the answer."""
        xid = next(self._xids)
        message = request(xid)
        self._waiting[xid] = int.from_bytes(message[8:10], "big"), reply
        return message

    def take(self, message: bytes) -> Verdict | None:
        """The verdict on an answer to one of these requests; None for any other message."""
        (xid,) = struct.unpack_from("!I", message, 4)
        if xid not in self._waiting:
            return None
        kind, reply = self._waiting[xid]
        if message[1] == of.OFPT_ERROR:
            del self._waiting[xid]
            return reply(b"", True)
        if int.from_bytes(message[8:10], "big") != kind:
            return None
        last = not int.from_bytes(message[10:12], "big") & of.OFPMPF_MORE
        if last:
            del self._waiting[xid]
        return reply(message, last)
