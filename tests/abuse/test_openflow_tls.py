"""TLS between switches and `weir controller` on both engines: reconnects, strangers, bound certificates."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.agent.certificates import certify
from tests.support.controllers import hasty_app, quiet_app
from tests.support.controllers.processes import connect, free_port
from tests.support.openflow.scripted_switch import ScriptedSwitch
from weir_base.paths import PROJECT

pytestmark = [pytest.mark.timeout(60), pytest.mark.beside_others]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of a controller and of switches, and one of another authority."""
    folder = tmp_path_factory.mktemp("pki")
    for name, authority in (("ca", "ca"), ("switch", "ca"), ("other", "other"), ("impostor", "other")):
        certify(folder, name, authority)
    certify(folder, "controller", hosts="IP:127.0.0.1")
    certify(folder, "bound", hosts=f"DNS:dpid-{2:016x},DNS:dpid-{3:016x}")
    return folder


@pytest.fixture(scope="module", params=["ryu", "os-ken"])
def of_port(request: pytest.FixtureRequest, folder: Path) -> Iterator[int]:
    with tls_controller(request.param, quiet_app.__name__, folder) as port:
        yield port


@contextlib.contextmanager
def tls_controller(engine: str, app: str, folder: Path) -> Iterator[int]:
    """The port of a controller with TLS."""
    port = free_port()
    files = (f"{folder}/controller.key", f"{folder}/controller.pem", f"{folder}/ca.pem")
    names = ("--private-key", "--certificate", "--ca-certificate")
    argv = [sys.executable, "-W", "ignore", "-m", "weir", "controller", "--engine", engine]
    argv += ["--listen", f"127.0.0.1:{port}", "--apps", app]
    argv += [part for pair in zip(names, files, strict=True) for part in pair]
    env = {**os.environ, "PYTHONPATH": str(PROJECT)}
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    ) as process:
        try:
            connect(port, process).close()
            yield port
        finally:
            process.kill()


@pytest.fixture
def dial(of_port: int, folder: Path) -> Callable[[str, int], contextlib.closing[ScriptedSwitch]]:
    """Connects a switch that has a certificate and a datapath id."""

    def connected(name: str, dpid: int) -> contextlib.closing[ScriptedSwitch]:
        context = ssl.create_default_context(cafile=folder / "ca.pem")
        if name:
            context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
        return contextlib.closing(ScriptedSwitch(of_port, dpid, tls=context))

    return connected


Dial = Callable[[str, int], contextlib.closing[ScriptedSwitch]]


def test_switches_connect_again_and_at_the_same_time(dial: Dial) -> None:
    for _ in range(3):
        with dial("switch", 1) as switch, dial("switch", 2) as other:
            switch.joined()
            other.joined()
            switch.is_served()
            other.is_served()
            switch.send_raw(b"".join([ECHO_60_KB] * 20))
            switch.is_served()


ECHO_60_KB = b"\4\2\xea\x60\0\0\0\1" + bytes(0xEA60 - 8)


@pytest.mark.parametrize("name", ["", "impostor"])
def test_a_stranger_without_a_certificate_of_the_authority_is_refused(dial: Dial, name: str) -> None:
    with dial("switch", 1) as switch:
        switch.joined()
        with contextlib.suppress(OSError), dial(name, 2) as stranger:
            assert stranger.ended.wait(5)
            assert not stranger.is_accepted()
        switch.is_served()


def test_a_certificate_speaks_for_the_datapath_ids_that_it_names(dial: Dial) -> None:
    with dial("bound", 1) as impostor:
        assert impostor.ended.wait(5)
        assert not impostor.is_accepted()
    for dpid in (2, 3):
        with dial("bound", dpid) as switch:
            switch.joined()
            switch.is_served()


@pytest.mark.parametrize("engine", ["ryu", "os-ken"])
def test_a_handshake_that_arrives_byte_by_byte_is_ended(engine: str, folder: Path) -> None:
    """Each byte comes long before the limit, which holds for the whole handshake."""
    with (
        tls_controller(engine, hasty_app.__name__, folder) as port,
        socket.create_connection(("127.0.0.1", port), timeout=0.25) as stranger,
    ):
        began = time.monotonic()
        for byte in client_hello():
            try:
                stranger.sendall(bytes([byte]))
                if not stranger.recv(1):
                    break
            except TimeoutError:  # the handshake goes on
                assert time.monotonic() - began < hasty_app.HANDSHAKE_S + 10
            except ConnectionError:
                break
        assert time.monotonic() - began > hasty_app.HANDSHAKE_S / 2, "it was not refused at once"


def client_hello() -> bytes:
    """The first message of a TLS handshake: some 500 bytes."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(received, sent, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()
