"""Receiving files: what `weir dcudp recv` does."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from dcudp import listen
from dcudp.connection import Connection
from dcudp.errors import ConnectionEnded, ConnectionLost, TransferFailed
from dcudp.events import FileState
from dcudp.node import Node, Options

PEER_CLOSES_S = 5.0
"""How long `weir dcudp recv --once` waits for the peer to close."""


class Report(Protocol):
    """Takes what happened, for a person or a program."""

    def __call__(self, event: str, **fields: Any) -> None: ...


@asynccontextmanager
async def until_signal() -> AsyncIterator[asyncio.Event]:
    """An event that SIGINT and SIGTERM set."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def serve(
    node: Node, stop: asyncio.Event, attend: Callable[[Connection], Coroutine[Any, Any, None]]
) -> None:
    """Attend to each peer in a task of its own until `stop` is set or the node ends."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept() -> None:
        async for connection in node.connections():
            task = asyncio.create_task(attend(connection))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    accepting = asyncio.create_task(accept())
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait({accepting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    for task in (accepting, stopping, *tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if accepting in done:
        accepting.result()


async def receive_files(
    address: str, options: Options, once: bool, report: Report, progress: Callable[[FileState], None]
) -> bool | None:
    """Receive files until a signal, or until the first file if `once`.

    Returns whether the first file arrived; None if there was none.
    """
    first_arrived: bool | None = None

    async with until_signal() as stop, await listen(address, options) as node:
        report("listening", address=str(node.address))

        async def attend(connection: Connection) -> None:
            nonlocal first_arrived
            connection.drop_data()
            connection.on_file_progress = progress
            try:
                while True:
                    arrived = await _receive_one(connection, report)
                    if first_arrived is None:
                        first_arrived = arrived
                    if once:
                        await _end(connection)
                        stop.set()
                        return
            except ConnectionLost as error:
                report("failed", peer=connection.peer, error=str(error))
            except ConnectionEnded:
                pass

        await serve(node, stop, attend)
    return first_arrived


async def _end(connection: Connection) -> None:
    """Let the peer close, which reads its statistics first. Close a connection that it leaves open."""
    with suppress(TimeoutError):
        await asyncio.wait_for(connection.wait_ended(), PEER_CLOSES_S)
    with suppress(ConnectionEnded):
        await connection.close()


async def _receive_one(connection: Connection, report: Report) -> bool:
    """Whether the next file has arrived."""
    try:
        state = await connection.receive_file()
    except TransferFailed as error:
        report("failed", peer=connection.peer, error=str(error))
        return False
    report("received", peer=connection.peer, state=state)
    return True
