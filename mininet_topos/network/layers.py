"""The layers of a network's switches, from its hosts up. Pure except for Mininet's graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from mininet.topo import Topo

EDGE, AGGREGATION, CORE = "edge", "aggregation", "core"
LAYERS = (EDGE, AGGREGATION, CORE)


def neighbours(topo: Topo) -> dict[str, list[str]]:
    """Return the nodes that each node has a link to; a node with two links to another has it twice."""
    found: dict[str, list[str]] = {node: [] for node in topo.nodes()}
    for one, other in topo.links():
        found[one].append(other)
        found[other].append(one)
    return found


def distances(around: dict[str, list[str]], starts: Iterable[str]) -> dict[str, int]:
    """Return the number of links from the nearest of `starts` to each node that can be reached."""
    found = dict.fromkeys(starts, 0)
    waiting = deque(found)
    while waiting:
        node = waiting.popleft()
        for neighbour in around[node]:
            if neighbour not in found:
                found[neighbour] = found[node] + 1
                waiting.append(neighbour)
    return found


def heights(topo: Topo) -> dict[str, int]:
    """Return the number of links from each node to the nearest host."""
    return distances(neighbours(topo), topo.hosts())


def layer_of_switches(topo: Topo) -> dict[str, str]:
    """Return the layer of each switch.

    A switch with hosts is of the edge. If other switches are above the edge, those farthest from the hosts
    are the core, and all between are the aggregation.
    """
    above = heights(topo)
    top = max(above.values())
    names = {1: EDGE} | ({top: CORE} if top > 1 else {})
    return {switch: names.get(above[switch], AGGREGATION) for switch in topo.switches()}
