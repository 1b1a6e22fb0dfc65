"""Topologies: graphs and nothing else.

Each class is a plain Mininet Topo. ``mn --custom mininet_topos/topo.py --topo fattree,4`` executes this file
alone, so it imports nothing of the project. A bad parameter raises ValueError with the wanted values.
Switches have the datapath ids 1, 2, ... in the order in which they are added.

Topologies with loops (fat-tree, Clos, leaf-spine, DCell, BCube) need a controller that computes paths. In
DCell and BCube, hosts forward packets for others. The lab replaces such hosts
(`topologies.with_forwarding_switches`).
"""

from __future__ import annotations

from itertools import combinations

from mininet.topo import Topo


def _at_least(least: int, **counts: object) -> None:
    """Raise ValueError unless every count is an integer of `least` or more."""
    for name, count in counts.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < least:
            raise ValueError(f"{name} is {count!r}: want an integer of {least} or more")


class _Numbered(Topo):
    """A topology whose switches are numbered in the order in which they are added."""

    def _switch(self, name: str) -> str:
        return str(self.addSwitch(name, dpid=f"{len(self.switches(sort=False)) + 1:016x}"))

    def _hosts(self, count: int, switch: str, prefix: str = "h") -> None:
        """Add hosts to a switch; their numbers follow the numbers of the existing hosts."""
        first = sum(host.startswith(prefix) for host in self.hosts(sort=False)) + 1
        for number in range(first, first + count):
            self.addLink(self.addHost(f"{prefix}{number}"), switch)


class Star(Topo):
    """One switch: the root on port 1, then the workers, then the senders of long flows.

    ::

        root --1 [switch] 2..N+1          -- worker1..workerN
                          N+2..N+M+1      -- long1..longM

    The bottleneck is the switch's port to the root. The thesis' figure 14 is Star(2).
    """

    def build(self, workers: int = 2, senders: int = 0, switch: str = "s1") -> None:
        """Add the nodes. The digits in the name of `switch` become its datapath id."""
        _at_least(1, workers=workers)
        _at_least(0, senders=senders)
        self.addSwitch(switch)
        self.addLink(self.addHost("root"), switch, port2=1)
        for number in range(1, workers + 1):
            self.addLink(self.addHost(f"worker{number}"), switch)
        for number in range(1, senders + 1):
            self.addLink(self.addHost(f"long{number}"), switch)


class Dumbbell(_Numbered):
    """Two switches; senders on s1, receivers on s2, the bottleneck between them on port 1 of each.

    ::

        snd1..sndN -- [s1] 1--1 [s2] -- rcv1..rcvM

    SDTCP's figure 7 is Dumbbell(40, 3), the thesis' figure 15 Dumbbell(2, 2). Several links, on ports 1, 2,
    ..., are equal paths.
    """

    def build(self, senders: int = 2, receivers: int = 2, links: int = 1) -> None:
        """Add the nodes, and a number of `links` between the switches."""
        _at_least(1, senders=senders, receivers=receivers, links=links)
        left, right = self._switch("s1"), self._switch("s2")
        for number in range(1, links + 1):
            self.addLink(left, right, port1=number, port2=number)
        self._hosts(senders, left, "snd")
        self._hosts(receivers, right, "rcv")


class ThreeTier(_Numbered):
    """A tree: one core, aggregation switches below it, top-of-rack switches below each, servers in racks.

    SCCP's figure 3 is ThreeTier(2, 5, 48): 10 racks of 48 servers. The thesis' basic tree of fan-out f
    (table 1) is ThreeTier(f, f, f). Port 1 of a switch leads up.
    """

    def build(self, aggregations: int = 2, racks: int = 5, servers: int = 48) -> None:
        """Add `aggregations` below the core, `racks` below each of them, and `servers` in each rack."""
        _at_least(1, aggregations=aggregations, racks=racks, servers=servers)
        core = self._switch("core")
        for number in range(1, aggregations + 1):
            aggregation = self._switch(f"agg{number}")
            self.addLink(aggregation, core)
            for rack in range((number - 1) * racks + 1, number * racks + 1):
                tor = self._switch(f"tor{rack}")
                self.addLink(tor, aggregation)
                self._hosts(servers, tor)


class LeafSpine(_Numbered):
    """Every leaf is linked to every spine; the servers are on the leaves."""

    def build(self, spines: int = 2, leaves: int = 4, servers: int = 4) -> None:
        """Add the switches, and a number of `servers` on each leaf."""
        _at_least(1, spines=spines, leaves=leaves, servers=servers)
        tops = [self._switch(f"spine{number}") for number in range(1, spines + 1)]
        for number in range(1, leaves + 1):
            leaf = self._switch(f"leaf{number}")
            for top in tops:
                self.addLink(leaf, top)
            self._hosts(servers, leaf)


