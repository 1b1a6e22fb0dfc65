"""The transports that the papers compare with: what each needs of the hosts and of the switch.

A congestion control is set for each socket (TCP_CONGESTION), so several share one link. ECN without DCTCP
has no socket option in Linux: it is `net.ipv4.tcp_ecn` of the host's network namespace, so hosts that speak
ECN-TCP and hosts that do not are different hosts.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Container, Sequence
from dataclasses import dataclass

from mininet_topos.errors import LabError, Unable
from mininet_topos.node import run
from mininet_topos.process import command
from mininet_topos.state import LabState

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


@dataclass(frozen=True, slots=True)
class Transport:
    """What a host's sockets take: a name for TCP_CONGESTION, and their namespace's net.ipv4.tcp_ecn."""

    name: str
    congestion_control: str
    tcp_ecn: int


def provide(names: Sequence[str], state: LabState) -> tuple[Transport, ...]:
    """The transports of these baselines, or of plain congestion controls.

    What Weir brings itself is loaded until `state` is released.

    Raises Unable where the kernel has no such congestion control and takes none.
    """
    found = []
    for name in names:
        wanted = BASELINES.get(name) or Baseline(name, (name,))
        usable = [cc for cc in wanted.congestion_controls if settable(cc)]
        if not usable and wanted.congestion_controls[-1].startswith("weir_"):
            usable = [_load(wanted.congestion_controls[-1], state)]
        found.append(Transport(name, wanted.choose(usable), wanted.tcp_ecn))
    return tuple(found)


def settable(congestion_control: str) -> bool:
    """Whether a socket can have a congestion control; root's attempt loads a kernel module."""
    with socket.socket() as tcp:
        try:
            tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
        except OSError:
            return False
    return True


def _load(congestion_control: str, state: LabState) -> str:
    try:
        answer = run(command("weir"), "transports", "load", congestion_control, "--json")
    except LabError as error:
        raise Unable(f"{congestion_control} cannot be loaded: {error}") from error
    if json.loads(answer)["state"] == "loaded":
        state.note_transport(congestion_control)
    return congestion_control
