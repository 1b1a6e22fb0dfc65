"""One network of the lab: built, given to the caller, and removed again whatever happens."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mininet.log import setLogLevel
from mininet.net import Mininet

from mininet_topos.cpus import give_to_switch, hosts_apart
from mininet_topos.errors import BadExperiment, LabError, Unable
from mininet_topos.layout import SUBNET, Layout, Port
from mininet_topos.links import OFFLOADS_OFF, check_shape, shape
from mininet_topos.netem import check_impaired, impair
from mininet_topos.node import LabHost, LabSwitch, run, vsctl
from mininet_topos.ovs_buffers import deep_receive_buffers, ensure_send_buffer, vswitchd_pid
from mininet_topos.signals import undisturbed
from mininet_topos.state import LabState

OFPP_LOCAL = 0xFFFE
MOST_IFNAME_BYTES = 15
NEEDED = {
    "ovs-vsctl": "openvswitch-switch",
    "mnexec": "mininet",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "ifconfig": "net-tools",
}


class Network:
    """A layout as it is on this machine: its hosts, its switches, its ports."""

    def __init__(self, net: Mininet, state: LabState, layout: Layout) -> None:
        self._net = net
        self.state = state
        self.layout = layout
        self.switches: list[LabSwitch] = list(net.switches)
        self.hosts: list[LabHost] = list(net.hosts)
        self.root: LabHost = net[layout.root]
        self.workers: list[LabHost] = [net[name] for name in layout.workers]
        self.senders: list[LabHost] = [net[name] for name in layout.senders]
        self.sinks: list[LabHost] = [net[name] for name in layout.sinks]
        self.bottleneck_ifname = self.ifname(layout.bottleneck)
        self.shapes = {self.ifname(port): wanted for port, wanted in layout.shapes.items()}
        self.impaired: list[LabHost] = self.hosts if layout.impairment else []

    def __getitem__(self, name: str) -> LabHost | LabSwitch:
        """The node that the topology calls so."""
        return self._net[name]

    def ifname(self, port: Port) -> str:
        """The interface of a switch's port."""
        return f"{self._net[port.switch].name}-eth{port.number}"

    def shape(self) -> None:
        """Give every link what is stated of it. Raises LabError where the kernel has something else then."""
        for ifname, wanted in self.shapes.items():
            shape(ifname, wanted)
        for host in self.impaired:
            impair(host, self.layout.impairment)

    def check_shapes(self) -> None:
        """Raises LabError where a link's rate, limit, delay or loss is not the one stated."""
        for ifname, wanted in self.shapes.items():
            check_shape(ifname, wanted)
        for host in self.impaired:
            check_impaired(host, self.layout.impairment)

    def check_ports(self) -> None:
        """Raises LabError where Open vSwitch did not take a bridge or a port (Mininet does not look)."""
        columns = ("--columns=name,ofport,error", "--format=json", "list", "Interface")
        rows = {name: (ofport, error) for name, ofport, error in json.loads(vsctl(*columns))["data"]}
        wanted = {switch.name: OFPP_LOCAL for switch in self.switches}
        wanted |= {self.ifname(port): port.number for port in self.layout.ports}
        for name, number in wanted.items():
            ofport, error = rows.get(name, (None, "it is not in its database"))
            if ofport != number:
                why = error if isinstance(error, str) else "see the log of ovs-vswitchd"
                raise LabError(f"Open vSwitch did not take {name} as port {number}: {why}")


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


def bridge_names(layout: Layout, prefix: str) -> dict[str, str]:
    """What each switch's bridge is called on this machine: `prefix` alone, or with the switch's name.

    Raises BadExperiment where an interface would have a longer name than Linux takes.
    """
    switches = layout.topo.switches()
    names = {name: prefix if len(switches) == 1 else f"{prefix}-{name}" for name in switches}
    for name in (f"{names[port.switch]}-eth{port.number}" for port in layout.ports):
        if len(name) > MOST_IFNAME_BYTES:
            raise BadExperiment(
                f"an interface would be called {name}, but Linux takes no more than {MOST_IFNAME_BYTES} "
                f"characters: ask for a smaller topology"
            )
    return names


@contextmanager
def network(layout: Layout) -> Iterator[Network]:
    """A layout's network for as long as the context lasts; nothing of it is left afterwards.

    Raises Unable, BadExperiment, LabError.
    """
    require_machine()
    ensure_send_buffer()
    setLogLevel("warning")
    state = LabState.claim()
    net: Mininet | None = None
    try:
        names = bridge_names(layout, state.prefix)
        net = Mininet(
            switch=lambda name, **params: LabSwitch(names[name], **params),
            host=LabHost,
            controller=None,
            ipBase=str(SUBNET),
            build=False,
        )
        net.topo = layout.topo
        ports = [f"{names[port.switch]}-eth{port.number}" for port in layout.ports]
        state.note_network(list(names.values()), ports)
        net.build()
        built = Network(net, state, layout)
        with deep_receive_buffers():
            net.start()
            built.check_ports()
        for ifname in state.interfaces:
            run("ethtool", "-K", ifname, *OFFLOADS_OFF.split())
        built.shape()
        yield built
    finally:
        with undisturbed():
            try:
                if net is not None:
                    net.stop()
            finally:
                state.release()


@contextmanager
def network_apart(layout: Layout) -> Iterator[Network]:
    """A layout's network whose switch has a CPU to itself (cpus.py), where there are several."""
    with hosts_apart() as switch_cpu, network(layout) as net:
        give_to_switch(switch_cpu, vswitchd_pid(), net.state)
        yield net
