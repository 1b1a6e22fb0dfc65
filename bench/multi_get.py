"""Ask memcached on several hosts at once over standing connections, as a client library's multi-get does.

    python -m bench.multi_get PORT KEYS REPLY_BYTES ADDRESS...

It prints "ready" when it is connected to all hosts. Then, for each line of its input, it sends one `get` of
all keys to every host and prints how many seconds it took until the last host had answered. A reply of
another size is an error. bench.real_programs starts it.
"""

from __future__ import annotations

import selectors
import socket
import sys
import time
from collections.abc import Sequence

RECEIVE_BYTES = 1 << 16
QUERY_S = 60.0


def ask_all(connections: Sequence[socket.socket], request: bytes, reply_bytes: int) -> float:
    """Send a request on all connections. Returns the time until the last reply is complete, in s.

    Raises RuntimeError if a host closes its connection, sends too much, or does not answer within QUERY_S.
    """
    missing = dict.fromkeys(connections, reply_bytes)
    began = time.monotonic()
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
            connection.sendall(request)
        while missing:
            ready = selector.select(began + QUERY_S - time.monotonic())
            if not ready:
                raise RuntimeError(f"no reply from {len(missing)} hosts within {QUERY_S:g} s")
            for key, _ in ready:
                connection = key.data
                got = len(connection.recv(RECEIVE_BYTES))
                left = missing[connection] - got
                if not got or left < 0:
                    raise RuntimeError(
                        f"{connection.getpeername()[0]}: {left} bytes of the reply are missing"
                    )
                missing[connection] = left
                if not left:
                    selector.unregister(connection)
                    del missing[connection]
    return time.monotonic() - began


def main(argv: Sequence[str]) -> None:
    port, keys, reply_bytes, *addresses = argv
    connections = [socket.create_connection((address, int(port)), QUERY_S) for address in addresses]
    request = f"get {' '.join(f'k{number:03}' for number in range(int(keys)))}\r\n".encode()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(ask_all(connections, request, int(reply_bytes)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
