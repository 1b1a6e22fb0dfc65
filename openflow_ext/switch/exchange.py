"""What becomes of a message, and the agent's own requests to Open vSwitch in a controller's session."""

from __future__ import annotations

import itertools
import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass

from openflow_ext.switch import openflow as of


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a message: bytes that go on in its direction, bytes that go back.

    ``hold``: what comes behind it waits until the session holds no more.
    """

    forward: bytes = b""
    answer: bytes = b""
    hold: bool = False


Reply = Callable[[bytes, bool], Verdict]
"""Takes one message of the reply (empty: an error) and whether it is the last."""


class OwnRequests:
    """Multipart requests of the agent's own; their answers do not reach the controller.

    Their xids start anywhere, so a controller's request of the same kind at the same time does not have
    the same one.
    """

    def __init__(self) -> None:
        self._xids = itertools.count(secrets.randbelow(1 << 31))
        self._waiting: dict[int, tuple[int, Reply]] = {}

    def ask(self, request: Callable[[int], bytes], reply: Reply) -> bytes:
        """A request, made for an xid; ``reply`` gets the answer."""
        xid = next(self._xids)
        message = request(xid)
        self._waiting[xid] = int.from_bytes(message[8:10], "big"), reply
        return message

    def take(self, message: bytes) -> Verdict | None:
        """What becomes of an answer to a request of the agent's own; None: it is not one."""
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
