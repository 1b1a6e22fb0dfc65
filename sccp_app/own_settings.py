"""Which ports have refused their own settings, so that these are sent again. Pure.

The agent refuses settings of a single port that does not carry its programs. When it attaches the port later,
the port has the settings of all ports.
"""

from __future__ import annotations

from flowdb.flow import PortKey


class OwnSettings:
    """The newest message with own settings of each port, by its xid, and the ports that refused it."""

    def __init__(self) -> None:
        self._ports: dict[int, dict[int, PortKey]] = {}
        self._xids: dict[PortKey, int] = {}
        self._refused: set[PortKey] = set()

    def sent(self, port: PortKey, xid: int) -> None:
        """The port's own settings were sent."""
        self.port_gone(port)
        self._xids[port] = xid
        self._ports.setdefault(port.dpid, {})[xid] = port

    def refused(self, dpid: int, xid: int) -> None:
        """A switch refused a message because the port does not carry its programs."""
        if port := self._ports.get(dpid, {}).get(xid):
            self._refused.add(port)

    def take_refused(self, port: PortKey) -> bool:
        """Whether the port refused its settings. It does not count as refused any longer."""
        refused = port in self._refused
        self._refused.discard(port)
        return refused

    def port_gone(self, port: PortKey) -> None:
        """A port was removed."""
        self._refused.discard(port)
        if (xid := self._xids.pop(port, None)) is not None:
            self._ports.get(port.dpid, {}).pop(xid, None)

    def switch_gone(self, dpid: int) -> None:
        """A session with a switch ended."""
        for port in self._ports.pop(dpid, {}).values():
            self._xids.pop(port, None)
            self._refused.discard(port)
