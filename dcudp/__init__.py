"""DCUDP: a reliable UDP transport for data centers that reacts to ECN.

    async with await dcudp.listen("127.0.0.1:9000") as node:
        connection = await node.accept()
        message = await connection.receive()

    async with await dcudp.connect("127.0.0.1:9000") as connection:
        await connection.send(b"message")

Beyond loopback both ends need the same key file: `dcudp.Options(key_file=...)`, made by `weir dcudp key`.
"""

from __future__ import annotations

from dcudp.addresses import resolve
from dcudp.connection import Connection
from dcudp.errors import AddressError, ConnectionEnded, ConnectionLost, DcudpError, TransferFailed
from dcudp.events import FileState, Load
from dcudp.node import Node, Options
from dcudp.statistics import ConnectionStatistics, NodeStatistics
from dcudp.streams import Stream

__all__ = [
    "AddressError",
    "Connection",
    "ConnectionEnded",
    "ConnectionLost",
    "ConnectionStatistics",
    "DcudpError",
    "FileState",
    "Load",
    "Node",
    "NodeStatistics",
    "Options",
    "Stream",
    "TransferFailed",
    "connect",
    "listen",
]


async def listen(address: str, options: Options | None = None) -> Node:
    """Open a node that accepts connections at `HOST:PORT`; port 0 lets the kernel choose.

    Raises DcudpError, for example if the address is not loopback and no key file is given.
    """
    return Node(resolve(address), options or Options(), listens=True)


async def connect(address: str, options: Options | None = None) -> Connection:
    """Connect to `HOST:PORT` from a node of its own, which ends with the connection.

    For several connections from one port, make a `Node` and call its `connect`. Raises DcudpError if it
    cannot begin, ConnectionLost if the handshake fails.
    """
    peer = resolve(address)
    node = Node(peer.local_bind(), options or Options(), listens=False, peer=peer)
    try:
        connection = await node.connect(peer)
    except BaseException:
        node.close()
        raise
    node.close_with(connection)
    return connection
