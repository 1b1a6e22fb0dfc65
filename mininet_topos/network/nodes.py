"""Mininet nodes of the lab: hosts, and bridges on the userspace datapath."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mininet.node import Host, Node, OVSSwitch

from mininet_topos.errors import LabError
from mininet_topos.machine.commands import run, vsctl
from mininet_topos.machine.cpus import mask
from mininet_topos.network.receive_buffers import buffer_bytes
from mininet_topos.network.routes import RouteSettings, without_attributes
from mininet_topos.network.shaping import OFFLOADS_OFF

HOST_SYSCTLS = {
    "net.ipv4.tcp_no_metrics_save": "1",  # no run may use metrics that an earlier run has saved
    "net.ipv6.conf.all.disable_ipv6": "1",  # no neighbour discovery in the queues
}
SHOWN_SYSCTLS = ("tcp_rmem", "tcp_wmem", "tcp_ecn", "tcp_slow_start_after_idle", "tcp_no_metrics_save")
"""The settings below net.ipv4 that a run records: each network namespace has values of its own."""


class LabHost(Host):
    """A host without offloads: the userspace datapath needs real checksums and segments.

    It receives packets on the CPUs on which its programs run.
    """

    route = RouteSettings()
    """The settings of its route; `set_route` changes them."""
    window_bytes = 0
    """The largest window that its connections advertise; 0: the kernel's. `set_window` changes it."""
    tcp_ecn: int | None = None
    """How its connections use ECN (net.ipv4.tcp_ecn), once `set_ecn` has set it."""
    _kernels_buffers: Sequence[str] = ()

    def config(self, **params: str) -> dict[str, Any]:
        """Configure the host as Mininet does, and then, with one command, as the lab needs it."""
        result: dict[str, Any] = super().config(**params)
        settings = " ".join(f"{name}={value}" for name, value in HOST_SYSCTLS.items())
        ifname = self.defaultIntf().name
        receive = f"echo {self.receive_mask()} > /sys/class/net/{ifname}/queues/rx-0/rps_cpus"
        offloads = f"ethtool -K {ifname} {OFFLOADS_OFF}"
        answer = self.cmd(f"{offloads} && {receive} && sysctl -q -w {settings} && echo all-set")
        if "all-set" not in answer:
            raise LabError(f"host {self.name} cannot be configured: {answer.strip()}")
        return result

    def receive_mask(self) -> str:
        """Return the CPUs on which the host receives packets, in the format of rps_cpus."""
        return mask(os.sched_getaffinity(0))

    def set_route(self, **changes: int | str) -> None:
        """Change settings of the host's route (network/routes.py). Raises LabError."""
        wanted = replace(self.route, **changes)  # type: ignore[arg-type]  # each field has its own type
        if wanted == self.route:
            return
        ifname = self.defaultIntf().name
        route = without_attributes(self.cmd(f"ip route show dev {ifname} scope link"))
        if answer := self.cmd(f"ip route change {route} dev {ifname} {wanted.attributes}").strip():
            raise LabError(f"host {self.name} cannot have {wanted.attributes or 'its old route'}: {answer}")
        self.route = wanted

    def sysctls(self) -> dict[str, str]:
        """Return the host's values of SHOWN_SYSCTLS. Raises LabError."""
        words = " ".join(f"net.ipv4.{name}" for name in SHOWN_SYSCTLS)
        answer = self.cmd(f"sysctl -n {words}").splitlines()
        if len(answer) != len(SHOWN_SYSCTLS):
            raise LabError(f"host {self.name}: its settings cannot be read: {' '.join(answer)}")
        return {name: " ".join(value.split()) for name, value in zip(SHOWN_SYSCTLS, answer, strict=True)}

    def set_ecn(self, tcp_ecn: int) -> None:
        """Set how new connections use ECN, a value of net.ipv4.tcp_ecn. Raises LabError."""
        if tcp_ecn == self.tcp_ecn:
            return
        if answer := self.cmd(f"sysctl -q -w net.ipv4.tcp_ecn={tcp_ecn}").strip():
            raise LabError(f"host {self.name} cannot have net.ipv4.tcp_ecn={tcp_ecn}: {answer}")
        self.tcp_ecn = tcp_ecn

    def set_window(self, window_bytes: int) -> None:
        """Set the largest window that new connections advertise; 0: the kernel's. Raises LabError.

        The buffers then have one size, which the kernel does not adapt.
        """
        if window_bytes == self.window_bytes:
            return
        if not self._kernels_buffers:
            self._kernels_buffers = self.cmd("sysctl -n net.ipv4.tcp_rmem").split()
        size = str(buffer_bytes(window_bytes))
        buffers = " ".join([size] * 3 if window_bytes else self._kernels_buffers)
        if answer := self.cmd(f'sysctl -q -w net.ipv4.tcp_rmem="{buffers}"').strip():
            raise LabError(f"host {self.name} cannot have receive buffers of {buffers}: {answer}")
        self.window_bytes = window_bytes


class UnpinnedHost(LabHost):
    """A host that receives each packet on the CPU that sent it, as a host of Mininet does."""

    def receive_mask(self) -> str:
        """Return the kernel's default, no CPU: packets are not steered."""
        return mask(())


class LabSwitch(OVSSwitch):
    """A stock Open vSwitch bridge on the userspace datapath. `control` sets its controller."""

    def __init__(self, name: str, **params: object) -> None:
        params.update(datapath="user", protocols="OpenFlow13", failMode="secure", batch=True)
        super().__init__(name, **params)

    def control(self, target: str) -> None:
        """Make `target`, for example tcp:127.0.0.1:6653, the bridge's only controller."""
        vsctl(
            *("set-controller", self.name, target),
            *("--", "set", "controller", self.name, "max_backoff=1000", "inactivity_probe=30000"),
        )

    def release(self) -> None:
        """Remove the bridge's controller and all flow entries."""
        vsctl("del-controller", self.name)
        run("ovs-ofctl", "-O", "OpenFlow13", "del-flows", self.name)

    def controlled(self) -> bool:
        """Whether the bridge is connected to its controller."""
        uuids = vsctl("--bare", "get", "bridge", self.name, "controller").strip("[]\n ")
        if not uuids:
            return False
        return all(
            vsctl("get", "controller", uuid.strip(), "is_connected").strip() == "true"
            for uuid in uuids.split(",")
        )


def inside(host: Node, *argv: str) -> tuple[str, ...]:
    """Return the command line that runs `argv` in a host's network namespace."""
    return ("mnexec", "-a", str(host.pid), *argv)
