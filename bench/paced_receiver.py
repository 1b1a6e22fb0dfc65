"""Reads each connection at a rate, and after a time all it can: `paced_receiver.py PORT BPS SECONDS`.

It prints a line when it listens.
"""

import socket
import sys
import threading
import time

BLOCK_BYTES, LARGE_BYTES = 4096, 65536


def read(connection: socket.socket, rate_bps: float, paced_s: float) -> None:
    """One connection, until its end."""
    begun, received = time.monotonic(), 0
    with connection:
        while (passed_s := time.monotonic() - begun) < paced_s:
            if received * 8 < rate_bps * passed_s:
                received += len(connection.recv(BLOCK_BYTES))
            else:
                time.sleep((received * 8 - rate_bps * passed_s) / rate_bps)
        while connection.recv(LARGE_BYTES):
            pass


def main(port: int, rate_bps: float, paced_s: float) -> None:
    with socket.create_server(("", port), backlog=128) as listening:
        print("listening", flush=True)
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=read, args=(connection, rate_bps, paced_s), daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
