"""Sends frames from a packet socket: `inject.py INTERFACE PER_SECOND`; each input line is one, in hex."""

import socket
import sys
import time

if __name__ == "__main__":
    pause_s = 1 / float(sys.argv[2])
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as link:
        link.bind((sys.argv[1], 0))
        for line in sys.stdin:
            link.send(bytes.fromhex(line))
            time.sleep(pause_s)
