"""Addresses: `HOST:PORT` as a person writes it, and numbers as the library takes them."""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple

from dcudp.errors import AddressError


class Address(NamedTuple):
    """An IP address and a port. ``str`` gives the form that the library takes.

    A link-local address of IPv6 has the number of its interface: `fe80::1%2` (RFC 4007, section 11).
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def local_bind(self) -> Address:
        """Where a node that connects to this address binds its socket: on loopback only for loopback."""
        if ipaddress.ip_address(self.host).is_loopback:
            return Address(self.host, 0)
        return Address("::" if ":" in self.host else "0.0.0.0", 0)  # noqa: S104  # it accepts no connection


def resolve(text: str) -> Address:
    """`127.0.0.1:9000`, `[::1]:9000`, `[fe80::1%eth0]:9000` or `name:9000`. Raises AddressError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isdecimal() and int(port) < 65536):
        raise AddressError(f"{text!r} is not an address and port, such as 127.0.0.1:9000 or [::1]:9000")
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise AddressError(f"cannot find the address of {host!r}: {error}; use its number") from error
    name = found[0][4]
    number = ipaddress.ip_address(name[0])
    if number.version == 4 or not number.is_link_local:
        return Address(str(number), int(port))
    scope = name[3] if len(name) == 4 else 0
    if not scope:
        raise AddressError(f"{number} is link-local: name its interface, as in [{number}%eth0]:{port}")
    return Address(f"{number}%{scope}", int(port))
