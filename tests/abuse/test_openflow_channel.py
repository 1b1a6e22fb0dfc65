"""Strangers and hostile switches at the controller's OpenFlow port, while another switch is served."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openflow_ext import engine, wire
from tests.support.controllers import quiet_app
from tests.support.controllers.processes import connect, controller, free_port
from tests.support.fuzzing.engines import mangled
from tests.support.openflow.scripted_switch import ScriptedSwitch
from tests.support.openflow.switch_messages import message
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.timeout(60), pytest.mark.beside_others]

ENDLESS_HELLO = b"\4\0\0\x0c\0\0\0\1\0\2\0\0"
HANDSHAKE_S, CLAIM_S, MOST_HALF_OPEN = 10.0, 3.0, 128
HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, FEATURES_REPLY = 0, 1, 2, 3, 6
PORT_STATUS, MULTIPART_REQUEST, MULTIPART_REPLY = 12, 18, 19
PORT_DESC = 13
UNKNOWN_REASON = 7
ENDS = (HELLO, ERROR, FEATURES_REPLY)
"""Of these types, a wrong message may end the session of the switch that sends it."""


@pytest.fixture(scope="module", params=engine.ENGINES)
def served(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """The port of a controller on one engine, and its process id."""
    port = free_port()
    with controller(request.param, quiet_app.__file__, port) as process:
        connect(port, process).close()
        yield port, process.pid


@pytest.fixture
def of_port(served: tuple[int, int]) -> int:
    return served[0]


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
        switch.is_served()
    with contextlib.closing(ScriptedSwitch(of_port, dpid=2)) as other:
        other.is_served()


def test_malformed_messages_of_a_switch_do_no_harm_to_another(of_port: int, switch: ScriptedSwitch) -> None:
    rng = random.Random(1)
    for _ in range(10):
        messages = [data for data in (mangled(rng, 4) for _ in range(200)) if data[1] not in ENDS]
        with contextlib.closing(ScriptedSwitch(of_port, dpid=2)) as hostile:
            hostile.barrier()
            hostile.send_raw(b"".join(messages))
            switch.is_served()
            hostile.barrier()


def test_a_switch_that_reconnects_is_served_at_once_and_leaves_no_thread(served: tuple[int, int]) -> None:
    of_port, pid = served
    threads = Path(f"/proc/{pid}/task")
    before = len(list(threads.iterdir()))
    for _ in range(40):
        with contextlib.closing(ScriptedSwitch(of_port, dpid=4)) as switch:
            switch.joined()
            for _ in range(30):  # the controller reads the last of these after the next session's claim
                switch.send(ECHO_REPLY, b"")
    wait_until(lambda: len(list(threads.iterdir())) <= before + 4, "the threads of ended sessions end")


class Silent(ScriptedSwitch):
    """A switch that answers no echo request once its handshake is complete."""

    def _answer(self, data: bytes) -> None:
        if data[1] != ECHO_REQUEST:
            super()._answer(data)


def test_a_second_session_with_a_live_datapath_id_is_refused(of_port: int, switch: ScriptedSwitch) -> None:
    switch.joined()
    for _ in range(2):
        with contextlib.closing(ScriptedSwitch(of_port, dpid=1)) as impostor:
            assert impostor.ended.wait(CLAIM_S)
            assert not impostor.is_accepted()
        switch.is_served()


def test_a_switch_replaces_its_own_dead_session(of_port: int) -> None:
    with contextlib.closing(Silent(of_port, dpid=1)) as dead:
        dead.joined()
        began = time.monotonic()
        with contextlib.closing(ScriptedSwitch(of_port, dpid=1)) as switch:
            switch.joined()
            assert time.monotonic() - began < CLAIM_S + 2
            assert dead.ended.wait(2)
            switch.is_served()


def statuses(reason: int) -> Iterator[bytes]:
    """A PORT_STATUS message for each of 10,499 ports."""
    for number in range(1, 10_500):
        port = wire.encode_port(wire.OfpPort(number))
        yield message(4, PORT_STATUS, bytes([reason]) + bytes(7) + port)


def descriptions(flags: int = 0) -> Iterator[bytes]:
    """Eleven PORT_DESC replies of 1,000 ports each."""
    for first in range(1, 11_000, 1000):
        ports = b"".join(wire.encode_port(wire.OfpPort(number)) for number in range(first, first + 1000))
        yield message(4, MULTIPART_REPLY, struct.pack("!HH4x", PORT_DESC, flags) + ports)


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param(lambda: statuses(0), id="added"),
        pytest.param(lambda: statuses(UNKNOWN_REASON), id="unknown-reason"),
        pytest.param(descriptions, id="described-again"),
    ],
)
def test_a_switch_that_describes_port_after_port_is_ended(
    of_port: int, switch: ScriptedSwitch, messages: Callable[[], Iterator[bytes]]
) -> None:
    with contextlib.closing(ScriptedSwitch(of_port, dpid=2)) as hostile:
        hostile.joined()
        with contextlib.suppress(ConnectionError):
            hostile.send_raw(b"".join(messages()))
        assert hostile.ended.wait(10)
        switch.is_served()


class Undescribed(ScriptedSwitch):
    """A switch that does not answer the request for its ports, so that its handshake goes on."""

    def _answer(self, data: bytes) -> None:
        if data[1] != MULTIPART_REQUEST:
            super()._answer(data)


def test_a_switch_that_sends_its_features_again_and_again_may_not_describe_more(
    of_port: int, switch: ScriptedSwitch
) -> None:
    """Each FEATURES_REPLY empties the ports that the engine keeps."""
    features = message(4, FEATURES_REPLY, struct.pack("!QIBB2xII", 2, 0, 1, 0, 0, 0))
    with contextlib.closing(Undescribed(of_port, dpid=2)) as hostile:
        hostile.joined()
        with contextlib.suppress(ConnectionError):
            hostile.send_raw(b"".join(part + features for part in descriptions(wire.OFPMPF_REPLY_MORE)))
        assert hostile.ended.wait(10)
        switch.is_served()


def test_a_flood_of_connections_keeps_no_switch_out(of_port: int, switch: ScriptedSwitch) -> None:
    with contextlib.ExitStack() as stack:
        flood = [stack.enter_context(stranger(of_port)) for _ in range(160)]
        switch.is_served()
        with contextlib.closing(ScriptedSwitch(of_port, dpid=2)) as other:
            other.joined()
            other.is_served()
        assert sum(1 for connection in flood if has_ended(connection)) >= 160 - MOST_HALF_OPEN


def has_ended(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    with contextlib.suppress(TimeoutError):
        return ends(connection)
    return False


def test_sessions_that_cost_time_are_ended(of_port: int, switch: ScriptedSwitch) -> None:
    """A stranger that says nothing, and a switch that sends requests and reads no answer."""
    with stranger(of_port) as half_open, stranger(of_port) as slow:
        slow.setblocking(False)
        rest = request = message(4, ECHO_REQUEST, bytes(60_000))
        slow.sendall(message(4, 0) + message(4, FEATURES_REPLY, struct.pack("!QIBB2xII", 3, 0, 1, 0, 0, 0)))
        began = time.monotonic()
        while time.monotonic() - began < HANDSHAKE_S + 3:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                rest = rest[slow.send(rest) :] or request
            switch.is_served()
            time.sleep(0.02)
        assert has_ended(half_open)
        slow.setblocking(True)
        assert has_ended(slow)
