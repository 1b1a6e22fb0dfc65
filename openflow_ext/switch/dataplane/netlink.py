"""Qdiscs, classes and XDP programs by netlink (rtnetlink(7), linux/pkt_sched.h): one, or a dump of all.

A small client instead of pyroute2, because a dump of many ports must be cheap to decode, and because it also
works inside a running event loop. It decodes only the attributes that the agent uses.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

ROOT = 0xFFFFFFFF
CLSACT = 0xFFFFFFF1
CLSACT_INGRESS = 0xFFFFFFF2
CLSACT_EGRESS = 0xFFFFFFF3

NEW_LINK, DEL_LINK, GET_LINK = 16, 17, 18
NEW_QDISC, DEL_QDISC, GET_QDISC = 36, 37, 38
NEW_CLASS, DEL_CLASS, GET_CLASS = 40, 41, 42
NEW_FILTER, DEL_FILTER, GET_FILTER = 44, 45, 46

HEADER = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence, port id of the sender."""
LINK = struct.Struct("=BxHiII")
"""struct ifinfomsg: family, type of device, ifindex, flags, mask of changed flags."""
TC = struct.Struct("=BxxxiIII")
"""struct tcmsg: family, ifindex, handle, parent, info."""
_ATTRIBUTE = struct.Struct("=HH")
_U32 = struct.Struct("=I")
_IFLA_EXT_MASK, _SKIP_STATS = 29, 1 << 3
_IFLA_XDP = 43
_XDP_MODES = {5: 1 << 2, 6: 1 << 1}
"""The attributes with the ids of native and generic programs, and the flags of these modes (if_link.h)."""
_CODE = struct.Struct("=i")
_ERROR, _DONE = 2, 3
_REQUEST, _ACK, _ECHO, _DUMP = 0x1, 0x4, 0x8, 0x300
_TYPE_MASK = 0x3FFF
_TCA_KIND, _TCA_OPTIONS, _TCA_STATS2, _TCA_DUMP_INVISIBLE = 1, 2, 7, 10
_TCA_STATS_QUEUE = 3
_QUEUE_STATS = struct.Struct("=IIIII")
"""struct gnet_stats_queue: packets, bytes, drops, requeues, overlimits."""
_BUFFER_BYTES = 1 << 18
_TIMEOUT_S = 5.0
_MOST_DUMPS = 5


@dataclass(frozen=True, slots=True)
class TcObject:
    """A qdisc or a class.

    ``options``: the content of TCA_OPTIONS. ``drops``: since it was created. ``queue_pkts`` and
    ``queue_bytes``: its queue and that of its children.
    """

    ifindex: int
    handle: int
    parent: int
    kind: str
    options: bytes = b""
    drops: int = 0
    queue_pkts: int = 0
    queue_bytes: int = 0


_own_port_ids: set[int] = set()


def sent_here(port_id: int) -> bool:
    """Whether a Netlink of this process has sent the request that a notification names."""
    return port_id in _own_port_ids


