"""A network of the lab: built on this machine, given to the caller, and always removed afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from mininet.link import Link
from mininet.log import setLogLevel
from mininet.net import Mininet

from mininet_topos.errors import BadExperiment, LabError
from mininet_topos.machine.commands import run, vsctl
from mininet_topos.machine.cpus import give_to_switch, hosts_apart
from mininet_topos.machine.lab_state import LabState
from mininet_topos.machine.requirements import require_machine
from mininet_topos.machine.signals import undisturbed
from mininet_topos.network.delay_line import DelayLine
from mininet_topos.network.emulation import ImpairedLinks, means_of
from mininet_topos.network.layout import SUBNET, Layout, Port
from mininet_topos.network.netem import Netem
from mininet_topos.network.nodes import LabHost, LabSwitch, UnpinnedHost
from mininet_topos.network.ovs_buffers import deep_receive_buffers, ensure_send_buffer, vswitchd_pid
from mininet_topos.network.shaping import OFFLOADS_OFF, check_shape, shape

OFPP_LOCAL = 0xFFFE
MOST_IFNAME_BYTES = 15


class Network:
    """A layout on this machine: its hosts, its switches and its ports.

    ``links``: the hosts' links, if they are impaired.
    """

    def __init__(self, net: Mininet, state: LabState, layout: Layout, line: DelayLine | None = None) -> None:
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
        self.links: ImpairedLinks | None = line
        if layout.impairment and line is None:
            self.links = Netem(self.hosts, layout.impairment)

    def __getitem__(self, name: str) -> LabHost | LabSwitch:
        """Return the node with this name in the topology."""
        node: LabHost | LabSwitch = self._net[name]
        return node

    def ifname(self, port: Port) -> str:
        """Return the interface of a switch's port."""
        return f"{self._net[port.switch].name}-eth{port.number}"

    def shape(self) -> None:
        """Set rate, limit, delay and loss of every link. Raises LabError if the kernel's values differ."""
        for ifname, wanted in self.shapes.items():
            shape(ifname, wanted)
        if self.links:
            self.links.apply()

    def check_shapes(self) -> None:
        """Raise LabError if a link's rate, limit, delay or loss is not the one of the layout."""
        for ifname, wanted in self.shapes.items():
            check_shape(ifname, wanted)
        if self.links:
            self.links.check()

    def check_ports(self) -> None:
        """Raise LabError if Open vSwitch has refused a bridge or a port, which Mininet does not check."""
        columns = ("--columns=name,ofport,error", "--format=json", "list", "Interface")
        rows = {name: (ofport, error) for name, ofport, error in json.loads(vsctl(*columns))["data"]}
        wanted = {switch.name: OFPP_LOCAL for switch in self.switches}
        wanted |= {self.ifname(port): port.number for port in self.layout.ports}
        for name, number in wanted.items():
            ofport, error = rows.get(name, (None, "it is not in its database"))
            if ofport != number:
                why = error if isinstance(error, str) else "see the log of ovs-vswitchd"
                raise LabError(f"Open vSwitch has refused {name} as port {number}: {why}")


def bridge_names(layout: Layout, prefix: str) -> dict[str, str]:
    """Return the name of each switch's bridge: `prefix` or, with several switches, `prefix`-switch.

    Raises BadExperiment if the name of an interface would be too long for Linux.
    """
    switches = layout.topo.switches()
    names = {name: prefix if len(switches) == 1 else f"{prefix}-{name}" for name in switches}
    for name in (f"{names[port.switch]}-eth{port.number}" for port in layout.ports):
        if len(name) > MOST_IFNAME_BYTES:
            raise BadExperiment(
                f"an interface would be called {name}, but Linux allows only {MOST_IFNAME_BYTES} "
                f"characters: ask for a smaller topology"
            )
    return names


@contextmanager
def network(layout: Layout, pinned: bool = True) -> Iterator[Network]:
    """Build the network of a layout, and remove it when the context ends.

    If it is not `pinned`, hosts receive packets on any CPU. Raises Unable, BadExperiment, LabError.
    """
    require_machine()
    ensure_send_buffer()
    delayed = means_of(layout.impairment) == DelayLine.means
    setLogLevel("warning")
    state = LabState.claim()
    net: Mininet | None = None
    line: DelayLine | None = None
    try:
        line = DelayLine(layout.impairment, state) if delayed else None
        names = bridge_names(layout, state.prefix)
        net = Mininet(
            switch=lambda name, **params: LabSwitch(names[name], **params),
            host=LabHost if pinned else UnpinnedHost,
            link=line.link_class if line else Link,
            controller=None,
            ipBase=str(SUBNET),
            build=False,
        )
        net.topo = layout.topo
        ports = [f"{names[port.switch]}-eth{port.number}" for port in layout.ports]
        state.note_network(list(names.values()), ports)
        net.build()
        if line:
            line.start()
        built = Network(net, state, layout, line)
        with deep_receive_buffers(state):
            net.start()
            built.check_ports()
        for ifname in state.interfaces:
            run("ethtool", "-K", ifname, *OFFLOADS_OFF.split())
        built.shape()
        yield built
    finally:
        with undisturbed():
            try:
                if line is not None:
                    line.stop()
                if net is not None:
                    net.stop()
            finally:
                state.release()


@contextmanager
def network_apart(layout: Layout, pinned: bool = True) -> Iterator[Network]:
    """Build the network of a layout. If `pinned`, one of several CPUs is for the switch (machine/cpus.py)."""
    if not pinned:
        with network(layout, pinned) as net:
            yield net
        return
    with hosts_apart() as switch_cpu, network(layout) as net:
        give_to_switch(switch_cpu, vswitchd_pid(), net.state)
        yield net
