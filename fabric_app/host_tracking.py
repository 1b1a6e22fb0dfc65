"""Which hosts a port may claim, and which hosts are still there. Pure; time in nanoseconds.

- A port has a limited number of hosts, and of new hosts in a second. The ports of ``uplinks`` have not.
- A host that is silent is probed and, without an answer, forgotten (``presence.py``).
- An address does not move to another port while it answers at its own (``claims.py``). It moves at once if
  its port is down or its switch is not connected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from fabric_app import presence
from fabric_app.claims import Claims, Sighting
from fabric_app.core_types import Lost, Send
from fabric_app.frames import PROBE_MAC, arp_probe, is_unicast, neighbour_probe
from fabric_app.hosts import Host, Hosts
from fabric_app.presence import Presence
from fabric_app.rates import Rates
from fabric_app.refusals import Reason, Refusals, Refused
from flowdb.flow import NS_PER_S, PortKey

INHERITED_NS = 3600 * NS_PER_S
"""The time after which a host that an earlier controller knew is probed, if it has not been heard."""
PROBES_PER_TICK = 100


@dataclass(frozen=True, slots=True)
class HostLimits:
    """The settings of ``config.FabricSettings`` about hosts."""

    max_hosts: int = 16_384
    port_hosts: int = 256
    port_new_hosts_per_s: int = 32
    host_idle_ns: int = 300 * NS_PER_S
    host_move_ns: int = NS_PER_S
    uplinks: frozenset[PortKey] = frozenset()


@dataclass(frozen=True, slots=True)
class Placed:
    """A host is new, has moved or has another address. ``before``: the host as it was known."""

    host: Host
    before: Host | None


Event = Placed | Lost | Send | Refused


@dataclass(slots=True)
class Outcome:
    """What follows. ``served``: the frame may be answered or passed on, as its addresses are its sender's."""

    events: list[Event] = field(default_factory=list)
    served: bool = True


