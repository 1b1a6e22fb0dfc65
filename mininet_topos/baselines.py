"""The transports that the papers compare with: what each needs of the hosts and of the switch.

A congestion control is set for each socket (TCP_CONGESTION), so several share one link. ECN without DCTCP
has no socket option in Linux: it is `net.ipv4.tcp_ecn` of the host's network namespace, so hosts that speak
ECN-TCP and hosts that do not are different hosts.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from mininet_topos.errors import Unable

ECN_OFF = 0
ECN_IF_ASKED = 2
"""Linux's default: a listener agrees to ECN, a connecting socket does not ask for it."""
ECN_ALWAYS = 1


@dataclass(frozen=True, slots=True)
class Baseline:
    """One transport.

    ``congestion_controls``: names for TCP_CONGESTION, the best first; any of them does. ``tcp_ecn``:
    net.ipv4.tcp_ecn of the sockets' namespaces, at both ends. ``marked``: the switch has to mark.
    """

    name: str
    congestion_controls: tuple[str, ...]
    tcp_ecn: int = ECN_OFF
    marked: bool = False

    def choose(self, available: Container[str]) -> str:
        """The name for TCP_CONGESTION where the kernel has `available`. Raises Unable."""
        for name in self.congestion_controls:
            if name in available:
                return name
        if self.congestion_controls[-1].startswith("weir_"):
            remedy = f"weir transports load {self.congestion_controls[-1]}"
        else:
            remedy = f"modprobe tcp_{self.congestion_controls[0]}, or use another kernel"
        wanted = " or ".join(self.congestion_controls)
        raise Unable(f"{self.name} needs the congestion control {wanted}: {remedy}")


BASELINES = {
    baseline.name: baseline
    for baseline in (
        Baseline("reno", ("reno",)),
        Baseline("cubic", ("cubic",)),
        Baseline("bbr", ("bbr",)),
        Baseline("ecn-tcp", ("reno",), tcp_ecn=ECN_ALWAYS, marked=True),
        # DCTCP asks for ECN by itself; a listener that is no DCTCP may agree.
        Baseline("dctcp", ("dctcp", "weir_dctcp"), tcp_ecn=ECN_IF_ASKED, marked=True),
    )
}
