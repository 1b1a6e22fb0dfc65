"""Flows by the 5-tuple of their data, as several sections of the configuration name them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import TypeAlias

from flowdb.flow import FiveTuple

Network: TypeAlias = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class FlowRule:
    """Matches flows whose data goes from ``src`` and ``src_port`` to ``dst`` and ``dst_port``; None: any."""

    src: Network | None = None
    dst: Network | None = None
    src_port: int | None = None
    dst_port: int | None = None

    def matches(self, key: FiveTuple) -> bool:
        """Whether the data of the flow goes this way."""
        return (
            (self.src_port is None or self.src_port == key.src_port)
            and (self.dst_port is None or self.dst_port == key.dst_port)
            and (self.src is None or ip_address(key.src) in self.src)
            and (self.dst is None or ip_address(key.dst) in self.dst)
        )

    def matches_either(self, key: FiveTuple) -> bool:
        """Whether it matches the flow or the data of the opposite direction."""
        return self.matches(key) or self.matches(key.reverse)

    @property
    def reverse(self) -> FlowRule:
        """The rule of the opposite direction."""
        return FlowRule(self.dst, self.src, self.dst_port, self.src_port)
