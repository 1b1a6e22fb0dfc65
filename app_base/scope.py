"""Where a controller acts. Elsewhere it observes: it counts, decides and records, and changes no packet.

``settings.ScopeSettings`` are the settings of it, which both controllers have. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from app_base.flow_rules import FlowRule, Network
from flowdb.flow import FiveTuple, PortKey


def port_key(text: str) -> PortKey:
    """A port from ``DPID:PORT``, as logs show it. Raises ValueError."""
    dpid, _, port_no = text.partition(":")
    try:
        port = PortKey(int(dpid, 16), int(port_no))
    except ValueError as error:
        raise ValueError(f"{text!r} is no port: write DPID:PORT, as in 0000000000000001:3") from error
    if not 0 <= port.dpid < 1 << 64 or not 0 < port.port_no < 1 << 32:
        raise ValueError(f"{text!r} is no port: the datapath id or the number of the port is too large")
    return port


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a controller acts.

    ``acts`` False: nowhere. ``switches`` and ``ports``: only there; both empty: everywhere. ``networks``:
    only on flows of which an end is in one of them; empty: on all. ``spared``: never on flows that one of
    these rules matches, in either direction.
    """

    acts: bool = True
    switches: frozenset[int] = frozenset()
    ports: frozenset[PortKey] = frozenset()
    networks: tuple[Network, ...] = ()
    spared: tuple[FlowRule, ...] = ()

    @property
    def has_places(self) -> bool:
        """Whether only some switches or ports are in the scope."""
        return bool(self.switches or self.ports)

    def acts_at_switch(self, dpid: int) -> bool:
        """Whether all ports of a switch are in the scope, later ones included."""
        return self.acts and (not self.has_places or dpid in self.switches)

    def acts_at(self, port: PortKey) -> bool:
        """Whether a port is in the scope."""
        return self.acts_at_switch(port.dpid) or (self.acts and port in self.ports)

    def acts_on(self, port: PortKey, key: FiveTuple) -> bool:
        """Whether a flow is acted on for the sake of a congested port."""
        if not self.acts_at(port) or any(rule.matches_either(key) for rule in self.spared):
            return False
        ends = ip_address(key.src), ip_address(key.dst)
        return not self.networks or any(end in network for network in self.networks for end in ends)
