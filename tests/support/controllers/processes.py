"""Controller processes on either engine, on free loopback ports."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from tests.support.waiting import DEADLINE_S, wait_until

RYU_MANAGER = "from openflow_ext.engine import ryu_manager; ryu_manager()"
OS_KEN_RUNNER = """
import sys
from openflow_ext import engine
manager = engine.app_manager.AppManager
engine.cfg.CONF(sys.argv[1:-1], project="os_ken")
manager.run_apps([sys.argv[-1]])
"""


# The kernel gives higher ports (32768 and up) to connections, and to listeners that ask for any port. So
# these are still free when the process that they are meant for starts. Each test process begins elsewhere.
_PORTS = itertools.islice(itertools.cycle(range(20_000, 32_000)), os.getpid() * 97 % 12_000, None)


def free_port() -> int:
    """A port of 127.0.0.1 without a listener, and which this process has not returned before."""
    return next(port for port in _PORTS if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def connect(port: int, process: subprocess.Popen[str]) -> socket.socket:
    """Connect to a listener that ``process`` is about to open."""

    def connected() -> socket.socket | None:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        except ConnectionRefusedError:
            if process.poll() is not None:
                raise
            return None

    return cast(socket.socket, wait_until(connected, f"a listener on port {port}"))


@contextlib.contextmanager
def controller(engine: str, app: str | Path, of_port: int, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A controller process that runs ``app``; its output, both streams, is a pipe of text.

    If the test fails, the output that it has not read is printed.
    """
    listen = ["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", str(of_port)]
    runner = RYU_MANAGER if engine == "ryu" else OS_KEN_RUNNER
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", runner, *listen, *options, str(app)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "WEIR_ENGINE": engine, "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
    except BaseException:
        process.kill()
        assert process.stdout is not None
        print("the controller said:", process.stdout.read())
        raise
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
