"""A small OVSDB client (RFC 7047) on a Unix socket: transactions, and a replica of some columns.

Not implemented: locks, monitor conditions, and reconnecting (the agent opens a new connection).
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openflow_ext.switch.errors import OvsdbError

DATABASE = "Open_vSwitch"
REPLY_S = 10.0
_LARGEST_MESSAGE = 64 << 20

Row = dict[str, Any]


class JsonStream:
    """Divides a stream of JSON texts without separators into values."""

    def __init__(self) -> None:
        self._text = ""
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._decoder = json.JSONDecoder()

    def feed(self, data: bytes) -> list[Any]:
        """The complete values. Raises OvsdbError if the stream is not JSON or a text is too long."""
        try:
            self._text = (self._text + self._decode(data)).lstrip()
        except UnicodeDecodeError as error:
            raise OvsdbError("the OVSDB server sent bytes that are not UTF-8") from error
        values = []
        while self._text:
            if self._text[0] != "{" or len(self._text) > _LARGEST_MESSAGE:
                raise OvsdbError("the OVSDB server sent data that is not JSON-RPC")
            try:
                value, end = self._decoder.raw_decode(self._text)
            except json.JSONDecodeError:
                break
            values.append(value)
            self._text = self._text[end:].lstrip()
        return values


def plain(value: Any) -> Any:
    """An OVSDB value as a Python value: a set as list, a map as dict, a UUID as str."""
    match value:
        case ["set", [*members]]:
            return [plain(member) for member in members]
        case ["map", [*pairs]]:
            return {plain(key): plain(item) for key, item in pairs}
        case ["uuid" | "named-uuid", uuid]:
            return uuid
    return value


def as_list(value: Any) -> list[Any]:
    """A set-valued column as a list. OVSDB writes a set of one element as the element."""
    return value if isinstance(value, list) else [value]


class Ovsdb:
    """One connection. ``tables`` is the replica: table -> row UUID -> column -> value.

    ``changed`` is set at each update and when the connection ends. ``closed`` is done after its end.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._monitor_id = 0
        self._stream = JsonStream()
        self.tables: dict[str, dict[str, Row]] = {}
        self.changed = asyncio.Event()
        self.closed = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, path: Path) -> Ovsdb:
        """Connect to the server at ``path``. Raises OvsdbError."""
        try:
            return cls(*await asyncio.open_unix_connection(path))
        except OSError as error:
            raise OvsdbError(
                f"no OVSDB server at {path} ({error.strerror}): start Open vSwitch, or set --rundir"
            ) from error

    async def _read(self) -> None:
        """Serve the connection until it ends. ``closed`` is this task."""
        try:
            while data := await self._reader.read(1 << 16):
                for message in self._stream.feed(data):
                    self._receive(message)
            reason = OvsdbError("the OVSDB server closed the connection")
        except (OSError, OvsdbError) as error:
            reason = OvsdbError(str(error))
        finally:
            self._writer.close()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(reason)
        self.changed.set()

    def _receive(self, message: Row) -> None:
        match message:
            case {"method": "echo", "id": request_id, "params": params}:
                self._send({"id": request_id, "result": params, "error": None})
            case {"method": "update", "params": [_, updates]}:
                self._update(updates)
            case {"id": int() as reply_id, "result": result, "error": error}:
                future = self._waiting.pop(reply_id, None)
                if future is None or future.done():
                    return
                if error is not None:
                    future.set_exception(OvsdbError(f"OVSDB: {error}"))
                    return
                if reply_id == self._monitor_id:  # now: updates may follow in the same read
                    self._update(result)
                future.set_result(result)

    def _send(self, message: Row) -> None:
        self._writer.write(json.dumps(message).encode())

    async def _call(self, method: str, *params: Any) -> Any:
        if self.closed.done():
            raise OvsdbError("the OVSDB server closed the connection")
        request_id = next(self._ids)
        if method == "monitor":
            self._monitor_id = request_id
        future = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        self._send({"method": method, "params": params, "id": request_id})
        try:
            async with asyncio.timeout(REPLY_S):
                return await future
        except TimeoutError as error:
            raise OvsdbError(f"the OVSDB server did not answer {method} in {REPLY_S:.0f} s") from error
        finally:
            self._waiting.pop(request_id, None)

    async def transact(self, *operations: Row) -> list[Row]:
        """Carry out all ``operations`` or none. Returns their results. Raises OvsdbError."""
        results: list[Row] = await self._call("transact", DATABASE, *operations)
        for result in results:
            if result and "error" in result:
                raise OvsdbError(f"OVSDB: {result['error']}: {result.get('details', '')}")
        return results

    async def monitor(self, columns: Mapping[str, Sequence[str]]) -> None:
        """Fill ``tables`` and keep them up to date. Raises OvsdbError."""
        requests = {table: {"columns": list(names)} for table, names in columns.items()}
        self.tables = {table: {} for table in columns}
        await self._call("monitor", DATABASE, None, requests)

    def _update(self, updates: Mapping[str, Mapping[str, Row]]) -> None:
        for table, rows in updates.items():
            replica = self.tables.setdefault(table, {})
            for uuid, change in rows.items():
                if "new" in change:
                    replica[uuid] = {name: plain(value) for name, value in change["new"].items()}
                else:
                    replica.pop(uuid, None)
        self.changed.set()

    async def close(self) -> None:
        """Send the buffered requests, then close the connection."""
        with contextlib.suppress(OSError):
            await self._writer.drain()
        self.closed.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.closed
