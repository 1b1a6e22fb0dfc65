"""Topologies by name and parameters, as `mn --topo` takes them, and their counts."""

from __future__ import annotations

import inspect
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from mininet.topo import Topo
from rich import box
from rich.table import Table

from mininet_topos.errors import BadExperiment
from mininet_topos.topo import topos

Row = dict[str, Any]
TOPOLOGIES: dict[str, type[Topo]] = topos


@dataclass(frozen=True, slots=True)
class Census:
    """What a topology is made of. ``diameter_links``: the longest of the shortest paths between two hosts."""

    hosts: int
    switches: int
    links: int
    diameter_links: int


def make(spec: str) -> Topo:
    """The topology of a spec such as `fattree,4` or `threetier,2,5,48`. Raises BadExperiment."""
    name, given = _parse(spec)
    try:
        return TOPOLOGIES[name](**given)
    except ValueError as error:
        raise BadExperiment(f"{spec}: {error}; a topology is {_usage(name)}") from error


def relayed(topo: Topo) -> Topo:
    """The same without hosts that forward: one of several links (DCell, BCube) has a switch for them.

    The host is on port 1 of its switch, whose name is the host's and an f; a host of one link stays as it is.
    """
    forwarding = [host for host in topo.hosts(sort=False) if len(topo.ports[host]) > 1]
    if not forwarding:
        return topo
    made = Topo()
    for switch in topo.switches(sort=False):
        made.addSwitch(switch, dpid=topo.nodeInfo(switch)["dpid"])
    beside = {}
    for number, host in enumerate(topo.hosts(sort=False), len(topo.switches()) + 1):
        made.addHost(host)
        if host in forwarding:
            beside[host] = made.addSwitch(f"{host}f", dpid=f"{number:016x}")
            made.addLink(beside[host], host, port1=1)
    for one, other in topo.links():
        made.addLink(beside.get(one, one), beside.get(other, other))
    return made


def describe(spec: str) -> Row:
    """A spec's topology: its name, its parameters, its counts. Raises BadExperiment."""
    name, given = _parse(spec)
    return {"topology": name, "parameters": _defaults(name) | given, **asdict(census(make(spec)))}


def table(rows: list[Row]) -> Table:
    """Descriptions, for a terminal."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for heading in ("topology", "parameters"):
        made.add_column(heading)
    for heading in ("hosts", "switches", "links", "diameter"):
        made.add_column(heading, justify="right")
    for row in rows:
        name, given, *counts = row.values()
        made.add_row(name, ", ".join(f"{key}={value}" for key, value in given.items()), *map(str, counts))
    return made


def census(topo: Topo) -> Census:
    """Count hosts, switches and links, and measure the diameter."""
    around: dict[str, list[str]] = {node: [] for node in topo.nodes()}
    for one, other in topo.links():
        around[one].append(other)
        around[other].append(one)
    hosts = topo.hosts()
    longest = 0
    for host in hosts:
        distances = _distances(around, host)
        longest = max(longest, *(distances[other] for other in hosts))
    return Census(len(hosts), len(topo.switches()), len(topo.links()), longest)


def _distances(around: dict[str, list[str]], start: str) -> dict[str, int]:
    """Links from `start` to every node that can be reached."""
    distances, waiting = {start: 0}, deque([start])
    while waiting:
        node = waiting.popleft()
        for neighbour in around[node]:
            if neighbour not in distances:
                distances[neighbour] = distances[node] + 1
                waiting.append(neighbour)
    return distances


def _parse(spec: str) -> tuple[str, dict[str, int]]:
    """A spec's name, and the parameters that it gives."""
    name, *words = (word.strip() for word in spec.split(","))
    if name not in TOPOLOGIES:
        raise BadExperiment(f"no topology is called {name!r}: there are {', '.join(TOPOLOGIES)}")
    names = list(_defaults(name))
    if len(words) > len(names):
        raise BadExperiment(f"{spec}: {len(words)} parameters, want {len(names)} at most: {_usage(name)}")
    try:
        return name, dict(zip(names, map(int, words), strict=False))
    except ValueError:
        raise BadExperiment(f"{spec}: parameters are integers: {_usage(name)}") from None


def _defaults(name: str) -> dict[str, int]:
    """The parameters of a topology, in order, with their defaults."""
    wanted = inspect.signature(TOPOLOGIES[name].build).parameters.values()
    return {one.name: one.default for one in wanted if isinstance(one.default, int)}


def _usage(name: str) -> str:
    return ",".join((name, *_defaults(name)))
