"""Sends blocks at a rate, and after a time all it can: `paced_sender.py HOST PORT BPS SECONDS`.

With a rate of 0 it sends all it can at once.
"""

import socket
import sys
import time

BLOCK, LARGE = bytes(4096), bytes(65536)


def main(host: str, port: int, rate_bps: float, paced_s: float) -> None:
    connection = socket.create_connection((host, port), 20)
    begun, sent = time.monotonic(), 0
    while rate_bps and (passed_s := time.monotonic() - begun) < paced_s:
        if sent * 8 < rate_bps * passed_s:
            connection.sendall(BLOCK)
            sent += len(BLOCK)
        else:
            time.sleep((sent * 8 - rate_bps * passed_s) / rate_bps)
    while True:
        connection.sendall(LARGE)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
