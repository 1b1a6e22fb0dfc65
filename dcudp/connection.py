"""A connection: messages, streams and files."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from dcudp.errors import ConnectionEnded, ConnectionLost, DcudpError, TransferFailed
from dcudp.events import Event, FileState, Kind, Load
from dcudp.native import ErrorText, c_string, ffi, lib
from dcudp.statistics import ConnectionStatistics
from dcudp.streams import Stream

STREAMS_MAX = 4_096
"""How many streams of a connection may be open. A peer that opens more is cut off."""
_FILES_MAX = 1_000
"""How many results of received files wait for the application. Older ones are forgotten."""
_MESSAGE_BYTES = 64
"""What an unread message costs beside its bytes."""

Progress = Callable[[FileState], None]


class Port(Protocol):
    """What a connection needs of its node."""

    @property
    def pointer(self) -> Any:
        """The library's node."""

    def count_unread(self, change_bytes: int) -> None:
        """Data was put aside or read."""


class Connection:
    """A connection to one peer, which `connect` or `Node.accept` returns.

    Messages arrive whole, once and in order. A stream's bytes keep their order. All share one flow control.
    """

    def __init__(self, node: Port, number: int) -> None:
        self._node = node
        self.number = number
        self.peer = ""
        self.incoming = False
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended: ConnectionEnded | None = None
        self._unread_bytes = 0
        self._drops_data = False
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._messages: deque[bytes] = deque()
        self._streams: dict[int, Stream] = {}
        self._new_streams: deque[Stream] = deque()
        self._next_stream = 0
        self._sending: dict[int, tuple[asyncio.Future[FileState], Progress | None]] = {}
        self._files: deque[FileState | TransferFailed] = deque(maxlen=_FILES_MAX)
        self._load: asyncio.Future[Load] | None = None
        self.on_file_progress: Progress | None = None
        """Called with the state of each file that arrives: at most ten times a second, and at its end."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            self.abort()

    async def wait_connected(self) -> None:
        """Wait for the end of the handshake. Raises ConnectionLost."""
        try:
            await asyncio.shield(self._connected)
        except asyncio.CancelledError:
            self.abort()
            raise

    async def send(self, message: bytes) -> None:
        """Send a message; wait while the send buffer is full. Raises ConnectionEnded, DcudpError."""
        await self._send(
            lambda: lib().dcudp_send_message(self._node.pointer, self.number, message, len(message))
        )

    async def receive(self) -> bytes:
        """Wait for the next message. Raises ConnectionEnded after the last one."""
        await self._until(lambda: self._messages)
        message = self._messages.popleft()
        self.count_unread(-len(message) - _MESSAGE_BYTES)
        return message

    def open_stream(self) -> Stream:
        """A new stream. The peer gets it from `accept_stream` after its first bytes have arrived."""
        number = 2 * self._next_stream + self.incoming
        self._next_stream += 1
        return self._add_stream(number)

    async def accept_stream(self) -> Stream:
        """Wait for the next stream that the peer opened. Raises ConnectionEnded."""
        await self._until(lambda: self._new_streams)
        return self._new_streams.popleft()

    async def send_stream(self, number: int, data: bytes, last: bool) -> None:
        """Send bytes of a stream. `Stream.write` calls it."""
        await self._send(
            lambda: lib().dcudp_send_stream(self._node.pointer, self.number, number, last, data, len(data))
        )

    async def send_file(
        self, path: Path, name: str | None = None, progress: Progress | None = None
    ) -> FileState:
        """Send a file, under the name of its path if none is given, and wait until the receiver has it.

        A partial file at the receiver is resumed. Raises TransferFailed, ConnectionEnded.
        """
        transfer, error = ffi.new("uint32_t *"), ErrorText()
        self._check_open()
        failed = lib().dcudp_send_file(
            *(self._node.pointer, self.number, c_string(path), c_string(name or path.name), transfer),
            *(error.buffer, error.bytes),
        )
        if failed:
            raise TransferFailed(str(error))
        done: asyncio.Future[FileState] = asyncio.get_running_loop().create_future()
        self._sending[transfer[0]] = (done, progress)
        return await done

    async def receive_file(self) -> FileState:
        """Wait for the next file that arrived. Raises TransferFailed for one that failed, ConnectionEnded."""
        await self._until(lambda: self._files)
        found = self._files.popleft()
        if isinstance(found, TransferFailed):
            raise found
        return found

    async def send_load(self, duration_s: float) -> Load:
        """Send as much as possible for some time, and return what the receiver counted.

        Raises DcudpError if the peer does not count (`Options.counts_load`), ConnectionEnded.
        """
        self._check_open()
        error = ErrorText()
        duration_us = round(duration_s * 1e6)
        if lib().dcudp_send_load(self._node.pointer, self.number, duration_us, error.buffer, error.bytes):
            raise DcudpError(str(error))
        self._load = asyncio.get_running_loop().create_future()
        return await self._load

    def statistics(self) -> ConnectionStatistics:
        """The counters now. Raises ConnectionEnded."""
        self._check_open()
        raw = ffi.new("struct dcudp_statistics *")
        if lib().dcudp_get_statistics(self._node.pointer, self.number, raw):
            raise ConnectionEnded("the connection is closed")
        return ConnectionStatistics.of(raw)

    async def close(self) -> None:
        """Let the sent data arrive, then end. Messages and streams that arrive meanwhile are dropped.

        Raises ConnectionLost if the peer did not confirm all of it: in time, or before it closed too.
        """
        if self._ended is None:
            self.drop_data()
            lib().dcudp_close_connection(self._node.pointer, self.number)
            await self.wait_ended()
        if isinstance(self._ended, ConnectionLost):
            raise self._ended

    async def wait_ended(self) -> ConnectionEnded:
        """Wait for the end, and return its reason as an exception."""
        while self._ended is None:
            self._changed.clear()
            await self._changed.wait()
        return self._ended

    def abort(self) -> None:
        """End at once. Data that did not arrive is lost."""
        if self._ended is None:
            self.drop_data()
            lib().dcudp_abort_connection(self._node.pointer, self.number)

    def count_unread(self, change_bytes: int) -> None:
        """Data was put aside or read."""
        self._unread_bytes += change_bytes
        if not self._drops_data:
            self._node.count_unread(change_bytes)

    def drop_data(self) -> None:
        """Drop the messages and streams that arrive from now on.

        Earlier data can still be read, and holds up no other connection. Files and loads arrive as before.
        """
        if not self._drops_data:
            self._drops_data = True
            self._node.count_unread(-self._unread_bytes)

    def end_reason(self) -> ConnectionEnded | None:
        """The reason of the connection's end, or None while it is open."""
        return self._ended

    async def _send(self, attempt: Callable[[], int]) -> None:
        while True:
            self._check_open()
            self._writable.clear()
            result = attempt()
            if result == lib().DCUDP_SENT:
                return
            if result == lib().DCUDP_TOO_LARGE:
                raise DcudpError("the message is too large for the peer's window: send it in parts")
            if result == lib().DCUDP_FULL:
                await self._writable.wait()
            else:
                # The library's event that states why is on its way.
                raise await self.wait_ended()

    async def _until(self, something: Callable[[], Any]) -> None:
        """Wait until something has arrived. Raises ConnectionEnded if nothing more can arrive."""
        while not something():
            self._check_open()
            self._changed.clear()
            await self._changed.wait()

    def _check_open(self) -> None:
        if self._ended is not None:
            raise self._ended

    def _add_stream(self, number: int) -> Stream:
        stream = self._streams[number] = Stream(self, number)
        return stream

    def take(self, event: Event) -> None:
        """Take an event of this connection."""
        self._changed.set()  # a function of the application below may raise
        match event.kind:
            case Kind.CONNECTED:
                self.peer, self.incoming = event.text or "", event.incoming
                self._connected.set_result(None)
            case Kind.MESSAGE | Kind.STREAM if self._drops_data:
                pass
            case Kind.MESSAGE:
                self._messages.append(event.data)
                self.count_unread(len(event.data) + _MESSAGE_BYTES)
            case Kind.STREAM:
                self._take_stream(event)
            case Kind.WRITABLE:
                self._writable.set()
            case Kind.FILE_PROGRESS | Kind.FILE_DONE | Kind.FILE_FAILED if event.incoming:
                self._take_incoming_file(event)
            case Kind.FILE_PROGRESS | Kind.FILE_DONE | Kind.FILE_FAILED:
                self._take_outgoing_file(event)
            case Kind.LOAD_DONE | Kind.LOAD_REFUSED:
                self._take_load(event)
            case Kind.CLOSED:
                ended = ConnectionEnded("the connection is closed")
                self.end(ended if event.text is None else ConnectionLost(event.text))

    def _take_stream(self, event: Event) -> None:
        stream = self._streams.get(event.number)
        if stream is None:
            if event.number % 2 == self.incoming:
                return  # a stream of this end, which is closed
            if len(self._streams) >= STREAMS_MAX:
                self.abort()
                return
            stream = self._add_stream(event.number)
            self._new_streams.append(stream)
        self.count_unread(len(event.data))
        stream.take(event.data, event.last)

    def forget_stream(self, number: int) -> None:
        """Both directions of a stream have ended."""
        self._streams.pop(number, None)

    def _take_incoming_file(self, event: Event) -> None:
        state = FileState.of(event)
        if event.kind is Kind.FILE_DONE:
            self._files.append(state)
        elif event.kind is Kind.FILE_FAILED:
            self._files.append(TransferFailed(f"{state.name} did not arrive: {event.text}"))
        if self.on_file_progress is not None:
            self.on_file_progress(state)

    def _take_outgoing_file(self, event: Event) -> None:
        if (sending := self._sending.get(event.number)) is None:
            return
        done, progress = sending
        state = FileState.of(event)
        if event.kind is Kind.FILE_PROGRESS:
            if progress is not None:
                progress(state)
            return
        del self._sending[event.number]
        if done.cancelled():
            return
        if event.kind is Kind.FILE_DONE:
            done.set_result(state)
        else:
            done.set_exception(TransferFailed(event.text or "the transfer failed"))

    def _take_load(self, event: Event) -> None:
        if self._load is None or self._load.done():
            return
        if event.kind is Kind.LOAD_DONE:
            self._load.set_result(Load(event.done, event.elapsed_us, event.cpu_us))
        else:
            refusal = "the peer does not count measurements: start weir dcudp bench --listen there"
            self._load.set_exception(DcudpError(refusal))

    def end(self, why: ConnectionEnded) -> None:
        """The connection is over: everything that waits for it ends."""
        self.drop_data()
        self._ended = why
        futures: list[asyncio.Future[Any]] = [done for done, _ in self._sending.values()]
        futures += [self._connected] + ([self._load] if self._load else [])
        for future in futures:
            if not future.done():
                future.set_exception(why)
                future.exception()  # nobody may wait for it
        for stream in self._streams.values():
            stream.end()
        self._sending.clear()
        self._changed.set()
        self._writable.set()
