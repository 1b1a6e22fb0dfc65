"""One long TCP stream: `stream.py sink PORT`, or `stream.py source HOST PORT`.

The source sends numbers, eight bytes each, until its standard input ends; then it prints how many bytes it
sent. The sink checks that each number follows the last, and prints how many bytes came.
"""

import socket
import struct
import sys
import threading

NUMBERS = 1024
_BLOCK = struct.Struct(f"!{NUMBERS}Q")


def sink(port: int) -> None:
    with socket.create_server(("", port)) as listener:
        print("listening", flush=True)
        stream = listener.accept()[0].makefile("rb")
    came, expected = 0, 0
    while block := stream.read(_BLOCK.size):
        if block != _BLOCK.pack(*range(expected, expected + NUMBERS)):
            sys.exit(f"the stream is torn within the block after {came} bytes")
        came, expected = came + len(block), expected + NUMBERS
    print(came, flush=True)


def source(host: str, port: int) -> None:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    sent, number = 0, 0
    with socket.create_connection((host, port), 20) as stream:
        while not ended.is_set():
            stream.sendall(_BLOCK.pack(*range(number, number + NUMBERS)))
            sent, number = sent + _BLOCK.size, number + NUMBERS
        stream.shutdown(socket.SHUT_WR)
        stream.recv(1)
    print(sent, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "sink":
        sink(int(sys.argv[2]))
    else:
        source(sys.argv[2], int(sys.argv[3]))
