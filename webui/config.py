"""The ``[web]`` section."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from pydantic import Field, field_validator

from openflow_ext.settings import Section


class WebSettings(Section):
    """How the dashboard is served.

    ``listen``: ADDRESS:PORT. ``read_without_login``: whether pages can be read by anybody; by default only
    where ``listen`` is loopback. ``hosts``: the names by which browsers reach it, others are refused (empty:
    loopback's own names there, any elsewhere). ``secure_cookies``: it is reached by HTTPS, through a proxy.
    ``accounts``: the file of people, tokens and the key of the sessions. ``results``: the lab's result
    folders. ``poll_s``: how often the database is asked for changes while somebody looks.
    ``most_viewers``: live pages at a time; each holds a thread. ``yields``: any other work of this machine,
    a controller's above all, goes first.
    """

    listen: str = "127.0.0.1:8080"
    read_without_login: bool | None = None
    hosts: tuple[str, ...] = ()
    secure_cookies: bool = False
    accounts: Path = Path("/var/lib/weir/web-accounts.json")
    results: Path = Path("results")
    poll_s: float = Field(default=0.5, ge=0.05, le=60)
    query_limit_s: float = Field(default=5.0, gt=0, le=300)
    most_viewers: int = Field(default=100, ge=1, le=1000)
    yields: bool = True
    session_hours: float = Field(default=12.0, gt=0, le=24 * 30)

    @field_validator("listen")
    @classmethod
    def _address_and_port(cls, value: str) -> str:
        address_of(value)
        return value

    @property
    def address(self) -> tuple[str, int]:
        return address_of(self.listen)

    @property
    def on_loopback(self) -> bool:
        return _is_loopback(self.address[0])

    @property
    def open_to_read(self) -> bool:
        return self.on_loopback if self.read_without_login is None else self.read_without_login

    @property
    def trusted_hosts(self) -> list[str] | None:
        """The names that a request may come by; None: any. A page elsewhere cannot rebind a name to us."""
        if self.hosts:
            return list(self.hosts)
        return ["localhost", "127.0.0.1", "[::1]", self.address[0]] if self.on_loopback else None


def address_of(listen: str) -> tuple[str, int]:
    """ADDRESS:PORT as its parts; an IPv6 address stands in brackets. Raises ValueError."""
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 0xFFFF:
        raise ValueError(f"{listen!r} is not ADDRESS:PORT, such as 127.0.0.1:8080 or [::1]:8080")
    return host, int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
