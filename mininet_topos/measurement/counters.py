"""Counters around a run: of TCP and UDP in the hosts, and the drops of queues, links and Open vSwitch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mininet_topos.network.lab_network import Network
from mininet_topos.network.link_counts import LinkCounts
from mininet_topos.network.nodes import LabHost
from mininet_topos.network.ovs_buffers import packet_sockets
from mininet_topos.network.shaping import read_queue

TCP_COUNTERS = (
    "OutSegs",
    "InSegs",
    "RetransSegs",
    "TCPTimeouts",
    "TCPLossProbes",
    "TCPFastRetrans",
    "TCPSlowStartRetrans",
    "TCPSpuriousRTOs",
    "TCPDSACKRecv",
)


def parse_proc_net(text: str) -> dict[str, int]:
    """Return the counters of /proc/net/snmp or netstat: pairs of lines, with names above values."""
    lines = text.splitlines()
    counters = {}
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        pairs = zip(names.split()[1:], values.split()[1:], strict=True)
        counters.update({name: int(value) for name, value in pairs})
    return counters


def datagrams(text: str) -> tuple[int, int]:
    """Return how many UDP datagrams a host has sent and received, from the text of its /proc/net/snmp.

    Datagrams without a receiver, and those for which a socket had no room, have been received too.
    """
    lines = [line for line in text.splitlines() if line.startswith("Udp:")]
    counters = parse_proc_net("\n".join(lines))
    return counters["OutDatagrams"], sum(counters[name] for name in ("InDatagrams", "NoPorts", "InErrors"))


def tcp_counters(host: LabHost) -> dict[str, int]:
    """Return a host's TCP counters, read from outside its network namespace."""
    counters: dict[str, int] = {}
    for name in ("snmp", "netstat"):
        counters |= parse_proc_net(Path(f"/proc/{host.pid}/net/{name}").read_text())
    return {name: counters.get(name, 0) for name in TCP_COUNTERS}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The counters at one moment or, as a difference, of one run.

    ``tcp``: sums over all hosts.
    ``queue_drops``: packets that the bottleneck's queue refused.
    ``other_queue_drops``: packets that the queue of another shaped port refused.
    ``ovs_receive_drops``: packets for which the receive sockets of Open vSwitch had no room.
    ``link_losses``, ``link_duplicates``: packets that the hosts' links lost and duplicated on purpose.
    ``udp_sent``, ``udp_received``: datagrams of all hosts.
    """

    tcp: dict[str, int]
    queue_drops: int
    queue_sent_bytes: int
    ovs_receive_drops: int
    other_queue_drops: int = 0
    link_losses: int = 0
    link_duplicates: int = 0
    udp_sent: int = 0
    udp_received: int = 0

    @property
    def ovs_drops(self) -> int:
        """TCP segments and datagrams that left a host, reached no host, and were not refused by a queue.

        The number is exact if nothing is in flight. Open vSwitch does not count these drops: it sends in
        batches, and if the queue refuses a packet, Open vSwitch drops the rest of the batch. A full queue
        would have refused these packets as well.
        """
        sent = self.tcp["OutSegs"] + self.tcp["RetransSegs"]  # OutSegs does not include retransmissions
        sent += self.udp_sent + self.link_duplicates
        received = self.tcp["InSegs"] + self.udp_received
        accounted = received + self.queue_drops + self.other_queue_drops + self.link_losses
        return max(0, sent - accounted)

    def since(self, before: Snapshot) -> Snapshot:
        """Return the growth of the counters since `before`."""
        return Snapshot(
            {name: value - before.tcp[name] for name, value in self.tcp.items()},
            self.queue_drops - before.queue_drops,
            self.queue_sent_bytes - before.queue_sent_bytes,
            self.ovs_receive_drops - before.ovs_receive_drops,
            self.other_queue_drops - before.other_queue_drops,
            self.link_losses - before.link_losses,
            self.link_duplicates - before.link_duplicates,
            self.udp_sent - before.udp_sent,
            self.udp_received - before.udp_received,
        )


def tcp_totals(net: Network) -> dict[str, int]:
    """Return the sums of the TCP counters over all hosts."""
    totals = dict.fromkeys(TCP_COUNTERS, 0)
    for host in net.hosts:
        for name, value in tcp_counters(host).items():
            totals[name] += value
    return totals


def udp_totals(net: Network) -> tuple[int, int]:
    """Return how many datagrams all hosts have sent, and how many they have received."""
    counts = [datagrams(Path(f"/proc/{host.pid}/net/snmp").read_text()) for host in net.hosts]
    return sum(sent for sent, _ in counts), sum(received for _, received in counts)


def packets_sent(net: Network) -> int:
    """Return how many TCP segments and datagrams all hosts have sent."""
    return tcp_totals(net)["OutSegs"] + udp_totals(net)[0]


def snapshot(net: Network) -> Snapshot:
    """Read all counters of a network."""
    tcp = tcp_totals(net)
    queue = read_queue(net.bottleneck_ifname)
    ports = set(net.state.interfaces)
    receive_drops = sum(socket.receive_drops for socket in packet_sockets() if socket.ifname in ports)
    others = (read_queue(ifname).drops for ifname in net.shapes if ifname != net.bottleneck_ifname)
    links = net.links.counts() if net.links else LinkCounts()
    return Snapshot(
        *(tcp, queue.drops, queue.sent_bytes, receive_drops, sum(others)),
        *(links.lost, links.duplicated, *udp_totals(net)),
    )
