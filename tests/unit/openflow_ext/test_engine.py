"""The choice of the engine, and Ryu's manager on the installed eventlet."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from openflow_ext import engine
from tests.support.controllers.processes import connect, controller, free_port

pytestmark = pytest.mark.timeout(60)

SOCKETS_APP = """
from ryu.app.wsgi import ControllerBase, WSGIApplication, websocket
from ryu.base import app_manager

class Echo(ControllerBase):
    @websocket("echo", "/echo")
    def echo(self, ws):
        ws.send(ws.wait())

class Sockets(app_manager.RyuApp):
    _CONTEXTS = {"wsgi": WSGIApplication}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        kwargs["wsgi"].register(Echo)
"""


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "WEIR_ENGINE"} | variables
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


NAME = "from openflow_ext import engine; print(engine.name)"
NO_RYU = "import sys, importlib.util as u; find = u.find_spec; "
NO_RYU += "u.find_spec = lambda name: None if name in {hidden} else find(name); " + NAME


@pytest.mark.parametrize(
    ("code", "variables", "expected"),
    [
        (NAME, {}, "ryu"),
        (NAME, {"WEIR_ENGINE": "os_ken"}, "os_ken"),
        ("import os_ken; " + NAME, {}, "os_ken"),
        ("import os_ken, ryu; " + NAME, {}, "ryu"),
        ("import os_ken; " + NAME, {"WEIR_ENGINE": "ryu"}, "ryu"),
        (NO_RYU.format(hidden=["ryu"]), {}, "os_ken"),
    ],
)
def test_the_environment_then_imports_then_ryu_decide_the_engine(
    code: str, variables: dict[str, str], expected: str
) -> None:
    assert run(code, **variables).stdout.strip() == expected


@pytest.mark.parametrize(
    ("code", "variables", "message"),
    [
        (NAME, {"WEIR_ENGINE": "nox"}, "WEIR_ENGINE is 'nox'; set it to ryu or os_ken, or unset it"),
        (
            NO_RYU.format(hidden=["ryu"]),
            {"WEIR_ENGINE": "ryu"},
            "WEIR_ENGINE is 'ryu', which is not installed",
        ),
        (NO_RYU.format(hidden=["ryu", "os_ken"]), {}, "neither Ryu nor os-ken is installed; run make setup"),
    ],
)
def test_without_a_usable_engine_the_error_says_what_to_do(
    code: str, variables: dict[str, str], message: str
) -> None:
    assert message in run(code, **variables).stderr.splitlines()[-1]


def test_import_loads_neither_a_framework_nor_eventlet() -> None:
    code = "import sys, openflow_ext.engine; print({'ryu', 'os_ken', 'eventlet'} & sys.modules.keys())"
    assert run(code).stdout.strip() == "set()"


@pytest.mark.parametrize("name", engine.ENGINES)
def test_every_name_comes_from_the_chosen_engine(name: str) -> None:
    code = (
        "from openflow_ext import engine\n"
        "found = {getattr(engine, name).__name__.split('.')[0] for name in engine._MODULES}\n"
        "found |= {getattr(engine, name).__module__.split('.')[0] for name in ('App', 'set_ev_cls')}\n"
        "found |= {engine.HANDSHAKE_DISPATCHER, engine.CONFIG_DISPATCHER}\n"
        "found |= {engine.MAIN_DISPATCHER, engine.DEAD_DISPATCHER}\n"
        "print(sorted(found))"
    )
    result = run(code, WEIR_ENGINE=name)
    assert result.stdout.strip() == str(sorted([name, "handshake", "config", "main", "dead"])), result.stderr


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = engine.no_such_name


def test_ryu_manager_refuses_another_engine() -> None:
    result = run("from openflow_ext.engine import ryu_manager; ryu_manager()", WEIR_ENGINE="os_ken")
    assert result.returncode == 1
    assert "unset it, or use weir controller" in result.stderr


def test_ryu_manager_runs_ofctl_rest() -> None:
    web = free_port()
    options = ("--wsapi-host", "127.0.0.1", "--wsapi-port", str(web))
    with controller("ryu", "ryu.app.ofctl_rest", free_port(), *options) as process:
        connect(web, process).close()
        with urllib.request.urlopen(f"http://127.0.0.1:{web}/stats/switches", timeout=10) as answer:
            assert json.load(answer) == []


def test_ryu_manager_listens_on_loopback_only() -> None:
    openflow, web = free_port(), free_port()
    code = "from openflow_ext.engine import ryu_manager; ryu_manager()"
    options = ("--ofp-tcp-listen-port", str(openflow), "--wsapi-port", str(web), "ryu.app.ofctl_rest")
    with subprocess.Popen((sys.executable, "-W", "ignore", "-c", code, *options)) as process:
        try:
            for port in (openflow, web):
                connect(port, process).close()
                assert listening(port) == {"127.0.0.1"}
        finally:
            process.kill()


def listening(port: int) -> set[str]:
    """The local addresses with a listening socket at a TCP port."""
    found = subprocess.run(("ss", "-Hltn", f"sport = :{port}"), capture_output=True, text=True, check=True)
    return {line.split()[3].rpartition(":")[0] for line in found.stdout.splitlines()}


def upgrade(key: str) -> bytes:
    lines = ["GET /echo HTTP/1.1", "Host: weir", "Connection: Upgrade", "Upgrade: websocket"]
    lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
    return "\r\n".join(lines).encode()


def test_a_websocket_ends_without_http_and_a_refused_one_gets_a_status(tmp_path: Path) -> None:
    app = tmp_path / "sockets_app.py"
    app.write_text(SOCKETS_APP)
    web = free_port()
    options = ("--wsapi-host", "127.0.0.1", "--wsapi-port", str(web))
    with controller("ryu", app, free_port(), *options) as process:
        with connect(web, process) as client, client.makefile("rb") as answer:
            client.sendall(upgrade(base64.b64encode(bytes(16)).decode()))
            assert answer.readline() == b"HTTP/1.1 101 Switching Protocols\r\n"
            while answer.readline() != b"\r\n":
                pass
            client.sendall(b"\x81\x82\0\0\0\0hi")
            assert answer.read(4) == b"\x81\x02hi"
            assert answer.read() == b"\x88\x00"  # the closing frame, and no HTTP after it
        with connect(web, process) as client:
            client.sendall(b"GET /echo HTTP/1.1\r\nHost: weir\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        process.kill()
        assert "Traceback" not in process.communicate()[0]
