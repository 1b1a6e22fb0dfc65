"""What a controller knows of the bottlenecks towards destinations: asked by HTTP, and checked.

The dashboard (`weir web`) answers `GET /api/v1/bottlenecks?to=ADDRESS,...`. A host that sends believes an
answer only as far as it is possible: `checked` refuses the others, one by one.

The pure part is `checked`. `Controller` asks.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, urlsplit

from transports.congestion import TransportError
from transports.pacing_paths import (
    MOST_ALLOWANCE_BYTES,
    MOST_BUFFER_BYTES,
    MOST_FLOWS,
    MOST_RATE_BPS,
    Address,
)
from weir_base.addresses import is_loopback

MOST_ASKED = 64
"""The destinations in one request, as the dashboard limits them."""
TIMEOUT_S = 5.0
MOST_ANSWER_BYTES = 1 << 20
MOST_AGE_S = 1e6
_PATH = "/api/v1/bottlenecks?to="
_LIMITS: dict[str, tuple[int, int]] = {
    "n_i": (0, MOST_FLOWS),
    "capacity_bps": (8, MOST_RATE_BPS),
    "buffer_bytes": (1, MOST_BUFFER_BYTES),
    "allowance_bytes": (0, MOST_ALLOWANCE_BYTES),
}
_REMEDIES = {
    401: "give a token: weir accounts add-token NAME, and --token-file",
    403: "the token may not read",
    404: "give the address of the dashboard (weir web), of this version or later",
}


class ControllerError(TransportError):
    """The controller cannot be asked, or its answer cannot be used; the message states why, and a remedy."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """A bottleneck at a time. ``n_i``: flows through it. ``age_s``: the time since its switch counted.

    ``allowance_bytes``: what its switch divides into the windows of ACKs; 0: it does not.
    """

    n_i: int
    capacity_bps: int
    buffer_bytes: int
    allowance_bytes: int
    age_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The usable part of an answer. ``refused``: why the others are not usable, a sentence each."""

    found: dict[Address, Bottleneck]
    refused: tuple[str, ...]


def checked(body: object, asked: Collection[Address]) -> Answer:
    """Check a decoded answer. Raises ControllerError if it is not a list."""
    if not isinstance(body, list):
        raise ControllerError("the answer is not a list: is this the dashboard of Weir (weir web)?")
    found: dict[Address, Bottleneck] = {}
    refused = []
    for item in body:
        try:
            address = _asked_address(item, asked)
            found[address] = _bottleneck(item)
        except ValueError as error:
            refused.append(str(error))
    return Answer(found, tuple(refused))


def _asked_address(item: object, asked: Collection[Address]) -> Address:
    if not isinstance(item, dict) or not isinstance(item.get("to"), str):
        raise ValueError("an item without a destination")
    address = ipaddress.ip_address(item["to"])
    if address not in asked:
        raise ValueError(f"{address}: nobody asked for it")
    return address


def _bottleneck(item: dict[str, Any]) -> Bottleneck:
    values = {name: _whole_number(item, name, *limits) for name, limits in _LIMITS.items()}
    age_s = item.get("age_s")
    if not isinstance(age_s, int | float) or isinstance(age_s, bool) or not 0 <= age_s <= MOST_AGE_S:
        raise ValueError(f"{item['to']}: age_s is {age_s!r:.40}, not 0 to {MOST_AGE_S:g}")
    return Bottleneck(**values, age_s=float(age_s))


def _whole_number(item: dict[str, Any], name: str, least: int, most: int) -> int:
    value = item.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{item['to']}: {name} is {value!r:.40}, not {least} to {most}")
    return value


class Controller:
    """The dashboard at an address. It keeps one connection open.

    ``url``: https://HOST[:PORT]; http only for a loopback address, because anybody on the way could forge n
    and read the token. ``token``: of `weir accounts add-token`; empty: none. ``ca_file``: certificates of the
    authorities that may vouch for the server; None: the system's. Raises ControllerError.
    """

    def __init__(self, url: str, token: str = "", ca_file: Path | None = None) -> None:
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise ControllerError(f"{url!r} is not a URL: {error}") from error
        if parts.scheme not in ("http", "https") or not self._host or parts.query or parts.username:
            raise ControllerError(f"{url!r}: give the URL of the dashboard, such as https://weir.example")
        if parts.scheme == "http" and not is_loopback(self._host):
            raise ControllerError(f"{url!r}: give https, because http would show the token on the way")
        if not token.isascii() or not token.isprintable():
            raise ControllerError("the token has characters that no token has: give the file that holds it")
        self._path = parts.path.rstrip("/") + _PATH
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._tls = _tls(ca_file) if parts.scheme == "https" else None
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, destinations: Sequence[Address]) -> Answer:
        """What the controller knows of the bottlenecks towards these. Raises ControllerError."""
        found: dict[Address, Bottleneck] = {}
        refused: tuple[str, ...] = ()
        for at in range(0, len(destinations), MOST_ASKED):
            some = destinations[at : at + MOST_ASKED]
            answer = checked(self._get(",".join(map(str, some))), set(some))
            found |= answer.found
            refused += answer.refused
        return Answer(found, refused)

    def close(self) -> None:
        """Close the connection. The next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _get(self, destinations: str) -> object:
        if self._connection is None:
            self._connection = self._new_connection()
        try:
            self._connection.request(
                "GET", self._path + quote(destinations, safe=",:"), headers=self._headers
            )
            response = self._connection.getresponse()
            body = response.read(MOST_ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ControllerError(f"cannot ask {self._host}: {_reason(error)}") from error
        if response.status != http.HTTPStatus.OK or len(body) > MOST_ANSWER_BYTES:
            self.close()
            remedy = _REMEDIES.get(response.status, "see the log of the dashboard")
            raise ControllerError(
                f"{self._host} answers {response.status} with {len(body)} bytes or more; {remedy}"
            )
        try:
            return json.loads(body, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise ControllerError(f"{self._host} sends what is not JSON: {error}") from error

    def _new_connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=self._tls)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise ControllerError(f"cannot read certificates from {ca_file}: {error}") from error


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
