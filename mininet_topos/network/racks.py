"""Several roots at once, spread over racks, with workers near and far. Pure except for Mininet's graph."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mininet.topo import Topo

from mininet_topos.errors import BadExperiment
from mininet_topos.network.layers import EDGE, distances, heights, layer_of_switches, neighbours
from mininet_topos.network.layout import Port, ports_of

LINKS_BY_LAYER = (2, 4, 6)
"""The links between two hosts whose path turns at their edge switch, one layer above it, or two above it."""


@dataclass(frozen=True, slots=True)
class Incast:
    """A root and its workers. A host is named once for each response that it sends."""

    root: str
    workers: tuple[str, ...]


def place(
    topo: Topo, roots: int, racks: int, workers_at: Sequence[int], chance: random.Random
) -> list[Incast]:
    """Return `roots` incasts, whose roots are spread evenly over the first `racks` edge switches.

    `workers_at` has the numbers of each root's workers by LINKS_BY_LAYER. They are chosen at random, and a
    host works twice for a root only if all hosts at this distance work already. Raises BadExperiment if the
    topology has several paths between two hosts, too few hosts, or none at a distance.
    """
    around = neighbours(topo)
    if len(topo.links()) != len(around) - 1:
        raise BadExperiment(
            "workers_at needs a topology with one path between two hosts: use threetier, or leave it out"
        )
    incasts = []
    for root in _roots(topo, roots, racks):
        far = distances(around, [root])
        workers: list[str] = []
        for links, count in zip(LINKS_BY_LAYER, workers_at, strict=False):
            near = [host for host in topo.hosts(sort=False) if far[host] == links]
            if count and not near:
                raise BadExperiment(
                    f"workers_at is {list(workers_at)}, but no host is {links} links from {root}: "
                    f"use a larger topology, or 0 workers at this distance"
                )
            chance.shuffle(near)
            workers += [near[number % len(near)] for number in range(count)]
        incasts.append(Incast(root, tuple(workers)))
    return incasts


def _roots(topo: Topo, roots: int, racks: int) -> list[str]:
    """Return the hosts that are roots: the first of each rack, then the second of each, and so on."""
    layer = layer_of_switches(topo)
    hosts_of: dict[str, list[str]] = {switch: [] for switch in topo.switches() if layer[switch] == EDGE}
    for port in ports_of(topo):
        if not topo.isSwitch(port.towards):
            hosts_of[port.switch].append(port.towards)
    chosen = list(hosts_of.values())[:racks]
    most = sum(map(len, chosen))
    if len(chosen) < racks or most < roots:
        raise BadExperiment(
            f"{roots} roots in {racks} racks: the topology has {most} hosts in its first {len(chosen)} "
            f"racks; use a larger topology, or fewer roots"
        )
    return [chosen[number % racks][number // racks] for number in range(roots)]


def responses_by_port(topo: Topo, incasts: Iterable[Incast]) -> Counter[Port]:
    """Return how many responses of one query of each root pass each port, in a topology with one path."""
    around = neighbours(topo)
    port_towards = {(port.switch, port.towards): port for port in ports_of(topo)}
    passed: Counter[Port] = Counter()
    for incast in incasts:
        links = distances(around, [incast.root])
        for worker in incast.workers:
            node = worker
            while node != incast.root:
                following = min(around[node], key=lambda other: links[other])
                if node != worker:
                    passed[port_towards[node, following]] += 1
                node = following
    return passed


def ports_down(topo: Topo, incasts: Iterable[Incast]) -> dict[str, list[Port]]:
    """Return by layer the ports that lead down towards a root, which its responses pass."""
    height, layer = heights(topo), layer_of_switches(topo)
    found: dict[str, list[Port]] = {}
    for port in responses_by_port(topo, incasts):
        if height[port.towards] < height[port.switch]:
            found.setdefault(layer[port.switch], []).append(port)
    return found
