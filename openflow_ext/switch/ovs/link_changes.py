"""Changes of links, qdiscs, classes and filters, as the kernel notifies them. So the agent need not ask."""

from __future__ import annotations

import errno
import socket

from openflow_ext.switch.dataplane.netlink import (
    DEL_CLASS,
    DEL_FILTER,
    DEL_LINK,
    DEL_QDISC,
    LINK,
    NEW_CLASS,
    NEW_FILTER,
    NEW_LINK,
    NEW_QDISC,
    TC,
    messages,
    sent_here,
)
from openflow_ext.switch.errors import SwitchError

_RTMGRP_LINK, _RTMGRP_TC = 0x1, 0x8
_LINK_MESSAGES = (NEW_LINK, DEL_LINK)
_TC_MESSAGES = (NEW_QDISC, DEL_QDISC, NEW_CLASS, DEL_CLASS, NEW_FILTER, DEL_FILTER)
_READ_BYTES = 1 << 16
_BUFFER_BYTES = 1 << 20
"""Room for the notifications of a thousand ports that change at once."""


class LinkChanges:
    """A socket to which the kernel reports each change. Raises SwitchError if it cannot be opened."""

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            self._socket.setblocking(False)
            self._socket.bind((0, _RTMGRP_LINK | _RTMGRP_TC))
        except OSError as error:
            raise SwitchError(f"no notifications of changed links: {error}") from error

    @property
    def fd(self) -> int:
        """A descriptor that is readable while changes wait."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def read(self) -> set[int] | None:
        """The interfaces that changed since the last call; None: any may have, as notifications were lost."""
        changed: set[int] = set()
        lost = False
        while True:
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                return None if lost else changed
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise SwitchError(f"notifications of changed links cannot be read: {error}") from error
                lost = True
            else:
                changed |= changed_interfaces(data)


def changed_interfaces(data: bytes) -> set[int]:
    """The interfaces that the notifications in a datagram name.

    Before Linux 6.9 a request for a qdisc causes a notification too. The agent ignores
    notifications that its own requests caused.
    """
    changed = set()
    for kind, _, sender, body in messages(data):
        if sent_here(sender):
            continue
        if kind in _LINK_MESSAGES and len(body) >= LINK.size:
            changed.add(LINK.unpack_from(body)[2])
        elif kind in _TC_MESSAGES and len(body) >= TC.size:
            changed.add(TC.unpack_from(body)[1])
    return changed
