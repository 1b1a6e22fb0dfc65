"""Topologies: graphs and nothing else. Usable with `mn --custom mininet_topos/topo.py --topo star,4`."""

from __future__ import annotations

from mininet.topo import Topo


class Star(Topo):
    """One switch; a root on its port 1, then the workers, then the senders of long flows.

    ::

        root --1 [switch] 2..N+1          -- worker1..workerN
                          N+2..N+M+1      -- long1..longM

    The bottleneck is the switch's port to the root.
    """

    def build(self, workers: int = 2, senders: int = 0, switch: str = "s1") -> None:
        """workers, senders: how many of each; switch: its name (its digits become the datapath id)."""
        self.addSwitch(switch)
        self.addLink(self.addHost("root"), switch, port2=1)
        for number in range(1, workers + 1):
            self.addLink(self.addHost(f"worker{number}"), switch)
        for number in range(1, senders + 1):
            self.addLink(self.addHost(f"long{number}"), switch)


topos = {"star": Star}
