"""The layout of a network: the role of each host, and the rate of each port.

Pure except for Mininet's graph. Nodes have their names in the topology; lab_network.py maps these names to
bridges and interfaces on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from itertools import chain, zip_longest

from mininet.topo import Topo

from mininet_topos.errors import BadExperiment
from mininet_topos.network.impairment import Impairment
from mininet_topos.network.shaping import Bottleneck
from mininet_topos.network.topologies import make, with_forwarding_switches
from mininet_topos.topo import Dumbbell, Star

SUBNET = ip_network("10.0.0.0/22")
ROOT, TRUNK, ACCESS = "root", "trunk", "access"
ROLES = (ROOT, TRUNK, ACCESS)
"""The role of a switch's port: it leads to the root, to another switch, or to any other host."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a switch, and the node that it leads to."""

    switch: str
    number: int
    towards: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The network of an experiment before it is built.

    ``root`` asks ``workers``; the ``senders`` of long flows send to the ``sinks`` in turn. ``bottleneck`` is
    the port whose queue the lab records. ``shapes`` has every port with a rate and a queue limit; the other
    ports are as fast as the machine. ``impairment``: delay and loss of every host's link.
    """

    topo: Topo
    root: str
    workers: tuple[str, ...]
    senders: tuple[str, ...]
    sinks: tuple[str, ...]
    bottleneck: Port
    shapes: Mapping[Port, Bottleneck]
    impairment: Impairment = Impairment()

    @property
    def ports(self) -> list[Port]:
        """Every port of every switch."""
        return ports_of(self.topo)

    def switch_of(self, host: str) -> str:
        """Return the switch of a host."""
        return next(port.switch for port in self.ports if port.towards == host)

    def port(self, switch: str, towards: str) -> Port:
        """Return a switch's first port towards a node. Raises BadExperiment."""
        for port in self.ports:
            if (port.switch, port.towards) == (switch, towards):
                return port
        raise BadExperiment(f"no port of {switch} leads to {towards}")


def star(workers: int, senders: int, bottleneck: Bottleneck) -> Layout:
    """Return a network with one switch, whose port to the root is the bottleneck. Raises BadExperiment."""
    return lay_out("star", workers, senders, {ROOT: bottleneck})


def lay_out(spec: str, workers: int, senders: int, shapes: Mapping[str, Bottleneck]) -> Layout:
    """Return the layout of a topology for a number of workers and senders; `shapes` has rates by role.

    `star` and `dumbbell` without parameters get the size that is needed. The bottleneck of a dumbbell is the
    port from the senders' switch to the receivers' switch; elsewhere it is the port to the root. If hosts of
    the topology forward packets, a switch beside each of them does so instead. Raises BadExperiment.
    """
    _require_addresses(spec, 1 + workers + senders)
    topo = _sized(spec, workers, senders)
    _require_addresses(spec, len(topo.hosts()))
    receivers, others = _receivers_and_others(topo)
    if len(others) < workers + senders:
        raise BadExperiment(
            f"{spec} has {len(others)} hosts beside those that receive, but {workers} workers and {senders} "
            f"long flows are wanted: ask for fewer, or for a larger topology"
        )
    root, *sinks = receivers
    roles = {port: _role(topo, port, root) for port in ports_of(topo)}
    return Layout(
        topo,
        root,
        workers=tuple(others[:workers]),
        senders=tuple(others[workers : workers + senders]),
        sinks=tuple(sinks) or (root,),
        bottleneck=next(port for port, role in roles.items() if role == bottleneck_role(spec)),
        shapes={port: shapes[role] for port, role in roles.items() if role in shapes},
    )


def bottleneck_role(spec: str) -> str:
    """Return the role of the port that an incast in this topology fills."""
    return TRUNK if spec.partition(",")[0] == "dumbbell" else ROOT


def _sized(spec: str, workers: int, senders: int) -> Topo:
    if spec == "star":
        return Star(workers, senders)
    if spec == "dumbbell":
        return Dumbbell(workers + senders, 2 if senders else 1)
    return with_forwarding_switches(make(spec))


def _require_addresses(spec: str, hosts: int) -> None:
    most = SUBNET.num_addresses - 2
    if hosts > most:
        raise BadExperiment(f"{spec}: {hosts} hosts are more than the {most} addresses of {SUBNET}")


def ports_of(topo: Topo) -> list[Port]:
    """Return every port of every switch, ordered by switch and port number."""
    found = []
    for _, _, link in topo.links(withInfo=True):
        ends = (link["node1"], link["port1"]), (link["node2"], link["port2"])
        for (near, number), (far, _) in (ends, ends[::-1]):
            if topo.isSwitch(near):
                found.append(Port(near, number, far))
    order = topo.switches()
    return sorted(found, key=lambda port: (order.index(port.switch), port.number))


def _role(topo: Topo, port: Port, root: str) -> str:
    if topo.isSwitch(port.towards):
        return TRUNK
    return ROOT if port.towards == root else ACCESS


def _receivers_and_others(topo: Topo) -> tuple[list[str], list[str]]:
    """Return the hosts that receive, the root first, and the other hosts in the order of their use.

    In a dumbbell, one side receives. Elsewhere the first host is the root, and the switches supply the other
    hosts in turn.
    """
    hosts: list[str] = topo.hosts(sort=False)
    if isinstance(topo, Dumbbell):
        receivers = [host for host in hosts if host.startswith("rcv")]
        return receivers, [host for host in hosts if host not in receivers]
    by_switch: dict[str, list[str]] = {}
    for port in ports_of(topo):
        if port.towards in hosts[1:]:
            by_switch.setdefault(port.switch, []).append(port.towards)
    in_turn = chain.from_iterable(zip_longest(*by_switch.values()))
    return hosts[:1], [host for host in in_turn if host is not None]
