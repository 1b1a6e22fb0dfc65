"""Who is where: learned from what hosts send."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fabric_app.frames import is_unicast


@dataclass(frozen=True, slots=True)
class Host:
    """A host, known by its MAC address, behind a port; its newest IPv4 and IPv6 address, if known."""

    mac: str
    port_no: int
    ipv4: str | None = None
    ipv6: str | None = None


class Hosts:
    """The hosts of one switch, at most ``max_hosts``; further ones are counted in ``refused``."""

    def __init__(self, max_hosts: int = 16_384) -> None:
        self.refused = 0
        self._max_hosts = max_hosts
        self._by_mac: dict[str, Host] = {}
        self._mac_by_ip: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._by_mac)

    def learn(self, mac: str, port_no: int, ip: str | None = None) -> Host | None:
        """Note that ``mac`` (with ``ip``) sent by ``port_no``; returns the host if that is news."""
        if not is_unicast(mac):
            return None
        known = self._by_mac.get(mac)
        if known is None and len(self._by_mac) >= self._max_hosts:
            self.refused += 1
            return None
        host = replace(known or Host(mac, port_no), port_no=port_no)
        if ip is not None:
            host = replace(host, ipv6=ip) if ":" in ip else replace(host, ipv4=ip)
        if host == known and (ip is None or self._mac_by_ip.get(ip) == mac):
            return None
        self._forget_ips(known)
        self._by_mac[mac] = host
        for own in (host.ipv4, host.ipv6):
            if own is not None and (own == ip or own not in self._mac_by_ip):
                self._mac_by_ip[own] = mac
        return host

    def with_ip(self, ip: str) -> Host | None:
        """The host that has an address."""
        mac = self._mac_by_ip.get(ip)
        return self._by_mac.get(mac) if mac else None

    def forget_port(self, port_no: int) -> list[Host]:
        """Forget the hosts behind a port that is gone; returns them."""
        gone = [host for host in self._by_mac.values() if host.port_no == port_no]
        for host in gone:
            self._forget_ips(host)
            del self._by_mac[host.mac]
        return gone

    def _forget_ips(self, host: Host | None) -> None:
        for ip in (host.ipv4, host.ipv6) if host else ():
            if ip is not None and host and self._mac_by_ip.get(ip) == host.mac:
                del self._mac_by_ip[ip]
