"""The lab's traffic program with many connections, and what it counts as the time of a flow."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mininet_topos.machine.commands import built
from tests.support.controllers.processes import free_port

SOFT_LIMIT, CONNECTIONS = 32, 100


@contextlib.contextmanager
def receiver(
    role: str, port: int, most_descriptors: int = 4096, options: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A role that listens, whose soft limit of descriptors is SOFT_LIMIT."""
    limits = ("prlimit", f"--nofile={SOFT_LIMIT}:{most_descriptors}")
    command = (*limits, str(built("weir-traffic")), role, "--host", "h", "--port", str(port), *options)
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


def test_a_worker_sends_no_larger_segments_than_it_may() -> None:
    port = free_port()
    with receiver("worker", port, options=("--mss", "652")) as process:
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.sendall((10_000).to_bytes(4))
            assert connection.recv(10_000, socket.MSG_WAITALL) == bytes(10_000)
        assert process.stdout
        closed = json.loads(process.stdout.readline())
        assert (closed["event"], closed["mss"]) == ("closed", 640)


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


SLOW_CONNECT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>
int connect(int fd, const struct sockaddr *to, socklen_t len)
{
	int (*own)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
	int result = own(fd, to, len);
	usleep(200000);
	return result;
}
"""


def test_the_time_of_a_flow_begins_before_its_first_packet(tmp_path: Path) -> None:
    """The kernel sends the SYN within connect(), and may do other work there before it returns."""
    library, plan, port = tmp_path / "slow.so", tmp_path / "plan.txt", free_port()
    command = ("cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library), "-ldl")
    subprocess.run(command, input=SLOW_CONNECT, text=True, check=True)
    plan.write_text("h 0 127.0.0.1 1000 0\n")
    named = ("--host", "h", "--port", str(port))
    options = (*named, "--plan", str(plan), "--start-ns", str(time.monotonic_ns()))
    with receiver("sink", port):
        done = subprocess.run(
            (str(built("weir-traffic")), "flows", *options),
            env={"LD_PRELOAD": str(library)},
            capture_output=True,
            text=True,
            check=True,
        )
    records = [json.loads(line) for line in done.stdout.splitlines()]
    (fct_ms,) = (record["fct_ms"] for record in records if record["event"] == "flow")
    assert fct_ms >= 200
