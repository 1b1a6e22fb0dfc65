"""One end of connections that are paced, and after a time send or read all they can.

`paced_flow.py send HOST PORT BPS SECONDS` sends on one connection. With a rate of 0 it is never paced.
`paced_flow.py receive PORT BPS SECONDS` reads each connection that comes, and prints a line when it listens.
"""

import socket
import sys
import threading
import time
from collections.abc import Callable

BLOCK, LARGE = bytes(4096), bytes(65536)


def paced(transfer: Callable[[], int], rate_bps: float, paced_s: float) -> None:
    """Transfer blocks at a rate for a time. ``transfer`` returns the bytes of a block, 0 at the end."""
    begun, done = time.monotonic(), 0
    while rate_bps and (passed_s := time.monotonic() - begun) < paced_s:
        if done * 8 >= rate_bps * passed_s:
            time.sleep((done * 8 - rate_bps * passed_s) / rate_bps)
        elif moved := transfer():
            done += moved
        else:
            return


def send(host: str, port: int, rate_bps: float, paced_s: float) -> None:
    connection = socket.create_connection((host, port), 20)

    def send_block() -> int:
        connection.sendall(BLOCK)
        return len(BLOCK)

    paced(send_block, rate_bps, paced_s)
    while True:
        connection.sendall(LARGE)


def read(connection: socket.socket, rate_bps: float, paced_s: float) -> None:
    """One connection, until its end."""
    with connection:
        paced(lambda: len(connection.recv(len(BLOCK))), rate_bps, paced_s)
        while connection.recv(len(LARGE)):
            pass


def receive(port: int, rate_bps: float, paced_s: float) -> None:
    with socket.create_server(("", port), backlog=128) as listening:
        print("listening", flush=True)
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=read, args=(connection, rate_bps, paced_s), daemon=True).start()


if __name__ == "__main__":
    *place, rate_bps, paced_s = sys.argv[2:]
    if sys.argv[1] == "send":
        send(place[0], int(place[1]), float(rate_bps), float(paced_s))
    else:
        receive(int(place[0]), float(rate_bps), float(paced_s))
