"""Topologies by name and parameters, in the format of `mn --topo`, and the numbers of their nodes."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass
from typing import Any

from mininet.topo import Topo

from mininet_topos.errors import BadExperiment
from mininet_topos.network.bisection import bisection_links
from mininet_topos.network.layers import distances, neighbours
from mininet_topos.topo import topos

Row = dict[str, Any]
TOPOLOGIES: dict[str, type[Topo]] = topos


@dataclass(frozen=True, slots=True)
class Census:
    """The numbers of a topology. ``diameter_links``: the longest of the shortest paths between two hosts."""

    hosts: int
    switches: int
    links: int
    diameter_links: int


def make(spec: str) -> Topo:
    """Return the topology of a spec such as `fattree,4` or `threetier,2,5,48`. Raises BadExperiment."""
    name, given = _parse(spec)
    try:
        return TOPOLOGIES[name](**given)
    except ValueError as error:
        raise BadExperiment(f"{spec}: {error}; a topology is {_usage(name)}") from error


def with_forwarding_switches(topo: Topo) -> Topo:
    """Return a topology in which no host forwards packets for others, as hosts of DCell and BCube do.

    A host with several links gets a switch that has these links instead. The switch has the host's name with
    an f appended, and the host is on its port 1. A host with one link is unchanged.
    """
    forwarding = [host for host in topo.hosts(sort=False) if len(topo.ports[host]) > 1]
    if not forwarding:
        return topo
    made = Topo()
    for switch in topo.switches(sort=False):
        made.addSwitch(switch, dpid=topo.nodeInfo(switch)["dpid"])
    switch_of = {}
    for number, host in enumerate(topo.hosts(sort=False), len(topo.switches()) + 1):
        made.addHost(host)
        if host in forwarding:
            switch_of[host] = made.addSwitch(f"{host}f", dpid=f"{number:016x}")
            made.addLink(switch_of[host], host, port1=1)
    for one, other in topo.links():
        made.addLink(switch_of.get(one, one), switch_of.get(other, other))
    return made


def describe(spec: str) -> Row:
    """Return the name, the parameters and the numbers of a spec's topology. Raises BadExperiment."""
    name, given = _parse(spec)
    topo = make(spec)
    numbers = asdict(census(topo)) | {"bisection_links": bisection_links(topo)}
    return {"topology": name, "parameters": _defaults(name) | given, **numbers}


def census(topo: Topo) -> Census:
    """Count hosts, switches and links, and measure the diameter."""
    around = neighbours(topo)
    hosts = topo.hosts()
    longest = 0
    for host in hosts:
        far = distances(around, [host])
        longest = max(longest, *(far[other] for other in hosts))
    return Census(len(hosts), len(topo.switches()), len(topo.links()), longest)


def _parse(spec: str) -> tuple[str, dict[str, int]]:
    """Return the name of a spec, and the parameters that it states."""
    name, *words = (word.strip() for word in spec.split(","))
    if name not in TOPOLOGIES:
        raise BadExperiment(f"no topology is called {name!r}: use one of {', '.join(TOPOLOGIES)}")
    names = list(_defaults(name))
    if len(words) > len(names):
        raise BadExperiment(f"{spec}: {len(words)} parameters, want {len(names)} at most: {_usage(name)}")
    try:
        return name, dict(zip(names, map(int, words), strict=False))
    except ValueError:
        raise BadExperiment(f"{spec}: the parameters must be integers: {_usage(name)}") from None


def _defaults(name: str) -> dict[str, int]:
    """Return the parameters of a topology, in order, with their default values."""
    wanted = inspect.signature(TOPOLOGIES[name].build).parameters.values()
    return {one.name: one.default for one in wanted if isinstance(one.default, int)}


def _usage(name: str) -> str:
    return ",".join((name, *_defaults(name)))
