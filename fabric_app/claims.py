"""Addresses that a port claims while they belong to another port. Pure; time in nanoseconds.

An address is a MAC or an IP address. The owner is asked at its own port. If it answers, the claim is denied.
If it does not answer in time, the claim is granted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from flowdb.flow import PortKey

PROBES = 3
"""The number of times that an owner is asked."""
MOST_OF_A_PORT = 64
"""The number of open claims of one port."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A host ``mac`` sent ``frame`` through the port ``at``.

    ``ip`` is an address that the frame claims; ``used_ip`` is an address that it only uses.
    """

    mac: str
    at: PortKey
    ip: str | None = None
    used_ip: str | None = None
    frame: bytes = b""


@dataclass(slots=True)
class _Claim:
    by: Sighting
    next_ns: int
    asked: int = 0


class Claims:
    """The claims that wait for the owner's answer, by address. ``wait_ns``: the time that it has."""

    def __init__(self, wait_ns: int) -> None:
        self._wait_ns = wait_ns
        self._open: dict[str, _Claim] = {}
        self._of_port: Counter[PortKey] = Counter()
        self._denied_ns: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, address: str | None) -> bool:
        return address in self._open

    def open(self, address: str, by: Sighting, now_ns: int) -> bool:
        """A port claims an address. False: it is refused without asking the owner.

        That is so if the owner has answered within the last ``wait_ns``, if another port claims the address,
        or if the port has too many claims.
        """
        if (known := self._open.get(address)) is not None:
            return known.by.at == by.at
        denied_ns = self._denied_ns.get(address)
        if denied_ns is not None and now_ns < denied_ns + self._wait_ns:
            return False
        if self._of_port[by.at] >= MOST_OF_A_PORT:
            return False
        self._open[address] = _Claim(by, now_ns)
        self._of_port[by.at] += 1
        return True

    def deny(self, address: str, now_ns: int) -> Sighting | None:
        """The owner of an address has answered, or is gone. Returns the claim, if there was one."""
        claim = self._close(address)
        if claim is not None:
            self._denied_ns[address] = now_ns
        return claim

    def due(self, now_ns: int) -> tuple[list[tuple[str, int]], list[tuple[str, Sighting]]]:
        """The addresses whose owner is to be asked now, how often it was, and the claims that are granted."""
        asked, granted = [], []
        for address, claim in list(self._open.items()):
            if claim.next_ns > now_ns:
                continue
            if claim.asked == PROBES:
                self._close(address)
                granted.append((address, claim.by))
            else:
                asked.append((address, claim.asked))
                claim.asked += 1
                claim.next_ns = now_ns + self._wait_ns // PROBES
        self._denied_ns = {a: at_ns for a, at_ns in self._denied_ns.items() if now_ns < at_ns + self._wait_ns}
        return asked, granted

    def _close(self, address: str) -> Sighting | None:
        claim = self._open.pop(address, None)
        if claim is None:
            return None
        self._of_port[claim.by.at] -= 1
        if not self._of_port[claim.by.at]:
            del self._of_port[claim.by.at]
        return claim.by
