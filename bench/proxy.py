"""Measure the throughput of the agent's proxy, and the delay that it adds, between two scripted ends.

    python -m bench.proxy [--seconds S] [--rate R] [--clamps N] [--json]

The agent's own sessions run in a process, on the sockets that they use in service: a Unix socket to Open
vSwitch's end and TCP over loopback to the controller's end. Each end is a process of its own. Open
vSwitch's end sends PACKET_INs and echo requests; the controller's end sends PACKET_OUTs, FLOW_MODs and
echo requests.

"saturated": both ends send as fast as they can. "paced": --rate messages a second each way, in bursts of
ten. "core" is the part of a core that the agent uses. With clamps the extension table has entries, so
that the agent looks up each FLOW_MOD in it. Latency is one way: a message every 2 ms, in turns through
the agent and through a socket of the kind that the agent has to the controller.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from ipaddress import IPv4Address
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click

from bench.figures import cpu_s, present
from bench.temporary import temporary_folder
from mininet_topos.results.summary import percentile
from openflow_ext import wire
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.bridge import Bridge
from openflow_ext.switch.openflow.extension_table import ExtensionTable
from openflow_ext.switch.openflow.flow_mods import FlowMod
from openflow_ext.switch.openflow.flow_reports import FlowReports
from openflow_ext.switch.openflow.proxy import Controller, Proxy
from openflow_ext.switch.openflow.session import Session
from openflow_ext.switch.ovs.ports import Ports
from tests.support.agent.fake_data_plane import FakeDataPlane
from tests.support.openflow.flow_mods import TCP4, ext, flow_mod, output

BURST, BLOCK = 10, 1000
PAUSE_S = 0.002
ECHO_REQUEST, PACKET_IN, PACKET_OUT = 2, 10, 13
STAMPED = struct.Struct("!BBHIQ")
FORK = multiprocessing.get_context("fork")

Pair = tuple[socket.socket, socket.socket]
"""The Open vSwitch end and the controller's end of a session."""


def message(of_type: int, size: int) -> bytes:
    return of.HEADER.pack(of.OFP13, of_type, size, 1) + bytes(size - of.HEADER_SIZE)


def exact(index: int) -> dict[str, Any]:
    """The match of connection ``index``."""
    source = IPv4Address("10.1.0.0") + index // 50_000
    return TCP4 | {"ipv4_src": str(source), "ipv4_dst": "10.0.0.2", "tcp_src": index % 50_000, "tcp_dst": 80}


