"""A topology with its parts given out: who asks, who answers, who sends on and on, which port is how wide.

Pure but for Mininet's graph. Names are the topology's; what they become on this machine is `net.py`'s affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from itertools import chain, zip_longest

from mininet.topo import Topo

from mininet_topos.errors import BadExperiment
from mininet_topos.links import Bottleneck
from mininet_topos.netem import Impairment
from mininet_topos.topo import Dumbbell, Star
from mininet_topos.topologies import make, relayed

SUBNET = ip_network("10.0.0.0/22")
ROOT, TRUNK, ACCESS = "root", "trunk", "access"
ROLES = (ROOT, TRUNK, ACCESS)
"""Of a switch's port: the root is behind it, another switch, or any other host."""


@dataclass(frozen=True, slots=True)
class Port:
    """A switch's port, and the node that is behind it."""

    switch: str
    number: int
    towards: str


@dataclass(frozen=True, slots=True)
class Layout:
    """An experiment's network before it is built.

    ``root`` asks ``workers``; ``senders`` send to ``sinks`` in turn. ``bottleneck`` is the port whose queue
    is watched; ``shapes`` are all ports that have a rate and a limit, the others are as fast as the machine.
    ``impairment``: delay and loss of every host's link.
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
        """The switch that a host is at."""
        return next(port.switch for port in self.ports if port.towards == host)

    def port(self, switch: str, towards: str) -> Port:
        """A switch's first port towards a node. Raises BadExperiment."""
        for port in self.ports:
            if (port.switch, port.towards) == (switch, towards):
                return port
        raise BadExperiment(f"no port of {switch} leads to {towards}")


def star(workers: int, senders: int, bottleneck: Bottleneck) -> Layout:
    """One switch; the bottleneck is its port to the root. Raises BadExperiment."""
    return lay_out("star", workers, senders, {ROOT: bottleneck})


def lay_out(spec: str, workers: int, senders: int, widths: Mapping[str, Bottleneck]) -> Layout:
    """A topology, by its spec, with so many workers and senders; ports are shaped by their role.

    `star` and `dumbbell` without parameters are made as large as is needed. The bottleneck is a dumbbell's
    port from senders to receivers; elsewhere it is the port to the root. Where hosts forward for others, a
    switch beside each does it. Raises BadExperiment.
    """
    _require_addresses(spec, 1 + workers + senders)
    topo = _sized(spec, workers, senders)
    _require_addresses(spec, len(topo.hosts()))
    receivers, others = _cast(topo)
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
        shapes={port: widths[role] for port, role in roles.items() if role in widths},
    )


def bottleneck_role(spec: str) -> str:
    """The role of the port that a topology's incast fills."""
    return TRUNK if spec.partition(",")[0] == "dumbbell" else ROOT


def _sized(spec: str, workers: int, senders: int) -> Topo:
    if spec == "star":
        return Star(workers, senders)
    if spec == "dumbbell":
        return Dumbbell(workers + senders, 2 if senders else 1)
    return relayed(make(spec))


def _require_addresses(spec: str, hosts: int) -> None:
    most = SUBNET.num_addresses - 2
    if hosts > most:
        raise BadExperiment(f"{spec}: {hosts} hosts are more than the {most} addresses of {SUBNET}")


def ports_of(topo: Topo) -> list[Port]:
    """Every port of every switch, in the order of their numbers."""
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


def _cast(topo: Topo) -> tuple[list[str], list[str]]:
    """Who receives, the root first, and the others in the order in which they are taken.

    In a dumbbell the sides tell; elsewhere the first host is the root, and each switch gives one in turn.
    """
    hosts: list[str] = topo.hosts(sort=False)
    if isinstance(topo, Dumbbell):
        receivers = [host for host in hosts if host.startswith("rcv")]
        return receivers, [host for host in hosts if host not in receivers]
    behind: dict[str, list[str]] = {}
    for port in ports_of(topo):
        if port.towards in hosts[1:]:
            behind.setdefault(port.switch, []).append(port.towards)
    turns = chain.from_iterable(zip_longest(*behind.values()))
    return hosts[:1], [host for host in turns if host is not None]
