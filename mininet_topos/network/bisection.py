"""How many links must be cut to divide a topology. Pure except for Mininet's graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Set
from itertools import pairwise

from mininet.topo import Topo

from mininet_topos.network.layers import neighbours


def bisection_links(topo: Topo) -> int:
    """Return the least number of links whose cut separates the first half of the hosts from the other half.

    Hosts are divided by their numbers, so that neighbours stay together. The bisection width of the
    thesis (section 2.1) is the least number over all halves, and so is at most this number. With an odd
    number of hosts the second half is larger. 0 with one host.
    """
    hosts = topo.hosts(sort=False)
    half = len(hosts) // 2
    return disjoint_paths(topo, hosts[:half], set(hosts[half:])) if half else 0


def disjoint_paths(topo: Topo, sources: Iterable[str], sinks: Set[str]) -> int:
    """Return the number of paths from sources to sinks without a common link: the links to cut (Menger)."""
    around = neighbours(topo)
    starts = list(sources)
    room: dict[tuple[str, str], int] = {}
    for one, others in around.items():
        for other in others:
            room[one, other] = room.get((one, other), 0) + 1
    found = 0
    while path := _free_path(around, room, starts, sinks):
        for one, other in pairwise(path):
            room[one, other] -= 1
            room[other, one] += 1
        found += 1
    return found


def _free_path(
    around: dict[str, list[str]], room: dict[tuple[str, str], int], starts: list[str], sinks: Set[str]
) -> list[str]:
    """Return a shortest path over links with room, from a start to a sink; empty if there is none."""
    came: dict[str, str] = dict.fromkeys(starts, "")
    waiting = deque(starts)
    while waiting:
        node = waiting.popleft()
        for neighbour in around[node]:
            if neighbour in came or not room[node, neighbour]:
                continue
            came[neighbour] = node
            if neighbour not in sinks:
                waiting.append(neighbour)
                continue
            path = [neighbour]
            while before := came[path[-1]]:
                path.append(before)
            return path[::-1]
    return []
