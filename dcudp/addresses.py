"""Addresses: `HOST:PORT` as a person writes it, and numbers as the library takes them."""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple

from dcudp.errors import AddressError


class Address(NamedTuple):
    """An IP address and a port. ``str`` gives the form that the library takes."""

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
    """`127.0.0.1:9000`, `[::1]:9000` or `name:9000`. Raises AddressError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isdecimal() and int(port) < 65536):
        raise AddressError(f"{text!r} is not an address and port, such as 127.0.0.1:9000 or [::1]:9000")
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise AddressError(f"cannot find the address of {host!r}: {error}; use its number") from error
    return Address(str(found[0][4][0]), int(port))
