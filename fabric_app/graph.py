"""The network as a graph: switches and the links between them, also parallel ones. Pure values."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from flowdb.flow import PortKey


@dataclass(frozen=True, slots=True)
class Link:
    """A cable between two switch ports. ``of`` puts the ports in order."""

    a: PortKey
    b: PortKey

    @classmethod
    def of(cls, one: PortKey, other: PortKey) -> Link:
        """The link between two ports, given in any order."""
        return cls(*sorted((one, other), key=_place))

    @property
    def ends(self) -> tuple[PortKey, PortKey]:
        return self.a, self.b

    def __str__(self) -> str:
        return f"{self.a} - {self.b}"


@dataclass(frozen=True, slots=True)
class Step:
    """A step from a switch: out of ``out_port``, over ``link``, into ``peer``."""

    out_port: int
    link: Link
    peer: PortKey


class Graph:
    """A network that does not change. A link between two ports of one switch is not used as a step."""

    def __init__(self, switches: Iterable[int] = (), links: Iterable[Link] = ()) -> None:
        self.switches = frozenset(switches)
        self.links = frozenset(links)
        self._steps: dict[int, list[Step]] = {dpid: [] for dpid in self.switches}
        self._peers: dict[PortKey, PortKey] = {}
        for link in sorted(self.links, key=lambda link: (_place(link.a), _place(link.b))):
            for near, far in (link.ends, link.ends[::-1]):
                self._peers[near] = far
                if near.dpid != far.dpid and {near.dpid, far.dpid} <= self.switches:
                    self._steps[near.dpid].append(Step(near.port_no, link, far))

    def steps(self, dpid: int) -> list[Step]:
        """The steps from a switch, in a fixed order."""
        return self._steps.get(dpid, [])

    def peer(self, port: PortKey) -> PortKey | None:
        """The other end of the link at a port."""
        return self._peers.get(port)

    def distances(self, to: int) -> dict[int, int]:
        """Hops from every switch that can reach ``to``, in order of distance."""
        if to not in self.switches:
            return {}
        found, waiting = {to: 0}, deque([to])
        while waiting:
            at = waiting.popleft()
            for step in self.steps(at):
                if step.peer.dpid not in found:
                    found[step.peer.dpid] = found[at] + 1
                    waiting.append(step.peer.dpid)
        return found

    @cached_property
    def tree_ports(self) -> frozenset[PortKey]:
        """The link ports of a spanning tree of each part of the network: floods use only these."""
        found: set[PortKey] = set()
        reached: set[int] = set()
        for root in sorted(self.switches):
            waiting = deque([root] if root not in reached else [])
            reached.add(root)
            while waiting:
                for step in self.steps(waiting.popleft()):
                    if step.peer.dpid not in reached:
                        reached.add(step.peer.dpid)
                        waiting.append(step.peer.dpid)
                        found.update(step.link.ends)
        return frozenset(found)


def _place(port: PortKey) -> tuple[int, int]:
    return port.dpid, port.port_no
