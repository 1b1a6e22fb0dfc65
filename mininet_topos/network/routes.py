"""What a host's route sets for its connections: RTO, initial window, congestion control, delayed ACKs.

These are attributes of the route, which every kernel has. They concern the connections that the host opens or
accepts from then on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMES = ("rto_min", "initcwnd", "congctl", "quickack")


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """The settings of a route; 0 or empty: the kernel's.

    ``min_rto_ms``: the least retransmission timeout (the kernel's: 200 ms). net.ipv4.tcp_rto_min_us, which
    does the same, needs Linux 6.11.
    ``initial_window``: the congestion window of a new connection, in segments (the kernel's: 10).
    ``congestion_control``: of the connections whose program sets none. For
    net.ipv4.tcp_congestion_control, a network namespace may only use names in the machine's
    net.ipv4.tcp_allowed_congestion_control.
    ``quick_ack``: the host acknowledges each segment at once.
    """

    min_rto_ms: int = 0
    initial_window: int = 0
    congestion_control: str = ""
    quick_ack: bool = False

    @property
    def attributes(self) -> str:
        """The attributes of the route for `ip route`; empty if all are the kernel's."""
        values = {
            "rto_min": f"{self.min_rto_ms}ms" if self.min_rto_ms else "",
            "initcwnd": str(self.initial_window or ""),
            "congctl": self.congestion_control,
            "quickack": "1" if self.quick_ack else "",
        }
        return " ".join(f"{name} {value}" for name, value in values.items() if value)


def without_attributes(route: str) -> str:
    """Return a route as `ip route show` prints it, without the attributes that RouteSettings has."""
    return re.split(rf" (?:{'|'.join(_NAMES)}) ", route.strip())[0].strip()
