"""Two hosts behind a Linux bridge, whose ports take the kernel form of the programs."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.data_plane.scripted_wire import Space
from tests.support.data_plane.slow_port import run
from tests.support.waiting import DEADLINE_S


@dataclass(frozen=True, slots=True)
class Host:
    space: Space
    port: str  # the bridge's port to which the host is attached
    address: str
    address_v6: str

    @property
    def ifindex(self) -> int:
        return socket.if_nametoindex(self.port)

    def bad_checksums(self) -> int:
        """TCP segments that its stack refused for their checksum."""
        snmp = self.space.run(lambda: Path("/proc/thread-self/net/snmp").read_text())
        names, values = (line.split() for line in snmp.splitlines() if line.startswith("Tcp:"))
        return int(values[names.index("InCsumErrors")])

    def socket(self, family: int = socket.AF_INET) -> socket.socket:
        made = self.space.run(lambda: socket.socket(family))
        made.settimeout(DEADLINE_S)
        return made


@contextlib.contextmanager
def bridged_hosts() -> Iterator[tuple[Host, Host]]:
    """Two hosts in network namespaces of their own. Both have an IPv4 and an IPv6 address."""
    bridge = f"wk{os.getpid() % 100000}"
    with contextlib.ExitStack() as undo:
        run("ip", "link", "add", bridge, "type", "bridge")
        undo.callback(run, "ip", "link", "del", bridge)
        run("ip", "link", "set", bridge, "up")
        made = []
        for number in (1, 2):
            space, port = Space(f"{bridge}-{number}"), f"{bridge}p{number}"
            host = Host(space, port, f"10.78.0.{number}", f"fd78::{number}")
            undo.callback(host.space.close)
            name = host.space.name
            run(*f"ip link add {host.port} type veth peer name eth0 netns {name}".split())
            # `ip netns delete` returns before the links are gone, and the next test needs their names.
            undo.callback(run, "ip", "link", "del", host.port)
            run(*f"ethtool -K {host.port} tx off".split())
            run(*f"ip link set {host.port} master {bridge} up".split())
            run(*f"ip -n {name} address add {host.address}/24 dev eth0".split())
            run(*f"ip -n {name} address add {host.address_v6}/64 dev eth0 nodad".split())
            run(*f"ip -n {name} link set eth0 up".split())
            made.append(host)
        yield made[0], made[1]


@contextlib.contextmanager
def connection(
    client: Host, server: Host, port: int, family: int
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection, and both its ends, the client's first. Neither waits to send more at once."""
    address = (server.address if family == socket.AF_INET else server.address_v6, port)
    with server.socket(family) as listener, client.socket(family) as there:
        listener.bind(address)
        listener.listen()
        there.connect(address)
        back, _ = listener.accept()
        with back:
            for end in (there, back):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield there, back
