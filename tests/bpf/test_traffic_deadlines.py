"""The lab's traffic program states deadlines on its sockets, and D2TCP uses them."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mininet_topos.machine.commands import built
from tests.support.data_plane.scripted_wire import MSS, PORT, RECEIVER, SENDER, Step, Wire, scripted_wire
from tests.support.waiting import wait_until
from transports.sockets import DctcpSocket, socket_reader

D2TCP = "weir_d2tcp"
SIZE = 400 * MSS
MARKED_AT = 150
MISSED, NONE = 0.5, 1.0
"""The exponent d after a missed deadline, and without a deadline."""


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with scripted_wire(tmp_path_factory.mktemp("script"), D2TCP) as wire:
        yield wire


@contextlib.contextmanager
def traffic(wire: Wire, role: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    named = ("--host", "w", "--port", str(PORT), "--cc", D2TCP)
    command = ("ip", "netns", "exec", wire.sender.name, str(built("weir-traffic")), role, *named, *options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def socket_of(wire: Wire) -> socket.socket:
    def made() -> socket.socket:
        new = socket.socket()
        new.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, D2TCP.encode())
        new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return new

    return wire.receiver.run(made)


def read_all(connection: socket.socket) -> None:
    left = SIZE
    while left:
        data = connection.recv(min(left, 1 << 16))
        assert data
        left -= len(data)


def reduced(wire: Wire) -> DctcpSocket:
    """The sender's connection, after its reduction."""

    def found() -> list[DctcpSocket]:
        with socket_reader() as reader:
            return [one for one in wire.sender.run(reader.read) if one.exponent]

    return wait_until(found, "a reduction")[0]


@pytest.mark.parametrize(("options", "exponent"), [(("--deadline-us", "1"), MISSED), ((), NONE)])
def test_a_worker_states_the_deadline_of_its_response(
    wire: Wire, options: tuple[str, ...], exponent: float
) -> None:
    wire.play(bytes(MARKED_AT) + bytes([Step.MARK]))
    with traffic(wire, "worker", *options) as worker, socket_of(wire) as root:
        assert worker.stdout is not None
        worker.stdout.readline()
        root.connect((SENDER, PORT))
        root.sendall(struct.pack("!I", SIZE))
        read_all(root)
        assert reduced(wire).exponent == exponent


@pytest.mark.parametrize(("deadline_us", "exponent"), [(1, MISSED), (0, NONE)])
def test_a_planned_flow_states_its_deadline(
    wire: Wire, tmp_path: Path, deadline_us: int, exponent: float
) -> None:
    plan = tmp_path / "plan.txt"
    plan.write_text(f"w 0 {RECEIVER} {SIZE} {deadline_us}\n")
    wire.play(bytes(MARKED_AT) + bytes([Step.MARK]))
    with socket_of(wire) as listener:
        listener.bind((RECEIVER, PORT))
        listener.listen(1)
        options = ("--plan", str(plan), "--start-ns", str(time.monotonic_ns()), "--sample-ms", "1000")
        with traffic(wire, "flows", *options):
            connection, _ = listener.accept()
            with connection:
                read_all(connection)
                assert reduced(wire).exponent == exponent
