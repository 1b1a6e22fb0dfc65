"""Strangers and hostile switches at the controller's OpenFlow port, while another switch is served."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from openflow_ext import engine
from tests.support.controllers.processes import connect, controller, free_port
from tests.support.openflow.parser_fuzz import mangled
from tests.support.openflow.scripted_switch import ScriptedSwitch

pytestmark = pytest.mark.timeout(60)

APP = """
from openflow_ext import registry
from openflow_ext.engine import App, MAIN_DISPATCHER, ofp_event, set_ev_cls

registry.install()

class Quiet(App):
    OFP_VERSIONS = [4, 6]

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, ev):
        pass
"""
ENDLESS_HELLO = b"\4\0\0\x0c\0\0\0\1\0\2\0\0"
ANSWER_S = 1.0
ERROR = 1


@pytest.fixture(params=engine.ENGINES)
def of_port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """The port of a controller on one engine."""
    app = tmp_path / "quiet_app.py"
    app.write_text(APP)
    port = free_port()
    with controller(request.param, app, port) as process:
        connect(port, process).close()
        yield port


@contextlib.contextmanager
def stranger(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        yield connection


def ends(connection: socket.socket) -> bool:
    """Whether the controller ends the connection."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def is_served(switch: ScriptedSwitch) -> None:
    """The controller answers the switch at once."""
    began = time.monotonic()
    switch.barrier()
    assert time.monotonic() - began < ANSWER_S


@pytest.fixture
def switch(of_port: int) -> Iterator[ScriptedSwitch]:
    """The switch that has to stay served."""
    with contextlib.closing(ScriptedSwitch(of_port, dpid=1)) as switch:
        switch.barrier()
        yield switch


def test_an_endless_hello_ends_its_own_session_only(of_port: int, switch: ScriptedSwitch) -> None:
    for _ in range(3):
        with stranger(of_port) as connection:
            connection.sendall(ENDLESS_HELLO)
            assert ends(connection)
        is_served(switch)
    with contextlib.closing(ScriptedSwitch(of_port, dpid=2)) as other:
        is_served(other)


def test_malformed_messages_of_a_switch_do_no_harm_to_another(of_port: int, switch: ScriptedSwitch) -> None:
    rng = random.Random(1)
    for _ in range(10):
        messages = [data for data in (mangled(rng, 4) for _ in range(200)) if data[1] > ERROR]
        with contextlib.closing(ScriptedSwitch(of_port, dpid=2)) as hostile:
            hostile.barrier()
            hostile.send_raw(b"".join(messages))
            is_served(switch)
            hostile.barrier()
