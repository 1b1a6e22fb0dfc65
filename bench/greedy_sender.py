"""Sends over many connections at once until it is ended: `greedy_sender.py HOST PORT CONNECTIONS`."""

import selectors
import socket
import sys

BLOCK = bytes(65536)


def main(host: str, port: int, connections: int) -> None:
    ready = selectors.DefaultSelector()
    for _ in range(connections):
        one = socket.create_connection((host, port), 20)
        one.setblocking(False)
        ready.register(one, selectors.EVENT_WRITE)
    while True:
        for key, _ in ready.select():
            key.fileobj.send(BLOCK)  # type: ignore[union-attr]  # a socket was registered


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
