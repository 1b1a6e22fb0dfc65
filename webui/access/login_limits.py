"""Limits of login attempts. An attempt is counted before its password is checked, so none passes in between.

Three limits hold within ``WINDOW_S``: of one client for one user name, of one client for all names, and of
all clients for one name. A user name is never locked. Above its limit each client has one attempt left
instead of five. A browser in which the person has logged in before has five attempts of its own, whatever
others do.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

WINDOW_S = 300.0
MOST_OF_CLIENT_FOR_NAME = 5
MOST_OF_CLIENT = 20
MOST_FOR_NAME = 50
MOST_AT_BUSY_NAME = 1
MOST_REMEMBERED = 10_000

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that is counted, with the time at which it was."""

    keys: tuple[_Key, ...]
    at_s: float


class LoginLimits:
    """The attempts of the last minutes. Each method is called with a monotonic time in seconds."""

    def __init__(self) -> None:
        self._times: OrderedDict[_Key, list[float]] = OrderedDict()
        self._lock = Lock()

    def reserve(self, name: str, client: str, browser: str | None, now_s: float) -> Attempt | None:
        """Count an attempt; None: a limit is reached, and the password may not be checked.

        ``browser``: the mark of a browser in which this person has logged in before.
        """
        with self._lock:
            limits = self._limits(name, client, browser, now_s)
            if any(len(self._recent(key, now_s)) >= most for key, most in limits.items()):
                return None
            for key in limits:
                self._times[key] = [*self._recent(key, now_s), now_s]
                self._times.move_to_end(key)
            while len(self._times) > MOST_REMEMBERED:
                self._times.popitem(last=False)
        return Attempt(tuple(limits), now_s)

    def give_back(self, attempt: Attempt) -> None:
        """Take back an attempt whose password was correct, or was not checked."""
        with self._lock:
            for key in attempt.keys:
                times = self._times.get(key, [])
                if attempt.at_s in times:
                    times.remove(attempt.at_s)
                if not times:
                    self._times.pop(key, None)

    def _limits(self, name: str, client: str, browser: str | None, now_s: float) -> dict[_Key, int]:
        """The counts that an attempt adds to, and the limit of each."""
        if browser is not None:
            return {("browser", browser): MOST_OF_CLIENT_FOR_NAME}
        pair, of_client, of_name = ("pair", f"{client} {name}"), ("client", client), ("name", name)
        if len(self._recent(of_name, now_s)) < MOST_FOR_NAME:
            return {pair: MOST_OF_CLIENT_FOR_NAME, of_client: MOST_OF_CLIENT, of_name: MOST_FOR_NAME}
        return {pair: MOST_AT_BUSY_NAME, of_client: MOST_OF_CLIENT}

    def _recent(self, key: _Key, now_s: float) -> list[float]:
        return [at_s for at_s in self._times.get(key, []) if at_s > now_s - WINDOW_S]


def client_of(address: str) -> str:
    """The client at an address. An IPv6 client has a network of 64 bits, so its addresses count as one."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))