class Netlink:
    """A netlink socket for requests.

    Each method blocks for the time that the kernel needs and raises OSError.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.bind((0, 0))
        self._socket.settimeout(_TIMEOUT_S)
        self._port_id: int = self._socket.getsockname()[0]
        _own_port_ids.add(self._port_id)
        self._sequence = 0

    def close(self) -> None:
        _own_port_ids.discard(self._port_id)
        self._socket.close()

    def qdisc(self, ifindex: int, parent: int = ROOT) -> TcObject | None:
        """The qdisc of an interface below ``parent``; None if there is none, or no such interface."""
        # Before Linux 6.9 the answer is a notification, which the requester gets only with NLM_F_ECHO.
        flags = _REQUEST | _ACK | _ECHO
        try:
            replies = list(self._call(GET_QDISC, flags, TC.pack(0, ifindex, 0, parent, 0)))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV, errno.EINVAL):
                return None
            raise
        return tc_object(replies[0]) if replies else None

    def qdiscs(self) -> list[TcObject]:
        """The qdiscs of all interfaces: one dump.

        It has the FIFOs that the kernel gives to classes, too, which `qdisc` does not find.

        The kernel sends a dump in parts, and continues after a number of interfaces. If an interface has gone
        meanwhile, it skips another one, without NLM_F_DUMP_INTR (tc_dump_qdisc). Then the dump is repeated,
        so that there are up to _MOST_DUMPS. The last one may lack qdiscs.
        """
        body = TC.pack(0, 0, 0, 0, 0) + _ATTRIBUTE.pack(_ATTRIBUTE.size, _TCA_DUMP_INVISIBLE)
        found: list[TcObject] = []
        for _ in range(_MOST_DUMPS):
            before = interfaces()
            found = [tc_object(reply) for reply in self._call(GET_QDISC, _REQUEST | _DUMP, body)]
            if before <= interfaces():
                break
        return found

    def classes(self, ifindex: int) -> list[TcObject]:
        """The classes of an interface."""
        body = TC.pack(0, ifindex, 0, 0, 0)
        return [tc_object(reply) for reply in self._call(GET_CLASS, _REQUEST | _DUMP, body)]

    def has_filters(self, ifindex: int, parent: int) -> bool:
        """Whether a filter is attached below ``parent``."""
        body = TC.pack(0, ifindex, 0, parent, 0)
        return bool(list(self._call(GET_FILTER, _REQUEST | _DUMP, body)))

    def xdp(self, ifindex: int) -> dict[int, int]:
        """The XDP programs on an interface: flag of the mode (XDP_NATIVE, XDP_GENERIC) -> the program's id.

        libbpf has this too, but dumps all interfaces of the machine for it. Raises OSError (ENODEV).
        """
        skip_stats = _ATTRIBUTE.pack(8, _IFLA_EXT_MASK) + _U32.pack(_SKIP_STATS)
        for reply in self._call(GET_LINK, _REQUEST | _ACK, LINK.pack(0, 0, ifindex, 0, 0) + skip_stats):
            found = attributes(attributes(reply[LINK.size :]).get(_IFLA_XDP, b""))
            return {mode: _U32.unpack(found[kind])[0] for kind, mode in _XDP_MODES.items() if kind in found}
        return {}

    def remove_qdisc(self, ifindex: int, handle: int, parent: int) -> None:
        """Remove a qdisc."""
        list(self._call(DEL_QDISC, _REQUEST | _ACK, TC.pack(0, ifindex, handle, parent, 0)))

    def _call(self, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
        """Send a request; the bodies of its replies, up to the acknowledgement or the end of the dump."""
        self._sequence = self._sequence % 0xFFFFFFFF + 1
        self._socket.send(HEADER.pack(HEADER.size + len(body), kind, flags, self._sequence, 0) + body)
        while True:
            for number, sequence, _, content in messages(self._socket.recv(_BUFFER_BYTES)):
                if sequence != self._sequence:
                    continue
                if number == _DONE:
                    return
                if number == _ERROR:
                    code = -_CODE.unpack_from(content)[0]
                    if code:
                        raise OSError(code, os.strerror(code))
                    return
                yield content


def interfaces() -> set[int]:
    """The numbers of the interfaces in this network namespace."""
    return {ifindex for ifindex, _ in socket.if_nameindex()}


def messages(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """The messages of a datagram: (type, sequence, port id of the sender, body)."""
    at = 0
    while at + HEADER.size <= len(data):
        size, number, _, sequence, sender = HEADER.unpack_from(data, at)
        if size < HEADER.size:
            return
        yield number, sequence, sender, data[at + HEADER.size : at + size]
        at += (size + 3) & ~3


def attributes(data: bytes) -> dict[int, bytes]:
    """The attributes in ``data`` by their types. Of several with one type, the last."""
    found, at = {}, 0
    while at + _ATTRIBUTE.size <= len(data):
        size, kind = _ATTRIBUTE.unpack_from(data, at)
        if size < _ATTRIBUTE.size:
            break
        found[kind & _TYPE_MASK] = data[at + _ATTRIBUTE.size : at + size]
        at += (size + 3) & ~3
    return found


def tc_object(body: bytes) -> TcObject:
    """A qdisc or class from the body of its message."""
    _, ifindex, handle, parent, _ = TC.unpack_from(body)
    attrs = attributes(body[TC.size :])
    queue = attributes(attrs.get(_TCA_STATS2, b"")).get(_TCA_STATS_QUEUE, b"")
    known = len(queue) >= _QUEUE_STATS.size
    queue_pkts, queue_bytes, drops, *_ = _QUEUE_STATS.unpack_from(queue) if known else (0, 0, 0)
    kind = attrs.get(_TCA_KIND, b"").rstrip(b"\0").decode()
    options = attrs.get(_TCA_OPTIONS, b"")
    return TcObject(ifindex, handle, parent, kind, options, drops, queue_pkts, queue_bytes)
