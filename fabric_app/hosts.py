"""The hosts of the network and their ports, learned from the frames that they send. Pure."""

from __future__ import annotations

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
    """The hosts of the network, at most ``max_hosts``; further ones are counted in ``refused``."""

    def __init__(self, max_hosts: int = 16_384) -> None:
        self.refused = 0
        self._max_hosts = max_hosts
        self._by_mac: dict[str, Host] = {}
        self._ips: dict[str, list[str]] = {}
        self._mac_by_ip: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._by_mac)

    def __iter__(self) -> Iterator[Host]:
        return iter(self._by_mac.values())

    def learn(self, mac: str, port: PortKey, ip: str | None = None) -> Host | None:
        """Note that ``mac`` (with ``ip``) sent through ``port``. Returns the host if something changed."""
        if not is_unicast(mac):
            return None
        known = self._by_mac.get(mac)
        if known is None and len(self._by_mac) >= self._max_hosts:
            self.refused += 1
            return None
        host = replace(known or Host(mac, port), port=port)
        if ip is not None and self._mac_by_ip.get(ip) != mac:
            host = replace(host, ipv6=ip) if ":" in ip else replace(host, ipv4=ip)
            self._own(mac, ip)
        elif host == known:
            return None
        self._by_mac[mac] = host
        return host

    def get(self, mac: str) -> Host | None:
        return self._by_mac.get(mac)

    def with_ip(self, ip: str) -> Host | None:
        """The host that has an address."""
        mac = self._mac_by_ip.get(ip)
        return self._by_mac.get(mac) if mac else None

    def forget_port(self, port: PortKey) -> list[Host]:
        """Forget the hosts behind a port that was removed or is a link. Returns them."""
        gone = [host for host in self._by_mac.values() if host.port == port]
        for host in gone:
            for ip in self._ips.pop(host.mac, ()):
                del self._mac_by_ip[ip]
            del self._by_mac[host.mac]
        return gone

    def _own(self, mac: str, ip: str) -> None:
        """An address belongs to the host that used it last."""
        before = self._mac_by_ip.get(ip)
        if before is not None:
            self._ips[before].remove(ip)
        self._mac_by_ip[ip] = mac
        ips = self._ips.setdefault(mac, [])
        ips.append(ip)
        if len(ips) > MOST_ADDRESSES:
            del self._mac_by_ip[ips.pop(0)]
