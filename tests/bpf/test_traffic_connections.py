"""The lab's traffic program with many connections."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator

import pytest

from mininet_topos.machine.commands import built

SOFT_LIMIT, CONNECTIONS = 32, 100


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def receiver(role: str, port: int, most_descriptors: int = 4096) -> Iterator[subprocess.Popen[str]]:
    """A role that listens, whose soft limit of descriptors is SOFT_LIMIT."""
    limits = ("prlimit", f"--nofile={SOFT_LIMIT}:{most_descriptors}")
    command = (*limits, str(built("weir-traffic")), role, "--host", "h", "--port", str(port))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert '"listening"' in process.stdout.readline()
            yield process
        finally:
            process.kill()


def connections(port: int, undo: contextlib.ExitStack) -> list[socket.socket]:
    return [undo.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(CONNECTIONS)]


def test_a_worker_answers_more_connections_than_the_soft_limit_of_descriptors() -> None:
    port = free_port()
    with receiver("worker", port), contextlib.ExitStack() as undo:
        asked = connections(port, undo)
        for connection in asked:
            connection.sendall((7).to_bytes(4))
        for connection in asked:
            assert connection.recv(7, socket.MSG_WAITALL) == bytes(7)


@pytest.mark.parametrize("role", ["worker", "sink"])
def test_a_host_without_descriptors_says_so(role: str) -> None:
    """Otherwise it tries again without end, and the run ends with a query or a flow that is not complete."""
    port = free_port()
    with receiver(role, port, SOFT_LIMIT) as process, contextlib.ExitStack() as undo:
        with contextlib.suppress(OSError):  # it may end before the last connection
            connections(port, undo)
        assert process.stdout
        (error,) = (record for line in process.stdout if (record := json.loads(line))["event"] == "error")
        assert error["error"] == "cannot accept a connection: Too many open files"
        assert process.wait(10) == 1