def block(from_switch: bool) -> list[bytes]:
    """One of ten messages is an echo request. Of the controller's, three are FLOW_MODs of different flows."""
    packet = message(PACKET_IN, 110) if from_switch else message(PACKET_OUT, 108)
    messages = [packet] * BLOCK
    messages[::10] = [message(ECHO_REQUEST, 8)] * (BLOCK // 10)
    if not from_switch:
        for place in (place for place in range(BLOCK) if place % 10 in (2, 5, 8)):
            messages[place] = flow_mod(exact(place), [output(2)], priority=4)
    return messages


def count(end: socket.socket, from_switch: bool, seconds: float, rate: int) -> float:
    """Send for ``seconds``, as fast as possible or ``rate`` messages a second; return the received rate."""
    messages = block(from_switch)
    size = BURST if rate else BLOCK
    pieces = [b"".join(messages[at : at + size]) for at in range(0, BLOCK, size)]
    room, rest, received, sent = bytearray(1 << 20), b"", 0, 0
    end.setblocking(False)
    poll = select.poll()
    start = now = time.perf_counter()
    while (now := time.perf_counter()) < start + seconds:
        due = start + sent * size / rate if rate else now
        if not rest and now >= due:
            rest, sent = pieces[sent % len(pieces)], sent + 1
        poll.register(end, select.POLLIN | (select.POLLOUT if rest else 0))
        for _, happened in poll.poll(None if rest else max(due - now, 0) * 1000):
            if happened & select.POLLIN:
                received += end.recv_into(room)
            if happened & select.POLLOUT:
                rest = rest[end.send(rest) :]
    return received / (sum(map(len, block(not from_switch))) / BLOCK) / (now - start)


def stamps(end: socket.socket) -> list[float]:
    """The one-way time of each message in us, until the other end closes."""
    took = []
    end.setblocking(True)
    while stamp := end.recv(STAMPED.size, socket.MSG_WAITALL):
        took.append((time.monotonic_ns() - STAMPED.unpack(stamp)[-1]) / 1e3)
    return took


def in_a_process(run: Callable[[], Any]) -> Connection:
    """Start ``run`` in a process, and return the pipe that will hold its result."""
    here, there = FORK.Pipe(duplex=False)
    FORK.Process(target=lambda: there.send(run()), daemon=True).start()
    there.close()
    return here


def serve(path: Path, target: str, clamps: int) -> None:
    """The agent's proxy of one bridge."""
    plane = FakeDataPlane(room=clamps)
    table = ExtensionTable(1, plane)
    for index in range(clamps):
        added = flow_mod(exact(index), [ext(wire.SetWindow(1536)), output(2)], priority=5)
        table.apply(FlowMod.parse(added))
    bridge = Bridge("s1", 1, plane, Ports(1, plane), table, FlowReports(plane))

    async def run() -> None:
        await Proxy(path, Controller.parse(target), partial(Session, bridge)).listen()
        await asyncio.Event().wait()

    asyncio.run(run())


class Agent:
    """The agent in a process; ``join`` gives the two ends of a new session through it."""

    def __init__(self, folder: Path, clamps: int) -> None:
        self._path = folder / "s1.controller"
        self._listener = socket.create_server(("127.0.0.1", 0))
        target = f"tcp:127.0.0.1:{self._listener.getsockname()[1]}"
        self._process = FORK.Process(target=serve, args=(self._path, target, clamps))
        self._process.start()
        self.pid = self._process.pid or 0
        while not self._path.exists():
            if not self._process.is_alive():
                raise click.ClickException("the agent's process has ended; its output is above")
            time.sleep(0.01)

    def join(self) -> Pair:
        switch = socket.socket(socket.AF_UNIX)
        switch.connect(str(self._path))
        return switch, self._listener.accept()[0]

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._listener.close()


@contextmanager
def agent(clamps: int) -> Iterator[Agent]:
    with temporary_folder() as folder, closing(Agent(folder, clamps)) as running:
        yield running


def throughput(clamps: int, seconds: float, rate: int) -> dict[str, Any]:
    """Messages per second each way, and the part of a core that the agent used."""
    with agent(clamps) as running:
        switch, controller = running.join()
        before = cpu_s(running.pid)
        ends = [
            in_a_process(partial(count, end, end is switch, seconds, rate)) for end in (switch, controller)
        ]
        to_switch, to_controller = (round(end.recv()) for end in ends)
        core = (cpu_s(running.pid) - before) / seconds
    load = f"paced, {rate:,}/s" if rate else "saturated"
    return {
        "load": load,
        "clamps": clamps,
        "to controller /s": to_controller,
        "to switch /s": to_switch,
        "core": f"{core:.0%}",
    }


def direct() -> Pair:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return near, listener.accept()[0]


def latency(messages: int) -> list[dict[str, Any]]:
    """The one-way times of messages, direct and through the agent in turns."""
    with agent(0) as running:
        pairs = {"direct": direct(), "to controller": running.join(), "to switch": running.join()[::-1]}
        readers = {}
        for name, (_, far) in pairs.items():
            readers[name] = in_a_process(partial(stamps, far))
        for _ in range(messages):
            for near, _ in pairs.values():
                time.sleep(PAUSE_S)
                near.sendall(STAMPED.pack(of.OFP13, ECHO_REQUEST, STAMPED.size, 1, time.monotonic_ns()))
        for near, _ in pairs.values():
            near.shutdown(socket.SHUT_WR)
        took = {name: sorted(reader.recv()) for name, reader in readers.items()}
    added = {name: percentile(values, 50) - percentile(took["direct"], 50) for name, values in took.items()}
    return [
        {"way": name, "messages": len(values), "p50 us": round(percentile(values, 50))}
        | {"p99 us": round(percentile(values, 99)), "added us": round(added[name])}
        for name, values in took.items()
    ]


@click.command(help=__doc__)
@click.option("--seconds", default=3.0, show_default=True, help="Duration of each load.")
@click.option(
    "--rate", default=50_000, show_default=True, help="Messages per second each way in the paced load."
)
@click.option(
    "--clamps",
    default=10_000,
    show_default=True,
    help="Number of extension entries; every other row has none.",
)
@click.option(
    "--messages",
    default=2000,
    show_default=True,
    help="Number of messages of each path in the latency measurement.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each table.")
def main(seconds: float, rate: int, clamps: int, messages: int, as_json: bool) -> None:
    rows = [throughput(held, seconds, paced) for paced in (0, rate) for held in (0, clamps)]
    columns = ("load", "clamps", "to controller /s", "to switch /s", "core")
    present("The proxy: messages each way", columns, rows, as_json)
    present(
        "The proxy: latency", ("way", "messages", "p50 us", "p99 us", "added us"), latency(messages), as_json
    )


if __name__ == "__main__":
    main()
