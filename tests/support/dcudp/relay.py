"""A UDP relay on loopback between a client and a server, which may lose, change or mark packets.

The relay has one socket for each client, so a server sees each client at a port of its own. It passes the ECN
field on unless `bleaches` is set.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ECN = 3
CE = 3
NOT_ECT = 0
_BATCH = 64


class Relay:
    """Relays packets to `server` in a thread until it is closed.

    ``keeps``: whether a packet is passed on. ``mark``: the ECN field of a packet that arrived with one.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        self.keeps: Callable[[bytes], bool] = lambda _: True
        self.mark: Callable[[int], int] = lambda ecn: ecn
        self._server = server
        self._selector = selectors.DefaultSelector()
        self._front = self._socket()
        self._front.bind(("127.0.0.1", 0))
        self._selector.register(self._front, selectors.EVENT_READ, None)
        self._backs: dict[tuple[str, int], socket.socket] = {}
        self._ending = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._front.getsockname()[1]}"

    def close(self) -> None:
        self._ending = True
        self._thread.join()
        for one in (self._front, *self._backs.values()):
            one.close()
        self._selector.close()

    @staticmethod
    def _socket() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        made.setblocking(False)
        return made

    def _run(self) -> None:
        while not self._ending:
            for key, _ in self._selector.select(timeout=0.05):
                self._pass_on(key.fileobj, key.data)  # type: ignore[arg-type]

    def _pass_on(self, source: socket.socket, client: tuple[str, int] | None) -> None:
        for _ in range(_BATCH):
            try:
                data, controls, _, peer = source.recvmsg(65536, 256)
            except BlockingIOError:
                return
            except ConnectionRefusedError:
                continue
            ecn = next((one[2][0] & ECN for one in controls if one[1] == socket.IP_TOS), 0)
            out, to = (self._back(peer), self._server) if client is None else (self._front, client)
            if self.keeps(data):
                tos = struct.pack("i", self.mark(ecn))
                out.sendmsg([data], [(socket.IPPROTO_IP, socket.IP_TOS, tos)], 0, to)

    def _back(self, client: tuple[str, int]) -> socket.socket:
        if client not in self._backs:
            made = self._backs[client] = self._socket()
            self._selector.register(made, selectors.EVENT_READ, client)
        return self._backs[client]


@contextmanager
def relay_to(server: tuple[str, int]) -> Iterator[Relay]:
    """A relay that is closed at the end."""
    relay = Relay(server)
    try:
        yield relay
    finally:
        relay.close()
