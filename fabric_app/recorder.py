"""Switches, ports, links and hosts as rows of the flow database."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from app_base.messages import port_name
from fabric_app.graph import Link
from fabric_app.hosts import Host
from flowdb.db import FlowDb
from flowdb.flow import PortKey
from flowdb.models import HostRow, LinkRow, PortRow, SwitchRow


class Recorder:
    """Queues rows to be written."""

    def __init__(self, flowdb: FlowDb) -> None:
        self._flowdb = flowdb
        self._found_ns: dict[Link, int] = {}
        self._ports: dict[PortKey, dict[str, Any]] = {}

    def switch(self, dpid: int, connected: bool) -> None:
        """A switch connected or disconnected."""
        self._flowdb.merge(SwitchRow, dpid=dpid, connected=connected, last_seen_ns=self._now_ns())

    def port(self, dpid: int, port: Any, up: bool) -> None:
        """A port as the switch describes it."""
        at = PortKey(dpid, port.port_no)
        self._ports[at] = {"name": port_name(port), "hw_addr": port.hw_addr}
        self._put_port(at, up)

    def port_gone(self, dpid: int, port: Any) -> None:
        """A port was removed. ``port``: its last description."""
        self.port(dpid, port, up=False)
        del self._ports[PortKey(dpid, port.port_no)]

    def all_ports(self, dpid: int, port_nos: Container[int]) -> None:
        """A switch has no other ports than these: ports of an earlier session were removed."""
        gone = [at for at in self._ports if at.dpid == dpid and at.port_no not in port_nos]
        for at in gone:
            self._put_port(at, up=False)
            del self._ports[at]

    def host(self, host: Host) -> None:
        """A host is new, has moved, has another address, or has lost one to another host."""
        values = {"ipv4": host.ipv4, "ipv6": host.ipv6, "last_seen_ns": self._now_ns()}
        port = host.port
        self._flowdb.merge(HostRow, mac=host.mac, dpid=port.dpid, port_no=port.port_no, **values)

    def host_lost(self, host: Host) -> None:
        """A host was forgotten."""
        self._flowdb.delete(HostRow, mac=host.mac)

    def link(self, link: Link, up: bool) -> None:
        """A link was found or lost: a row for each direction."""
        now_ns = self._now_ns()
        found_ns = self._found_ns.setdefault(link, now_ns)
        for src, dst in (link.ends, link.ends[::-1]):
            self._flowdb.merge(
                LinkRow,
                src_dpid=src.dpid,
                src_port_no=src.port_no,
                dst_dpid=dst.dpid,
                dst_port_no=dst.port_no,
                up=up,
                found_ns=found_ns,
                last_seen_ns=now_ns,
            )

    def _put_port(self, at: PortKey, up: bool) -> None:
        values = {**self._ports[at], "up": up, "last_seen_ns": self._now_ns()}
        self._flowdb.merge(PortRow, dpid=at.dpid, port_no=at.port_no, **values)

    def _now_ns(self) -> int:
        return self._flowdb.clock.now_ns()
