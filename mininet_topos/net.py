"""One network of the lab: built, given to the caller, and removed again whatever happens."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mininet.log import setLogLevel
from mininet.net import Mininet

from mininet_topos.errors import BadExperiment, LabError, Unable
from mininet_topos.links import OFFLOADS_OFF, Bottleneck, shape
from mininet_topos.node import LabHost, LabSwitch, run, vsctl
from mininet_topos.ovs_buffers import deep_receive_buffers, ensure_send_buffer
from mininet_topos.signals import undisturbed
from mininet_topos.state import LabState
from mininet_topos.topo import Star

SUBNET = ipaddress.ip_network("10.0.0.0/22")
OFPP_LOCAL = 0xFFFE
NEEDED = {
    "ovs-vsctl": "openvswitch-switch",
    "mnexec": "mininet",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "ifconfig": "net-tools",
}


class Network:
    """A built star: its hosts, its switch, its bottleneck port."""

    def __init__(self, net: Mininet, state: LabState) -> None:
        self._net = net
        self.state = state
        self.switch: LabSwitch = net.switches[0]
        self.root: LabHost = net["root"]
        self.workers = [host for host in net.hosts if host.name.startswith("worker")]
        self.senders = [host for host in net.hosts if host.name.startswith("long")]
        self.hosts = list(net.hosts)
        self.bottleneck_ifname = f"{self.switch.name}-eth1"

    def shape(self, bottleneck: Bottleneck) -> None:
        """Set the bottleneck: the switch's port to the root."""
        shape(self.bottleneck_ifname, bottleneck)


def require_machine() -> None:
    """Raises Unable, with the remedy, where this machine cannot build a network."""
    if os.geteuid() != 0:
        raise Unable("the lab needs root: run it with sudo")
    for program, package in NEEDED.items():
        if shutil.which(program) is None:
            raise Unable(f"{program} is missing: install the package {package}, or run `make setup`")
    if not Path("/sys/kernel/btf/vmlinux").exists():
        raise Unable("this kernel has no BTF (/sys/kernel/btf/vmlinux): it needs CONFIG_DEBUG_INFO_BTF")
    try:
        run("ovs-appctl", "-t", "ovs-vswitchd", "version")
        vsctl("show")
    except LabError as error:
        raise Unable(f"Open vSwitch does not run: run `make setup` ({error})") from error


def require_hosts(workers: int, senders: int) -> None:
    """Raises BadExperiment where a star of that size has no room in the lab's addresses."""
    if workers < 1 or senders < 0:
        raise BadExperiment("a star needs at least one worker, and no negative number of senders")
    most = SUBNET.num_addresses - 2
    if 1 + workers + senders > most:
        raise BadExperiment(f"{1 + workers + senders} hosts are more than the {most} addresses of {SUBNET}")


def check_ports(state: LabState) -> None:
    """Raises LabError where Open vSwitch did not take the bridge or a port (Mininet does not look)."""
    columns = ("--columns=name,ofport,error", "--format=json", "list", "Interface")
    rows = {name: (ofport, error) for name, ofport, error in json.loads(vsctl(*columns))["data"]}
    wanted = {state.bridge: OFPP_LOCAL} | {name: number for number, name in enumerate(state.interfaces, 1)}
    for name, number in wanted.items():
        ofport, error = rows.get(name, (None, "it is not in its database"))
        if ofport != number:
            why = error if isinstance(error, str) else "see the log of ovs-vswitchd"
            raise LabError(f"Open vSwitch did not take {name} as port {number}: {why}")


@contextmanager
def network(workers: int, senders: int, bottleneck: Bottleneck) -> Iterator[Network]:
    """A star for as long as the context lasts; nothing of it is left afterwards.

    Raises Unable, BadExperiment, LabError.
    """
    require_machine()
    require_hosts(workers, senders)
    ensure_send_buffer()
    setLogLevel("warning")
    state = LabState.claim()
    net: Mininet | None = None
    try:
        net = Mininet(switch=LabSwitch, host=LabHost, controller=None, ipBase=str(SUBNET), build=False)
        net.topo = Star(workers=workers, senders=senders, switch=state.bridge)
        state.interfaces = [f"{state.bridge}-eth{port}" for port in range(1, workers + senders + 2)]
        state.bridge_made = True
        state.save()
        net.build()
        with deep_receive_buffers():
            net.start()
            check_ports(state)
        built = Network(net, state)
        for ifname in state.interfaces:
            run("ethtool", "-K", ifname, *OFFLOADS_OFF.split())
        built.shape(bottleneck)
        yield built
    finally:
        with undisturbed():
            try:
                if net is not None:
                    net.stop()
            finally:
                state.release()
