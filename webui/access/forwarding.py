"""The address of a request that came through proxies. Only proxies that the settings name are believed."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

WAS_FORWARDED = "weir.was_forwarded"
"""In a request's environment: whether any proxy, named in the settings or not, says that it forwarded it."""

_FORWARDED_FOR = "HTTP_X_FORWARDED_FOR"
_TRACES = ("HTTP_FORWARDED", "HTTP_X_REAL_IP", "HTTP_X_CLIENT_IP", "HTTP_X_CLUSTER_CLIENT_IP",
           "HTTP_TRUE_CLIENT_IP", "HTTP_CF_CONNECTING_IP", "HTTP_VIA")  # fmt: skip
_TRACE_BEGINS = "HTTP_X_FORWARDED"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ForwardedAddresses:
    """WSGI middleware: REMOTE_ADDR becomes the address of the client in front of the named proxies."""

    def __init__(self, app: WSGIApplication, proxies: Sequence[Network]) -> None:
        self._app = app
        self._proxies = tuple(proxies)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        environ[WAS_FORWARDED] = any(
            header.startswith(_TRACE_BEGINS) or header in _TRACES for header in environ
        )
        peer, given = environ.get("REMOTE_ADDR", ""), environ.get(_FORWARDED_FOR, "")
        environ["REMOTE_ADDR"] = client_address(peer, given, self._proxies)
        return self._app(environ, start_response)


def client_address(peer: str, forwarded_for: str, proxies: Sequence[Network]) -> str:
    """The last address of the chain that is not a named proxy. ``forwarded_for``: as in X-Forwarded-For.

    Each proxy appends the address that it sees, so the end of the list is true and its beginning is the
    client's claim. An entry that is not an address ends the search at the proxy that passed it on.
    """
    address = _parsed(peer)
    for entry in reversed(forwarded_for.split(",")):
        if address is None or not any(address in network for network in proxies):
            break
        before = _parsed(entry.strip())
        if before is None:
            break
        address = before
    return peer if address is None else str(address)


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
