"""Connections that open and close at random: `churn.py serve PORT`, `call HOST PORT SEED`.

A caller keeps connections open at a time, each with some data either way, and ends them by FIN, by RST, or by
leaving the end to the server; it goes on until it is killed. `churn.py hold HOST PORT COUNT BUSY` opens COUNT
connections that send a byte each and then nothing, and BUSY ones that send for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import sys

AT_ONCE = 40
CHUNK = b"x" * 65536
RESET = struct.pack("ii", 1, 0)


async def serve(port: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if data.endswith(b"?"):
                    writer.write(CHUNK[: random.randrange(20_000)])
                if data.endswith(b"!"):
                    break
        writer.close()

    server = await asyncio.start_server(answer, "", port, backlog=1024)
    print("listening", flush=True)
    await server.serve_forever()


async def call(host: str, port: int, seed: int) -> None:
    chance = random.Random(seed)

    async def one_after_the_other() -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(connection(host, port, chance), 3)

    await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))


async def connection(host: str, port: int, chance: random.Random) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(CHUNK[: chance.randrange(20_000)] + chance.choice([b"?", b"!", b"."]))
        if chance.random() < 0.5:
            await reader.read(chance.randrange(1, 20_000))
        if chance.random() < 0.3:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    finally:
        writer.close()


async def hold(host: str, port: int, count: int, busy: int) -> None:
    idle = [await asyncio.open_connection(host, port) for _ in range(count)]
    for _, writer in idle:
        writer.write(b".")
    senders = [await asyncio.open_connection(host, port) for _ in range(busy)]
    print("holding", flush=True)

    async def send(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(CHUNK[:-1] + b".")
            await writer.drain()

    await asyncio.gather(*(send(writer) for _, writer in senders))


if __name__ == "__main__":
    action, *words = sys.argv[1:]
    numbers = [int(word) for word in words if word.isdigit()]
    hosts = [word for word in words if not word.isdigit()]
    asyncio.run({"serve": serve, "call": call, "hold": hold}[action](*hosts, *numbers))
