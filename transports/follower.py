"""Follows what a controller knows of the bottlenecks of a host, and keeps the host's paths up to date.

One process does so for a host: `weir transports follow`. In each round it asks for the destinations to which
the host sends, and writes n, B, C and the allowance into the paths of Adaptive Pacing.

What holds if something is wrong:

- A value that is missing, impossible or about a destination that nobody asked for is not written. The path
  stays as it is, and its n is too old after `lifetime_s`. Then the host counts its own connections.
- The same holds if the controller does not answer.
- An n that is too old when it arrives is written with its age, so the kernel does not use it.
- An operator's path is never changed, and stands before the network's within its destination network: the
  network's paths there are removed.
- A path to a destination that is no longer followed is removed, so the map does not fill up.
- n = 1 gives t = 0 unless one window alone exceeds B. Then a connection sends as its base does, and not more.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from transports import pacing_paths
from transports.bottlenecks import Answer, Bottleneck, ControllerError
from transports.pacing_paths import Address, FlowsFrom, Network, PacingPath

MOST_FOLLOWED = 256
"""The destinations that a host asks for, those with open connections first."""


class Paths(Protocol):
    """The paths and the destinations of each network namespace of this machine.

    A namespace is what ``pacing_paths.this_namespace`` returns.
    """

    def destinations(self) -> Mapping[bytes, Sequence[Address]]: ...

    def paths(self) -> Mapping[bytes, Mapping[Network, PacingPath]]: ...

    def put(self, namespace: bytes, network: Network, path: PacingPath) -> None: ...

    def remove(self, namespace: bytes, network: Network) -> None: ...


class KernelPaths:
    """The paths in the kernel."""

    def destinations(self) -> Mapping[bytes, Sequence[Address]]:
        return pacing_paths.destinations_by_namespace()

    def paths(self) -> Mapping[bytes, Mapping[Network, PacingPath]]:
        return pacing_paths.paths_by_namespace()

    def put(self, namespace: bytes, network: Network, path: PacingPath) -> None:
        pacing_paths.set_path(network, path, namespace)

    def remove(self, namespace: bytes, network: Network) -> None:
        pacing_paths.remove_path(network, namespace)


@dataclass(frozen=True, slots=True)
class Round:
    """The outcome of a round. ``asked``: destinations. ``written``: paths.

    ``unknown``: destinations of which the controller said nothing. ``refused``: what it said and what cannot
    be. ``error``: why it could not be asked; empty: it answered. ``limited``: a namespace has more
    destinations than MOST_FOLLOWED, and the others are not followed.
    """

    asked: int = 0
    written: int = 0
    unknown: tuple[Address, ...] = ()
    refused: tuple[str, ...] = ()
    error: str = ""
    limited: bool = False


class Follower:
    """``ask`` asks the controller, and raises ControllerError. ``namespaces``: whose paths it keeps.

    ``always``: destinations that are followed although nothing was sent to them. ``lifetime_s``: how long n
    counts after the switch counted it. ``k``: as in PacingPath.
    """

    def __init__(
        self,
        ask: Callable[[Sequence[Address]], Answer],
        held: Paths,
        namespaces: Sequence[bytes],
        always: Sequence[Address],
        lifetime_s: float,
        k: float = 1.0,
    ) -> None:
        self._ask, self._held, self._namespaces = ask, held, namespaces
        self._always, self._lifetime_s, self._k = always, lifetime_s, k

    def round(self) -> Round:
        """Ask once, and write the usable values. Raises TransportError if the paths cannot be used."""
        paths = self._held.paths()
        every = self._free(paths)
        wanted = {namespace: addresses[:MOST_FOLLOWED] for namespace, addresses in every.items()}
        limited = wanted != every
        self._remove_all_but(wanted, paths)
        asked = list(dict.fromkeys(address for addresses in wanted.values() for address in addresses))
        if not asked:
            return Round()
        try:
            answer = self._ask(asked)
        except ControllerError as error:
            return Round(asked=len(asked), error=str(error), limited=limited)
        written = 0
        for namespace, addresses in wanted.items():
            for address in addresses:
                if (bottleneck := answer.found.get(address)) is not None:
                    self._held.put(namespace, ipaddress.ip_network(address), self._path(bottleneck))
                    written += 1
        unknown = tuple(address for address in asked if address not in answer.found)
        return Round(len(asked), written, unknown, answer.refused, limited=limited)

    def end(self) -> None:
        """Remove the network's paths. Raises TransportError."""
        self._remove_all_but({}, self._held.paths())

    def _remove_all_but(
        self, wanted: Mapping[bytes, Sequence[Address]], paths: Mapping[bytes, Mapping[Network, PacingPath]]
    ) -> None:
        """Remove the network's paths to other destinations than the wanted ones."""
        for namespace in self._namespaces:
            kept = {ipaddress.ip_network(address) for address in wanted.get(namespace, ())}
            for network, path in paths.get(namespace, {}).items():
                if path.flows_from is FlowsFrom.NETWORK and network not in kept:
                    self._held.remove(namespace, network)

    def _free(self, paths: Mapping[bytes, Mapping[Network, PacingPath]]) -> dict[bytes, list[Address]]:
        """The destinations of each namespace that no operator's path covers."""
        sent_to = self._held.destinations()
        found = {}
        for namespace in self._namespaces:
            held = paths.get(namespace, {})
            stated = [network for network, path in held.items() if path.flows_from is FlowsFrom.OPERATOR]
            every = dict.fromkeys((*self._always, *sent_to.get(namespace, ())))
            found[namespace] = [address for address in every if not _is_within(address, stated)]
        return found

    def _path(self, bottleneck: Bottleneck) -> PacingPath:
        return PacingPath(
            buffer_bytes=bottleneck.buffer_bytes,
            rate_bps=bottleneck.capacity_bps,
            k=self._k,
            flows=bottleneck.n_i,
            lifetime_s=self._lifetime_s,
            flows_from=FlowsFrom.NETWORK,
            allowance_bytes=bottleneck.allowance_bytes,
            age_s=bottleneck.age_s,
        )


def _is_within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)
