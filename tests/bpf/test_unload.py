"""A congestion control is unloaded while many connections use it: they go on, and new ones are refused."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.data_plane.scripted_wire import Space, ip
from transports.congestion import TRANSPORTS, available, load, loaded, unload

CONNECTIONS = 1000
DESCRIPTORS = 4 * CONNECTIONS
MESSAGE = bytes(20_000)
STALL_S = 5.0
"""No connection waits longer than this for its peer."""


@pytest.fixture
def space() -> Iterator[Space]:
    """A network namespace with a loopback interface, and descriptors for all connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(DESCRIPTORS, hard)), hard))
    space = Space(f"weir-unload-{os.getpid()}")
    try:
        ip("-n", space.name, "link", "set", "lo", "up")
        yield space
    finally:
        space.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connections(control: str, undo: ExitStack) -> list[tuple[socket.socket, socket.socket]]:
    """Pairs of connected sockets, whose clients use the control."""
    listener = undo.enter_context(socket.socket())
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    listener.bind(("127.0.0.1", 0))
    listener.listen(CONNECTIONS)
    pairs = []
    for _ in range(CONNECTIONS):
        client = undo.enter_context(socket.socket())
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        client.settimeout(STALL_S)
        client.connect(listener.getsockname())
        server = undo.enter_context(listener.accept()[0])
        server.settimeout(STALL_S)
        pairs.append((client, server))
    return pairs


def exchange(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    """Each client sends a message, and each server has all of it. Raises TimeoutError after STALL_S."""
    for client, _ in pairs:
        client.sendall(MESSAGE)
    for _, server in pairs:
        missing = len(MESSAGE)
        while missing:
            missing -= len(server.recv(missing))


def used(pair: tuple[socket.socket, socket.socket]) -> set[str]:
    names = (end.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16) for end in pair)
    return {name.rstrip(b"\0").decode() for name in names}


@pytest.mark.parametrize("control", TRANSPORTS)
def test_a_thousand_connections_survive_unloading(space: Space, control: str) -> None:
    with loaded(control), ExitStack() as undo:
        pairs = space.run(lambda: connections(control, undo))
        exchange(pairs)
        assert unload(control) is True
        assert control not in available()
        exchange(pairs)
        assert set().union(*map(used, pairs)) == {control}
        with undo.enter_context(socket.socket()) as new, pytest.raises(FileNotFoundError):
            new.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        assert load(control) is True, "the name is free again, although connections keep the old programs"
        exchange(pairs)
