"""A host with a number of connections that send: `senders.py HOST PORT CONGESTION_CONTROL`.

Each line of the standard input is the number of connections that are open from then on. Each of them sends
some bytes every PAUSE_S. A number is answered with a line when its connections are open. The program ends
with its input.
"""

from __future__ import annotations

import select
import socket
import sys

PAUSE_S = 0.05
CHUNK = bytes(100)


def opened(host: str, port: int, congestion_control: str) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
    made.connect((host, port))
    return made


def main(host: str, port: int, congestion_control: str) -> None:
    sending: list[socket.socket] = []
    while True:
        ready, _, _ = select.select([sys.stdin], [], [], PAUSE_S)
        if ready:
            line = sys.stdin.readline()
            if not line:
                return
            while len(sending) > int(line):
                sending.pop().close()
            while len(sending) < int(line):
                sending.append(opened(host, port, congestion_control))
            print(len(sending), flush=True)
        for one in sending:
            one.send(CHUNK)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
