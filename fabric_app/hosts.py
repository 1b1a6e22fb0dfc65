"""The hosts of the network and their ports, learned from the frames that they send. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fabric_app.frames import is_unicast
from flowdb.flow import PortKey

MOST_ADDRESSES = 16
"""The number of addresses remembered for one host; a new one replaces the oldest."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host behind a port, identified by its MAC address, with its newest IPv4 and IPv6 address."""

    mac: str
    port: PortKey
    ipv4: str | None = None
    ipv6: str | None = None


class Hosts:
    """The hosts of the network, at most ``max_hosts``."""

    def __init__(self, max_hosts: int = 16_384) -> None:
        self._max_hosts = max_hosts
        self._by_mac: dict[str, Host] = {}
        self._ips: dict[str, list[str]] = {}
        self._mac_by_ip: dict[str, str] = {}
        self._at_port: dict[PortKey, set[str]] = {}
        self._at_switch: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._by_mac)

    def __iter__(self) -> Iterator[Host]:
        return iter(self._by_mac.values())

    @property
    def full(self) -> bool:
        """Whether the table has its largest size."""
        return len(self._by_mac) >= self._max_hosts

    @property
    def switches(self) -> set[int]:
        """The switches with hosts."""
        return set(self._at_switch)

    def count_at(self, port: PortKey) -> int:
        """The number of hosts behind a port."""
        return len(self._at_port.get(port, ()))

    def count_at_switch(self, dpid: int) -> int:
        """The number of hosts behind the ports of a switch."""
        return self._at_switch[dpid]

    def learn(self, mac: str, port: PortKey, ip: str | None = None) -> Host | None:
        """Note that ``mac`` (with ``ip``) sent through ``port``. Returns the host if something changed."""
        known = self._by_mac.get(mac)
        if not is_unicast(mac) or (known is None and self.full):
            return None
        host = replace(known or Host(mac, port), port=port)
        if ip is not None and self._mac_by_ip.get(ip) != mac:
            host = replace(host, ipv6=ip) if ":" in ip else replace(host, ipv4=ip)
            self._own(mac, ip)
        elif host == known:
            return None
        if known is not None:
            self._leave(known)
        self._by_mac[mac] = host
        self._at_port.setdefault(port, set()).add(mac)
        self._at_switch[port.dpid] += 1
        return host

    def get(self, mac: str) -> Host | None:
        return self._by_mac.get(mac)

    def with_ip(self, ip: str) -> Host | None:
        """The host that has an address."""
        mac = self._mac_by_ip.get(ip)
        return self._by_mac.get(mac) if mac else None

    def forget(self, mac: str) -> Host | None:
        """Forget a host. Returns it if it was known."""
        host = self._by_mac.pop(mac, None)
        if host is not None:
            for ip in self._ips.pop(mac, ()):
                del self._mac_by_ip[ip]
            self._leave(host)
        return host

    def forget_port(self, port: PortKey) -> list[Host]:
        """Forget the hosts behind a port that was removed or is a link. Returns them."""
        return [host for mac in list(self._at_port.get(port, ())) if (host := self.forget(mac))]

    def _leave(self, host: Host) -> None:
        macs = self._at_port[host.port]
        macs.discard(host.mac)
        if not macs:
            del self._at_port[host.port]
        self._at_switch[host.port.dpid] -= 1
        if not self._at_switch[host.port.dpid]:
            del self._at_switch[host.port.dpid]

    def _own(self, mac: str, ip: str) -> None:
        """An address belongs to the host that used it last."""
        before = self._mac_by_ip.get(ip)
        if before is not None:
            self._disown(before, ip)
        self._mac_by_ip[ip] = mac
        ips = self._ips.setdefault(mac, [])
        ips.append(ip)
        if len(ips) > MOST_ADDRESSES:
            del self._mac_by_ip[ips.pop(0)]

    def _disown(self, mac: str, ip: str) -> None:
        """A host has lost an address to another one."""
        ips, host = self._ips[mac], self._by_mac[mac]
        ips.remove(ip)
        if ip in (host.ipv4, host.ipv6):
            newest = next((other for other in reversed(ips) if (":" in other) == (":" in ip)), None)
            self._by_mac[mac] = replace(host, ipv6=newest) if ":" in ip else replace(host, ipv4=newest)
