"""A stream: bytes in both directions, in order, over a connection."""

from __future__ import annotations

import asyncio
from typing import Protocol

from dcudp.errors import ConnectionEnded, ConnectionLost, DcudpError

CHUNK_BYTES = 128 << 10
"""How many bytes one message of a stream carries at most."""


class Carrier(Protocol):
    """What a stream needs of its connection."""

    async def send_stream(self, number: int, data: bytes, last: bool) -> None:
        """Send bytes of a stream."""

    def count_unread(self, change_bytes: int) -> None:
        """Data was put aside or read."""

    def end_reason(self) -> ConnectionEnded | None:
        """The reason of the connection's end, or None while it is open."""

    def forget_stream(self, number: int) -> None:
        """Both directions of a stream have ended."""


class Stream:
    """A bidirectional stream. `Connection.open_stream` and `Connection.accept_stream` return one."""

    def __init__(self, connection: Carrier, number: int) -> None:
        self._connection = connection
        self.number = number
        self._received = bytearray()
        self._no_more = False
        self._closed = False
        self._changed = asyncio.Event()

    async def write(self, data: bytes) -> None:
        """Send bytes; wait while the send buffer is full. Raises ConnectionEnded, DcudpError if closed."""
        self._check_open()
        for start in range(0, len(data), CHUNK_BYTES):
            await self._connection.send_stream(self.number, data[start : start + CHUNK_BYTES], last=False)

    async def close(self) -> None:
        """End this direction. The peer's `read` returns b"" after the last bytes."""
        self._check_open()
        self._closed = True
        await self._connection.send_stream(self.number, b"", last=True)
        self._forget_if_over()

    async def read(self, most_bytes: int = -1) -> bytes:
        """The next bytes: at least one and at most `most_bytes`; all until the end if it is negative.

        Returns b"" after the peer's last byte. Raises ConnectionLost if the connection breaks before that.
        """
        if most_bytes < 0:
            parts = []
            while part := await self.read(CHUNK_BYTES):
                parts.append(part)
            return b"".join(parts)
        while not self._no_more and not self._received:
            if (ended := self._connection.end_reason()) is not None:
                raise ConnectionLost(f"the stream did not end: {ended}")
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._received[:most_bytes])
        del self._received[:most_bytes]
        self._connection.count_unread(-len(data))
        return data

    def take(self, data: bytes, last: bool) -> None:
        """Bytes of the peer have arrived."""
        self._received += data
        self._no_more |= last
        self._changed.set()
        self._forget_if_over()

    def end(self) -> None:
        """The connection is over."""
        self._changed.set()

    def _check_open(self) -> None:
        if self._closed:
            raise DcudpError("this direction of the stream is closed")

    def _forget_if_over(self) -> None:
        if self._closed and self._no_more:
            self._connection.forget_stream(self.number)
