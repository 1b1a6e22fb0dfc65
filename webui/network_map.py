"""The positions of switches, hosts and links on the map of the network. Pure functions.

Switches with hosts are in the lowest row. Every other switch is as many rows higher as its distance from
them in links. The hosts of a switch are below it, with their addresses if they are few.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass

from webui.views import Host, Link, Port, Switch, Topology

ROW, TOP, MARGIN = 130, 50, 30
NAMED_HOSTS = 8
NAMED_CELL, CELL, PER_ROW = 112, 26, 16
MIN_CELL = 150
OFFSET = 4.0
"""Distance of each direction of a link from the link's middle."""
FILLING_PKTS, LONG_PKTS = 5, 20


@dataclass(frozen=True, slots=True)
class Node:
    """A switch and its position."""

    switch: Switch
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Line:
    """One direction of a link. ``level``: of its port's queue. ``width`` grows with its utilisation."""

    link: Link
    x1: float
    y1: float
    x2: float
    y2: float
    level: int
    width: float


@dataclass(frozen=True, slots=True)
class Leaf:
    """A host and its position. ``named``: its address is shown. ``line``: from its switch port."""

    host: Host
    x: float
    y: float
    named: bool
    line: Line | None


@dataclass(frozen=True, slots=True)
class Drawing:
    """The map of a network. Positions and sizes are in units of the SVG image."""

    width: float
    height: float
    nodes: list[Node]
    lines: list[Line]
    leaves: list[Leaf]


def level(port: Port) -> int:
    """The level of a port's queue: 0 empty, 1 short, 2 filling, 3 long, 4 its alarm is up."""
    if port.alarm_up:
        return 4
    queue = port.queue_pkts or 0
    return 0 if queue == 0 else 1 if queue < FILLING_PKTS else 2 if queue < LONG_PKTS else 3


def draw(topology: Topology) -> Drawing:
    """The map of a network."""
    of_switch: dict[str, list[Host]] = defaultdict(list)
    for host in topology.hosts:
        of_switch[host.dpid].append(host)
    rows = _rows(topology, of_switch)
    widths = {one.dpid: _cell(len(of_switch[one.dpid])) for one in topology.switches}
    total = max((sum(widths[dpid] for dpid in row) for row in rows), default=MIN_CELL)
    placed: dict[str, tuple[float, float]] = {}
    for up, row in enumerate(rows):
        spare = (total - sum(widths[dpid] for dpid in row)) / len(row)
        x = float(MARGIN)
        for dpid in row:
            cell = widths[dpid] + spare
            placed[dpid] = x + cell / 2, TOP + (len(rows) - 1 - up) * ROW
            x += cell
    nodes = [Node(one, *placed[one.dpid]) for one in topology.switches]
    edges = {(edge.src.dpid, edge.src.port_no): edge for edge in topology.edges}
    leaves = [
        leaf
        for dpid, hosts in of_switch.items()
        if dpid in placed
        for leaf in _leaves(placed[dpid], hosts, edges)
    ]
    lines = [
        _line(link, *placed[link.src.dpid], *placed[link.dst.dpid], OFFSET)
        for link in topology.links
        if link.src.dpid in placed and link.dst.dpid in placed
    ]
    lowest = max((leaf.y for leaf in leaves), default=max((node.y for node in nodes), default=0.0))
    return Drawing(total + 2 * MARGIN, lowest + TOP, nodes, lines, leaves)


def _rows(topology: Topology, of_switch: dict[str, list[Host]]) -> list[list[str]]:
    """Switches by their distance from hosts. Each row follows the order of its neighbours one row below."""
    neighbours: dict[str, set[str]] = defaultdict(set)
    for link in topology.links:
        neighbours[link.src.dpid].add(link.dst.dpid)
        neighbours[link.dst.dpid].add(link.src.dpid)
    known = [one.dpid for one in topology.switches]
    distance = {dpid: 0 for dpid in known if of_switch.get(dpid)}
    waiting = deque(distance)
    while waiting:
        dpid = waiting.popleft()
        for other in sorted(neighbours[dpid] - distance.keys()):
            distance[other] = distance[dpid] + 1
            waiting.append(other)
    rows: dict[int, list[str]] = defaultdict(list)
    for dpid in known:
        rows[distance.get(dpid, 0)].append(dpid)
    ordered: list[list[str]] = []
    for number in sorted(rows):
        below = {dpid: place for place, dpid in enumerate(ordered[-1])} if ordered else {}
        ordered.append(sorted(rows[number], key=lambda dpid: (_mean(below, neighbours[dpid]), dpid)))
    return ordered


def _mean(places: dict[str, int], dpids: Iterable[str]) -> float:
    there = [places[dpid] for dpid in dpids if dpid in places]
    return sum(there) / len(there) if there else 0.0


def _cell(hosts: int) -> float:
    wide = NAMED_CELL * hosts if hosts <= NAMED_HOSTS else CELL * min(hosts, PER_ROW)
    return max(MIN_CELL, wide) + MARGIN


def _leaves(
    place: tuple[float, float], hosts: list[Host], edges: dict[tuple[str, int], Link]
) -> Iterable[Leaf]:
    x, y = place
    named = len(hosts) <= NAMED_HOSTS
    cell, per_row = (NAMED_CELL, len(hosts)) if named else (CELL, PER_ROW)
    for number, host in enumerate(hosts):
        row, column = divmod(number, per_row)
        in_row = min(per_row, len(hosts) - row * per_row)
        left = x + (column - (in_row - 1) / 2) * cell
        below = y + ROW * 0.75 + row * CELL
        edge = edges.get((host.dpid, host.port_no))
        yield Leaf(host, left, below, named, _line(edge, x, y, left, below, 0) if edge else None)


def _line(link: Link, x1: float, y1: float, x2: float, y2: float, offset: float) -> Line:
    """A line to the right of its direction, so that both directions of a link are visible."""
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    dx, dy = -(y2 - y1) / length * offset, (x2 - x1) / length * offset
    capacity = link.src.capacity_bps or link.src.rate_bps
    width = 2 + 5 * min(link.rate_bps / capacity, 1) if capacity else 2.0
    x1, y1, x2, y2 = (round(at, 1) for at in (x1 + dx, y1 + dy, x2 + dx, y2 + dy))
    return Line(link, x1, y1, x2, y2, level(link.src), round(width, 1))
