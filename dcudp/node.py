"""A node: one UDP port with all its connections, in asyncio."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dcudp.addresses import Address
from dcudp.connection import Connection
from dcudp.errors import ConnectionLost, DcudpError
from dcudp.events import Event, Kind
from dcudp.native import ErrorText, c_string, ffi, lib
from dcudp.statistics import NodeStatistics

UNREAD_BYTES_MAX = 8 << 20
"""How much the application may leave unread in Python. Then the node leaves events in the library."""
_EVENTS_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to open a node. None and 0 stand for the library's default.

    ``key_file``: the pre-shared key, required unless both ends are on loopback. ``folder``: for received
    files; without it, offers are refused. ``counts_load``: answer measurements of peers. ``max_rate_bps``: no
    connection sends faster. ``link_rate_bps``: the capacity of the bottleneck link, C of the paper.
    ``dead_after_s``: a connection ends after this time without any packet of the peer; use the same at both
    ends, because keep-alives follow it. ``offload``: use UDP_SEGMENT and UDP_GRO. ``txtime``: use SO_TXTIME.
    """

    key_file: Path | None = None
    folder: Path | None = None
    counts_load: bool = False
    max_rate_bps: int = 0
    link_rate_bps: int = 0
    mtu_bytes: int = 0
    dead_after_s: float = 0.0
    handshake_timeout_s: float = 0.0
    offload: bool = True
    txtime: bool = True


class Node:
    """An open node. Use it in the event loop in which it was made, and close it, or use `async with`.

    While the application leaves UNREAD_BYTES_MAX unread on any connection, all connections of the node wait.
    """

    def __init__(
        self, bind: Address, options: Options, *, listens: bool, peer: Address | None = None
    ) -> None:
        """Open the socket. Raises DcudpError, ArtifactMissing."""
        self._pointer: Any = _open(bind, options, listens, peer)
        # An event loop may end before it takes the last events. Then nothing else ends the library's node.
        self._release = weakref.finalize(self, lib().dcudp_close, self._pointer)
        self._release.atexit = False
        self._connections: dict[int, Connection] = {}
        self._accepted: asyncio.Queue[Connection | None] = asyncio.Queue()
        self._unread_bytes = 0
        self._reads = False
        self._broken: str | None = None
        self._closes_with: Connection | None = None
        self._loop = asyncio.get_running_loop()
        self._fd = lib().dcudp_event_fd(self._pointer)
        self._read_on()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pointer(self) -> Any:
        """The library's node. Raises DcudpError after the end."""
        if self._pointer is None:
            raise DcudpError("the node is closed")
        return self._pointer

    @property
    def address(self) -> Address:
        """Where the socket is bound."""
        buffer = ffi.new("char[]", 80)
        lib().dcudp_local(self.pointer, buffer, 80)
        host, _, port = ffi.string(buffer).decode().rpartition(":")
        return Address(host.strip("[]"), int(port))

    async def connect(self, peer: Address) -> Connection:
        """Connect. Raises DcudpError if it cannot begin, ConnectionLost if the handshake fails."""
        number, error = ffi.new("uint32_t *"), ErrorText()
        if lib().dcudp_connect(self.pointer, c_string(str(peer)), number, error.buffer, error.bytes) < 0:
            raise DcudpError(str(error))
        connection = self._connections[number[0]] = Connection(self, number[0])
        await connection.wait_connected()
        return connection

    async def accept(self) -> Connection:
        """Wait for the next peer that connects. Raises DcudpError after the node's end."""
        connection = await self._accepted.get()
        if connection is None:
            self._accepted.put_nowait(None)
            raise DcudpError(self._broken or "the node is closed")
        return connection

    async def connections(self) -> AsyncIterator[Connection]:
        """Each peer that connects, until the node ends."""
        while True:
            yield await self.accept()

    def statistics(self) -> NodeStatistics:
        """The counters of the socket and of the node's thread."""
        raw = ffi.new("struct dcudp_node_statistics *")
        lib().dcudp_get_node_statistics(self.pointer, raw)
        return NodeStatistics.of(raw)

    def close(self) -> None:
        """End all connections at once. To let data arrive, close each connection first."""
        if self._pointer is None:
            return
        self._read_no_more()
        self._pointer = None
        self._release()
        self._end(None)

    def close_with(self, connection: Connection) -> None:
        """Close the node when this connection ends, or at once if it has ended."""
        self._closes_with = connection
        if connection.end_reason() is not None:
            self.close()

    def count_unread(self, change_bytes: int) -> None:
        """A connection has put aside or given away data."""
        self._unread_bytes += change_bytes
        if self._unread_bytes < UNREAD_BYTES_MAX and self._pointer is not None and self._broken is None:
            self._read_on()

    def _read_on(self) -> None:
        if not self._reads:
            self._loop.add_reader(self._fd, self._read)
            self._reads = True

    def _read_no_more(self) -> None:
        if self._reads:
            self._loop.remove_reader(self._fd)
            self._reads = False

    def _read(self) -> None:
        """Take some events. The event loop calls again while there are more."""
        raw = ffi.new("struct dcudp_event *")
        for _ in range(_EVENTS_AT_ONCE):
            if self._unread_bytes >= UNREAD_BYTES_MAX:
                self._read_no_more()
                return
            if self._pointer is None or not lib().dcudp_next_event(self._pointer, raw):
                return
            try:
                event = Event.of(raw)
            finally:
                lib().dcudp_free_event(raw)
            self._take(event)

    def _take(self, event: Event) -> None:
        if event.kind is Kind.BROKEN:
            self._read_no_more()
            self._end(event.text)
            return
        if event.kind is Kind.CONNECTED and event.incoming:
            connection = self._connections[event.connection] = Connection(self, event.connection)
            self._accepted.put_nowait(connection)
        if (known := self._connections.get(event.connection)) is None:
            return
        known.take(event)
        if event.kind is Kind.CLOSED:
            del self._connections[event.connection]
            if known is self._closes_with:
                self._loop.call_soon(self.close)

    def _end(self, why: str | None) -> None:
        self._broken = why
        for connection in self._connections.values():
            connection.end(ConnectionLost(why or "the node was closed"))
        self._connections.clear()
        self._accepted.put_nowait(None)


def _open(bind: Address, options: Options, listens: bool, peer: Address | None) -> Any:
    strings = {
        "bind": c_string(str(bind)),
        "peer": c_string(None if peer is None else str(peer)),
        "key_file": c_string(options.key_file),
        "folder": c_string(options.folder),
    }
    flags = (
        listens * lib().DCUDP_LISTENS
        | options.counts_load * lib().DCUDP_COUNTS_LOAD
        | (not options.offload) * (lib().DCUDP_NO_SEGMENT | lib().DCUDP_NO_GRO)
        | (not options.txtime) * lib().DCUDP_NO_TXTIME
    )
    raw = ffi.new(
        "struct dcudp_options *",
        {
            **strings,
            "flags": flags,
            "max_rate_bps": options.max_rate_bps,
            "link_rate_bps": options.link_rate_bps,
            "mtu_bytes": options.mtu_bytes,
            "dead_after_us": round(options.dead_after_s * 1e6),
            "handshake_timeout_us": round(options.handshake_timeout_s * 1e6),
        },
    )
    error = ErrorText()
    pointer = lib().dcudp_open(raw, error.buffer, error.bytes)
    if pointer == ffi.NULL:
        raise DcudpError(str(error))
    return pointer
