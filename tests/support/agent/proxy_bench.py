"""A proxy for one bridge between a scripted Open vSwitch and a scripted controller, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

from openflow_ext import wire
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.bridge import Bridge
from openflow_ext.switch.openflow.extension_table import ExtensionTable
from openflow_ext.switch.openflow.flow_reports import FlowReports
from openflow_ext.switch.openflow.proxy import Controller, Proxy
from openflow_ext.switch.openflow.session import Session
from openflow_ext.switch.ovs.egress import Egress
from openflow_ext.switch.ovs.ports import Link, Ports
from tests.support.agent.fake_data_plane import FakeDataPlane
from tests.support.waiting import DEADLINE_S

HELLO = of.HEADER.pack(4, 0, 8, 1)
PORT = wire.OfpPort(1, "00:00:00:00:00:01", b"s1-eth1")
FEATURES = of.HEADER.pack(4, of.OFPT_FEATURES_REPLY, 32, 9) + bytes(24)


def echo(xid: int, size: int = 0) -> bytes:
    return of.HEADER.pack(4, 2, 8 + size, xid) + bytes(size)


def barrier(xid: int) -> bytes:
    return of.HEADER.pack(4, 20, 8, xid)


def port_descriptions(xid: int, *ports: wire.OfpPort, more: bool = False) -> bytes:
    body = struct.pack("!HH4x", of.OFPMP_PORT_DESC, int(more)) + b"".join(map(wire.encode_port, ports))
    return of.HEADER.pack(4, of.OFPT_MULTIPART_REPLY, 8 + len(body), xid) + body


class End:
    """A scripted end of a session."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *messages: bytes) -> None:
        self.writer.write(b"".join(messages))

    async def message(self) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            head = await self.reader.readexactly(8)
            return head + await self.reader.readexactly(of.HEADER.unpack(head)[2] - 8)

    async def ends(self) -> bool:
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.read() == b""
            except ConnectionResetError:
                return True


class Bench:
    """A proxy for one bridge; ``join`` gives both ends of a new session."""

    def __init__(self, folder: Path) -> None:
        self.plane = FakeDataPlane()
        ports = Ports(1, self.plane)
        ports.sync([Link(11, "s1-eth1", 1)], {11: Egress(10**8)})
        self.reports = FlowReports(self.plane, idle_s=1.0)
        self.bridge = Bridge("s1", 1, self.plane, ports, ExtensionTable(1, self.plane), self.reports)
        self.folder = folder
        self._accepted: asyncio.Queue[End] = asyncio.Queue()
        self._ends: list[End] = []
        self.server: asyncio.Server
        self.proxy: Proxy

    async def start(self) -> None:
        self.reports.start()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._ends.append(End(reader, writer))
            await self._accepted.put(self._ends[-1])

        self.server = await asyncio.start_server(accept, "127.0.0.1", 0)
        host, port = self.server.sockets[0].getsockname()
        controller = Controller.parse(f"tcp:{host}:{port}")
        self.proxy = Proxy(self.folder / "s1.controller", controller, partial(Session, self.bridge))
        await self.proxy.listen()

    async def dial(self) -> End:
        self._ends.append(End(*await asyncio.open_unix_connection(self.proxy.path)))
        return self._ends[-1]

    async def join(self) -> tuple[End, End]:
        switch = await self.dial()
        async with asyncio.timeout(DEADLINE_S):
            controller = await self._accepted.get()
        switch.send(HELLO)
        assert await controller.message() == HELLO
        return switch, controller

    async def join_ready(self) -> tuple[End, End]:
        """A session whose handshake is through: the agent knows the ports."""
        switch, controller = await self.join()
        switch.send(FEATURES)
        assert await controller.message() == FEATURES
        request = await switch.message()
        switch.send(port_descriptions(of.HEADER.unpack_from(request)[3], PORT), echo(5))
        assert await controller.message() == echo(5)
        return switch, controller

    async def close(self) -> None:
        await self.proxy.close()
        self.reports.stop()
        self.server.close()
        for end in self._ends:
            end.writer.close()
            with contextlib.suppress(OSError):
                await end.writer.wait_closed()


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Bench]:
    bench = Bench(folder)
    await bench.start()
    try:
        yield bench
    finally:
        await bench.close()


Script = Callable[[Bench], Awaitable[None]]
Play = Callable[[Script], None]
"""Performs a script; the type of the fixture `play`."""


def perform(script: Script, folder: Path) -> None:
    """Run ``script`` with a bench of its own."""

    async def main() -> None:
        async with running(folder) as bench:
            await script(bench)

    asyncio.run(main())