class FatTree(_Numbered):
    """The k-ary fat-tree (Al-Fares et al., SIGCOMM 2008; the thesis' figure 3) of switches with k ports.

    It has k pods of k/2 edge and k/2 aggregation switches, k/2 servers on each edge switch, and (k/2)^2
    cores. The i-th aggregation switch of each pod is linked to the k/2 cores from i k/2 on.
    """

    def build(self, k: int = 4) -> None:
        """Add the nodes. `k`, an even number, is the number of ports of a switch."""
        _at_least(2, k=k)
        if k % 2:
            raise ValueError(f"k is {k}: want an even number, half of a switch's ports lead up")
        half = k // 2
        cores = [self._switch(f"core{number}") for number in range(1, half * half + 1)]
        for pod in range(1, k + 1):
            aggregations = [self._switch(f"agg{pod}_{number}") for number in range(1, half + 1)]
            for number, core in enumerate(cores):
                self.addLink(aggregations[number // half], core)
            for number in range(1, half + 1):
                edge = self._switch(f"edge{pod}_{number}")
                for aggregation in aggregations:
                    self.addLink(edge, aggregation)
                self._hosts(half, edge)


class Clos(_Numbered):
    """The folded Clos network of VL2 (Greenberg et al., SIGCOMM 2009) with switches of n ports.

    It has n/2 cores, n aggregation switches and n^2/4 top-of-rack switches. Every aggregation switch is
    linked to every core. Each pair of aggregation switches serves n/2 racks, and a rack is linked to both.
    """

    def build(self, n: int = 4, servers: int = 2) -> None:
        """Add the nodes. `n`, an even number, is the number of ports of an upper switch."""
        _at_least(2, n=n)
        _at_least(1, servers=servers)
        if n % 2:
            raise ValueError(f"n is {n}: want an even number, half of a switch's ports lead up")
        half = n // 2
        cores = [self._switch(f"core{number}") for number in range(1, half + 1)]
        for pair in range(half):
            aggregations = [self._switch(f"agg{2 * pair + number}") for number in (1, 2)]
            for aggregation in aggregations:
                for core in cores:
                    self.addLink(aggregation, core)
            for rack in range(pair * half + 1, (pair + 1) * half + 1):
                tor = self._switch(f"tor{rack}")
                for aggregation in aggregations:
                    self.addLink(tor, aggregation)
                self._hosts(servers, tor)


class DCell(_Numbered):
    """DCell(n, l) (Guo et al., SIGCOMM 2008; the thesis' figure 4): cells linked server to server.

    A DCell of level 0 is n servers on one switch. A DCell of level l consists of t + 1 cells of level l - 1,
    where t is the number of servers in such a cell. For every i < j, server j - 1 of cell i is linked to
    server i of cell j, so that each pair of cells has one link.
    """

    def build(self, n: int = 4, level: int = 1) -> None:
        """Add the nodes. `n` is the number of servers in a cell of level 0."""
        _at_least(2, n=n)
        _at_least(0, level=level)
        self._cell(n, level)

    def _cell(self, n: int, level: int) -> list[str]:
        """Add a cell and return its servers."""
        if level == 0:
            self._hosts(n, self._switch(f"s{len(self.switches(sort=False)) + 1}"))
            return [str(host) for host in self.hosts(sort=False)[-n:]]
        cells = [self._cell(n, level - 1)]
        while len(cells) < len(cells[0]) + 1:
            cells.append(self._cell(n, level - 1))
        for i, j in combinations(range(len(cells)), 2):
            self.addLink(cells[i][j - 1], cells[j][i])
        return [server for cell in cells for server in cell]


class BCube(_Numbered):
    """BCube(n, l) (Guo et al., SIGCOMM 2009; the thesis' figure 5): every server on a switch of each level.

    A server is a number of l + 1 digits to the base n. A switch of level i links the n servers that differ
    only in digit i; the other digits are the number of the switch.
    """

    def build(self, n: int = 4, level: int = 1) -> None:
        """Add the nodes. `n` is the number of servers of a switch; `level` is the highest level."""
        _at_least(2, n=n)
        _at_least(0, level=level)
        servers = [self.addHost(f"h{number}") for number in range(1, n ** (level + 1) + 1)]
        for i in range(level + 1):
            step = n**i
            for number in range(n**level):
                first = number // step * step * n + number % step
                switch = self._switch(f"s{i}_{number + 1}")
                for server in servers[first : first + n * step : step]:
                    self.addLink(server, switch)


topos = {
    "star": Star,
    "dumbbell": Dumbbell,
    "threetier": ThreeTier,
    "leafspine": LeafSpine,
    "fattree": FatTree,
    "clos": Clos,
    "dcell": DCell,
    "bcube": BCube,
}
