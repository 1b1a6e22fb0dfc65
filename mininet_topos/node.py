"""Mininet nodes of the lab: hosts whose packets OVS can forward, and the switch, plain or extended."""

from __future__ import annotations

import os
import subprocess

from mininet.node import Host, Node, OVSSwitch

from mininet_topos.cpus import mask
from mininet_topos.errors import LabError
from mininet_topos.links import OFFLOADS_OFF

HOST_SYSCTLS = {
    "net.ipv4.tcp_no_metrics_save": "1",  # a run learns nothing from the one before
    "net.ipv6.conf.all.disable_ipv6": "1",  # no neighbour discovery in the queues
}


class LabHost(Host):
    """A host with its offloads off (the userspace datapath needs real checksums and segments).

    It receives packets on the CPUs on which its programs run.
    """

    def config(self, **params: str) -> dict:
        """Configure as Mininet does, then in one command what the lab needs."""
        result = super().config(**params)
        settings = " ".join(f"{name}={value}" for name, value in HOST_SYSCTLS.items())
        ifname = self.defaultIntf().name
        receive = f"echo {mask(os.sched_getaffinity(0))} > /sys/class/net/{ifname}/queues/rx-0/rps_cpus"
        offloads = f"ethtool -K {ifname} {OFFLOADS_OFF}"
        answer = self.cmd(f"{offloads} && {receive} && sysctl -q -w {settings} && echo all-set")
        if "all-set" not in answer:
            raise LabError(f"host {self.name} cannot be configured: {answer.strip()}")
        return result


class LabSwitch(OVSSwitch):
    """A stock Open vSwitch bridge on the userspace datapath, without a controller until it is given one."""

    def __init__(self, name: str, **params: object) -> None:
        params.update(datapath="user", protocols="OpenFlow13", failMode="secure", batch=True)
        super().__init__(name, **params)

    def control(self, target: str) -> None:
        """Make `target` (e.g. tcp:127.0.0.1:6653) the bridge's one controller."""
        vsctl(
            *("set-controller", self.name, target),
            *("--", "set", "controller", self.name, "max_backoff=1000", "inactivity_probe=30000"),
        )

    def release(self) -> None:
        """Take the bridge's controller away, and with it all flow entries."""
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
    """The command line by which `argv` runs in a host's network."""
    return ("mnexec", "-a", str(host.pid), *argv)


def run(*argv: str) -> str:
    """Run a command and return what it prints. Raises LabError with what it complained of."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    except FileNotFoundError:
        raise LabError(f"{argv[0]} is missing") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"{' '.join(argv)}: no answer within 30 s") from None
    if done.returncode:
        raise LabError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def vsctl(*args: str) -> str:
    """Run ovs-vsctl."""
    return run("ovs-vsctl", "-t", "20", *args)
