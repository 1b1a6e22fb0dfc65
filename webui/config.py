"""The ``[web]`` section."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, IPvAnyNetwork, field_validator

from weir_base.addresses import is_loopback
from weir_base.settings import Section


class WebSettings(Section):
    """How the dashboard is served."""

    listen: str = Field("127.0.0.1:8080", description="ADDRESS:PORT of the dashboard")
    read_without_login: bool | None = Field(
        None,
        description="whether anybody may read the pages; none: only if `listen` is a loopback address, "
        "`hosts`, `proxies` and `secure_cookies` are not set, and the request came through no proxy",
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="host names by which browsers reach the dashboard; requests for other names are refused. "
        "Empty: the loopback names if `listen` is a loopback address, any name otherwise",
    )
    secure_cookies: bool = Field(
        False, description="whether cookies are sent over HTTPS only; set it behind a proxy that speaks TLS"
    )
    proxies: tuple[IPvAnyNetwork, ...] = Field(
        (),
        description="addresses or networks of proxies in front of the dashboard. Only their header "
        "X-Forwarded-For is believed; the limits then count each client behind them by itself",
    )
    accounts: Path = Field(
        Path("/var/lib/weir/web-accounts.json"),
        description="file of the accounts, the tokens and the key that signs sessions",
    )
    results: Path = Field(Path("results"), description="folder of the lab's results")
    poll_s: float = Field(
        0.5, ge=0.05, le=60, description="seconds between two queries for changes while a page is open"
    )
    query_limit_s: float = Field(
        5.0, gt=0, le=300, description="seconds after which a database query is stopped"
    )
    most_viewers: int = Field(
        100, ge=1, le=1000, description="limit of live pages at a time; each needs a thread"
    )
    most_viewers_per_client: int = Field(
        60, ge=1, le=1000, description="limit of live pages at a time of one address, user or token"
    )
    yields: bool = Field(
        True, description="whether the dashboard leaves the CPU to all other programs (SCHED_IDLE)"
    )
    session_hours: float = Field(12.0, gt=0, le=24 * 30, description="hours until a login expires")

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
        return is_loopback(self.address[0])

    @property
    def open_to_read(self) -> bool:
        """Whether reading needs no login. A proxy makes a loopback address reachable from elsewhere."""
        if self.read_without_login is not None:
            return self.read_without_login
        return self.on_loopback and not (self.hosts or self.proxies or self.secure_cookies)

    @property
    def trusted_hosts(self) -> list[str] | None:
        """The host names that a request may use; None: any. This prevents DNS rebinding by another site."""
        if self.hosts:
            return list(self.hosts)
        return ["localhost", "127.0.0.1", "[::1]", self.address[0]] if self.on_loopback else None


def address_of(listen: str) -> tuple[str, int]:
    """The two parts of ADDRESS:PORT; an IPv6 address is in brackets. Raises ValueError."""
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 0xFFFF:
        raise ValueError(f"{listen!r} is not ADDRESS:PORT, such as 127.0.0.1:8080 or [::1]:8080")
    return host, int(port)