class HostTracking:
    """The hosts. ``is_up``: whether a port is up and its switch connected; ``is_connected``: of a switch."""

    def __init__(
        self, limits: HostLimits, is_up: Callable[[PortKey], bool], is_connected: Callable[[int], bool]
    ) -> None:
        self.hosts = Hosts(limits.max_hosts)
        self.refusals = Refusals()
        self._limits = limits
        self._is_up = is_up
        self._is_connected = is_connected
        self._new = Rates(limits.port_new_hosts_per_s)
        self._presence = Presence(limits.host_idle_ns)
        self._claims = Claims(limits.host_move_ns)
        self._used_ips: dict[str, str] = {}
        self._unheard: set[str] = set()

    def sighted(self, seen: Sighting, now_ns: int) -> Outcome:
        """A host sent a frame through an edge port."""
        if not is_unicast(seen.mac) or seen.mac == PROBE_MAC:
            return Outcome(served=False)
        known = self.hosts.get(seen.mac)
        if known is not None and known.port != seen.at and self._is_up(known.port):
            return Outcome(self._claim(seen.mac, known, seen, now_ns), self.owns(seen))
        if known is None or known.port != seen.at:
            reason = self._no_room(seen.at, now_ns, is_new=known is None)
            if reason is not None:
                return Outcome([self.refusals.note(seen.at, reason, seen.mac)], served=False)
        return self._place(seen, now_ns)

    def leased(self, mac: str, ip: str, now_ns: int) -> list[Event]:
        """A trusted DHCP server gave a host an address."""
        host = self.hosts.get(mac)
        return self._give(Sighting(mac, host.port, ip), now_ns) if host else []

    def inherit(self, mac: str, port: PortKey, now_ns: int) -> list[Event]:
        """An earlier controller knew a host at a port."""
        if self.hosts.get(mac) is not None:
            return []
        if self.hosts.full or self._is_full(port):
            return [self.refusals.note(port, Reason.HOSTS, mac)]
        host = self.hosts.learn(mac, port)
        if host is None:
            return []
        self._presence.begin(mac, now_ns, INHERITED_NS)
        self._unheard.add(mac)
        return [Placed(host, None)]

    def is_unheard(self, mac: str) -> bool:
        """Whether only an earlier controller heard a host: it has no address at which it can be asked."""
        return mac in self._unheard

    def expects(self, seen: Sighting) -> bool:
        """Whether a frame is the awaited answer of a host: no limit holds it back."""
        host = self.hosts.get(seen.mac)
        if host is None or host.port != seen.at:
            return False
        return self._presence.expects(seen.mac) or seen.mac in self._claims or seen.ip in self._claims

    def owns(self, seen: Sighting) -> bool:
        """Whether the IP address that a frame claims belongs to its sender or to nobody."""
        owner = self.hosts.with_ip(seen.ip) if seen.ip else None
        return owner is None or owner.mac == seen.mac

    @property
    def due_ns(self) -> int:
        """The time at which ``tick`` next has something to do; 0: soon, because a claim is open."""
        return 0 if len(self._claims) else self._presence.due_ns

    def tick(self, now_ns: int) -> tuple[list[Event], list[Sighting]]:
        """Ask hosts, forget lost hosts, and grant claims. Returns the granted claims of IP addresses."""
        events: list[Event] = []
        asked, granted = self._claims.due(now_ns)
        for address, number in asked:
            events += self._ask_owner(address, number)
        for address, by in granted:
            events += self._grant(address, by, now_ns)
        for mac, unanswered in islice(self._presence.due(now_ns), PROBES_PER_TICK):
            events += self._check(mac, unanswered, now_ns)
        return events, [by for address, by in granted if address != by.mac]

    def forget_port(self, port: PortKey) -> list[Host]:
        """A port was removed or is a link: its hosts are forgotten."""
        gone = self.hosts.forget_port(port)
        for host in gone:
            self._forgotten(host.mac)
        self._new.forget(port)
        return gone

    def _is_full(self, port: PortKey) -> bool:
        return port not in self._limits.uplinks and self.hosts.count_at(port) >= self._limits.port_hosts

    def _no_room(self, port: PortKey, now_ns: int, is_new: bool) -> Reason | None:
        """Why a port gets no further host, if it gets none."""
        if self._is_full(port):
            return Reason.HOSTS
        if is_new and self.hosts.full:
            return Reason.TABLE_FULL
        if port not in self._limits.uplinks and not self._new.take(port, now_ns):
            return Reason.NEW_HOSTS
        return None

    def _place(self, seen: Sighting, now_ns: int) -> Outcome:
        """A host is at a port that it may have."""
        is_new = self.hosts.get(seen.mac) is None
        events = self._give(seen, now_ns)
        if is_new:
            self._presence.begin(seen.mac, now_ns)
        else:
            self._presence.heard(seen.mac, now_ns)
            events += self._deny(seen.mac, seen, now_ns)
        if seen.used_ip is not None:
            self._used_ips[seen.mac] = seen.used_ip
        return Outcome(events, self.owns(seen))

    def _give(self, seen: Sighting, now_ns: int) -> list[Event]:
        """A host has its port and the IP address that it claims, unless that is at another port."""
        before, owner = self.hosts.get(seen.mac), self.hosts.with_ip(seen.ip) if seen.ip else None
        contested = owner and owner.mac != seen.mac and owner.port != seen.at and self._is_up(owner.port)
        host = self.hosts.learn(seen.mac, seen.at, None if contested else seen.ip)
        if host is None and self.is_unheard(seen.mac):
            host = before
        self._unheard.discard(seen.mac)
        events: list[Event] = [Placed(host, before)] if host else []
        events += self._former_owner(owner, seen.mac)
        if seen.ip and owner and contested:
            events += self._claim(seen.ip, owner, seen, now_ns)
        elif seen.ip:
            events += self._deny(seen.ip, seen, now_ns)
        return events

    def _claim(self, address: str, owner: Host, seen: Sighting, now_ns: int) -> list[Event]:
        """An address of a host at another port is claimed."""
        if self._claims.open(address, seen, now_ns):
            return []
        detail = f"{seen.mac} claims {address}, which is at port {owner.port}"
        return [self.refusals.note(seen.at, Reason.ADDRESS, detail)]

    def _deny(self, address: str, owner: Sighting, now_ns: int) -> list[Event]:
        """The owner of an address was heard at its port."""
        claim = self._claims.deny(address, now_ns)
        if claim is None or claim.at == owner.at:
            return []
        detail = f"{claim.mac} claims {address}, which answers at port {owner.at}"
        return [self.refusals.note(claim.at, Reason.ADDRESS, detail)]

    def _ask_owner(self, address: str, number: int) -> Iterator[Event]:
        if host := self.hosts.get(address):
            yield from self._probe(host, number)
        elif host := self.hosts.with_ip(address):
            yield _question(host, address)

    def _grant(self, address: str, by: Sighting, now_ns: int) -> list[Event]:
        """The owner of an address does not answer: the address moves."""
        known = self.hosts.get(by.mac)
        if address == by.mac:
            if self._is_full(by.at):
                return [self.refusals.note(by.at, Reason.HOSTS, by.mac)]
            return self._place(by, now_ns).events
        if known is None or known.port != by.at:
            return []
        owner = self.hosts.with_ip(address)
        host = self.hosts.learn(by.mac, by.at, address)
        return [Placed(host, known), *self._former_owner(owner, by.mac)] if host else []

    def _former_owner(self, owner: Host | None, mac: str) -> Iterator[Event]:
        """The host that had an address, if the host ``mac`` has it now: it has another address, or none."""
        if owner is not None and owner.mac != mac:
            host = self.hosts.get(owner.mac)
            if host is not None and host != owner:
                yield Placed(host, owner)

    def _check(self, mac: str, unanswered: int, now_ns: int) -> Iterator[Event]:
        """A host is silent: probe it, or forget it. While its switch is not connected, it stays."""
        host = self.hosts.get(mac)
        if host is None:
            self._presence.end(mac)
        elif not self._is_connected(host.port.dpid):
            self._presence.heard(mac, now_ns)
        elif unanswered < presence.PROBES:
            yield from self._probe(host, unanswered)
        else:
            self.hosts.forget(mac)
            self._forgotten(mac)
            yield Lost(host)

    def _probe(self, host: Host, number: int) -> Iterator[Event]:
        """Ask a host whether it is there, by one of its addresses. A host without any cannot be asked."""
        addresses = [address for address in (host.ipv4, host.ipv6) if address is not None]
        addresses = addresses or [used for used in (self._used_ips.get(host.mac),) if used is not None]
        if addresses:
            yield _question(host, addresses[number % len(addresses)])

    def _forgotten(self, mac: str) -> None:
        self._presence.end(mac)
        self._used_ips.pop(mac, None)
        self._unheard.discard(mac)


def _question(host: Host, ip: str) -> Send:
    ask = neighbour_probe if ":" in ip else arp_probe
    return Send(host.port.dpid, (host.port.port_no,), ask(host.mac, ip))
