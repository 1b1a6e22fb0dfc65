"""`weir controller`: both engines answer an OpenFlow hello, only on loopback, and stop on a signal."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import click
import pytest

from mininet_topos.measurement.switch_backlog import sockets_of
from tests.support.controllers.processes import free_port
from tests.support.waiting import DEADLINE_S, wait_until
from weir.controller import Address, Tls

HELLO_13 = struct.pack("!BBHI", 4, 0, 8, 1)
HANDLER = {"ryu": "ryu.controller.ofp_handler", "os-ken": "os_ken.controller.ofp_handler"}


def command(engine: str, port: int, *more: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "weir",
        "controller",
        "--engine",
        engine,
        "--listen",
        f"127.0.0.1:{port}",
        *more,
    ]


@contextmanager
def running(engine: str, port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(engine, port, "--apps", HANDLER[engine]), stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def connect(process: subprocess.Popen[bytes], port: int, log: Path) -> socket.socket:
    def connected() -> socket.socket | None:
        assert process.poll() is None, log.read_text()
        with suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        return None

    return cast(socket.socket, wait_until(connected, f"the controller listens on port {port}"))


def listening_inodes() -> dict[str, str]:
    """Inode of every listening IPv4 socket -> its address, as the kernel prints it."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[9]: row[1] for row in rows if row[3] == "0A"}


def addresses_of(pid: int) -> set[str]:
    listening = listening_inodes()
    return {listening[inode] for inode in sockets_of(pid) if inode in listening}


@pytest.mark.parametrize("engine", sorted(HANDLER))
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_controller_answers_on_loopback_and_stops_on_a_signal(
    engine: str, number: signal.Signals, tmp_path: Path
) -> None:
    port, log = free_port(), tmp_path / "log"
    with running(engine, port, log) as process:
        with connect(process, port, log) as switch:
            switch.sendall(HELLO_13)
            answer = switch.recv(64)
            assert answer[1] == 0, "an OFPT_HELLO"
            assert addresses_of(process.pid) == {f"0100007F:{port:04X}"}
        process.send_signal(number)
        assert process.wait(timeout=20) in (0, -number)


@pytest.mark.parametrize("engine", sorted(HANDLER))
def test_a_port_in_use_is_reported_in_one_line(engine: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            command(engine, port, "--apps", HANDLER[engine]),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: cannot listen on 127.0.0.1 port {port}: Address already in use")
    assert done.stderr.count("\n") == 1


def test_an_app_that_fails_to_start_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "failing_app.py").write_text(
        "from os_ken.base.app_manager import OSKenApp\n"
        "from os_ken.controller import ofp_event\n"
        "class Failing(OSKenApp):\n"
        "    def __init__(self, *args, **kwargs):\n"
        "        raise ValueError('no good')\n"
    )
    done = subprocess.run(
        command("os-ken", free_port(), "--apps", "failing_app"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "weir: the apps did not start: no good"


def test_a_missing_app_is_refused() -> None:
    done = subprocess.run(
        command("ryu", free_port(), "--apps", "no.such.app"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "module no.such.app is not found" in done.stderr


@pytest.mark.parametrize(
    "text", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "nohost:1", ":6653", ""]
)
def test_a_bad_address_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not an address and port"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("text", "address"), [("127.0.0.1:6653", ("127.0.0.1", 6653)), ("[::1]:1", ("::1", 1))]
)
def test_an_address_has_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert Address.parse(text) == address


def test_tls_needs_all_three_files_or_none() -> None:
    assert Tls.of(None, None, None) is None
    assert "--ofp-tcp-listen-port" in Address("127.0.0.1", 6653).options(None)
    tls = Tls.of("/k", "/c", "/ca")
    options = ["--ofp-listen-host", "127.0.0.1", "--ofp-ssl-listen-port", "6653"]
    options += ["--ctl-privkey", "/k", "--ctl-cert", "/c", "--ca-certs", "/ca"]
    assert Address("127.0.0.1", 6653).options(tls) == options
    with pytest.raises(click.UsageError, match="all of --private-key, --certificate and --ca-certificate"):
        Tls.of("/k", None, "/ca")
