"""Strangers at a controller's OpenFlow port, until the process is ended: one attack of bench.hostile_hosts.

    python -m bench.hostile_clients PORT hello|connections|impostor [DPID]

``hello``: 20 times a second a connection sends a HELLO whose element has length 0. ``connections``: 200
connections are open and silent, and each that the controller ends is opened again. ``impostor``: switches
claim the datapath id DPID (hexadecimal), 5 a second.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import time

from tests.support.openflow.scripted_switch import ScriptedSwitch

ENDLESS_HELLO = b"\4\0\0\x0c\0\0\0\1\0\2\0\0"
HELLO_PAUSE_S, IMPOSTOR_PAUSE_S, LOOK_S = 0.05, 0.2, 0.05
CONNECTIONS = 200


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def hello(port: int) -> None:
    while True:
        with contextlib.suppress(OSError), dial(port) as connection:
            connection.sendall(ENDLESS_HELLO)
            connection.recv(4096)
            time.sleep(HELLO_PAUSE_S)


def connections(port: int) -> None:
    opened: list[socket.socket] = []
    while True:
        with contextlib.suppress(OSError):
            while len(opened) < CONNECTIONS:
                opened.append(dial(port))
        for ended in select.select(opened, [], [], LOOK_S)[0]:
            with contextlib.suppress(OSError):
                if ended.recv(4096):
                    continue
            ended.close()
            opened.remove(ended)


def impostor(port: int, dpid: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            switch = ScriptedSwitch(port, dpid)  # type: ignore[no-untyped-call]  # the tests are untyped
            with contextlib.closing(switch):
                time.sleep(IMPOSTOR_PAUSE_S)


if __name__ == "__main__":
    of_port = int(sys.argv[1])
    if sys.argv[2] == "impostor":
        impostor(of_port, int(sys.argv[3], 16))
    else:
        {"hello": hello, "connections": connections}[sys.argv[2]](of_port)
