"""Shortest paths with ECMP, the same for both directions of a flow. Pure.

A flow belongs to one of ``BUCKETS`` buckets, by a function of its 5-tuple that is symmetric in source and
destination. In each bucket every link has a weight of its own, from a hash. Among the shortest paths by hops,
a bucket takes the path with the least sum of weights.

- The path is the same from either end, so a flow's ACKs pass where its data passes.
- The rest of a path, from any switch on it, is that switch's own path. So each switch can forward by
  destination and bucket alone.
- A weight depends only on its link, so a failure moves only the flows that used the link.

Two paths with equal sums (one pair in 2**64) would be told apart by the order of ports, which is not
symmetric.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Mapping
from functools import cache, lru_cache

from fabric_app.graph import Graph, Link
from flowdb.flow import FiveTuple, Hop, PortKey

BUCKET_BITS = 4
BUCKETS = 1 << BUCKET_BITS
PORT_SHIFT = 1
"""Bit 0 of the ports is left out, because Linux prefers even ports for connecting sockets."""
UNKNOWN_PORT = 0xFFFF_FFFF
MOST_ADDRESSES = 65_536
"""The number of addresses whose bits are remembered: a flood may have any number of sources."""


def bucket_of(key: FiveTuple) -> int:
    """The bucket of a flow and its reverse: the low bits of both addresses and, from bit 1, of both ports."""
    addresses = _low_bits(key.src) ^ _low_bits(key.dst)
    return (addresses ^ (key.src_port ^ key.dst_port) >> PORT_SHIFT) & (BUCKETS - 1)


@lru_cache(MOST_ADDRESSES)
def _low_bits(address: str) -> int:
    return int(ipaddress.ip_address(address)) & (BUCKETS - 1)


@cache
def _weights(link: Link) -> tuple[int, ...]:
    """A link's weight in each bucket: the bucket's rank by the link's hashes, and 64 bits of its hash.

    Each link has every rank once. So no link is light in most buckets, and paths of equal length share the
    buckets more evenly than by hashes alone (docs/decisions/0003).
    """
    hashes = [_hash(f"{link} {bucket}") for bucket in range(BUCKETS)]
    rank = {hashed: number for number, hashed in enumerate(sorted(hashes))}
    return tuple(rank[hashed] << 64 | hashed for hashed in hashes)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


class Paths:
    """The paths of a graph, computed on first use."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._ways: dict[int, dict[int, tuple[int, ...]]] = {}
        self._found: dict[tuple[PortKey, PortKey, int], tuple[Hop, ...] | None] = {}

    def ports(self, at: int, to: int) -> tuple[int, ...] | None:
        """The port by which each bucket leaves ``at`` for the switch ``to``; None if there is no path."""
        if to not in self._ways:
            self._ways[to] = self._ways_to(to)
        return self._ways[to].get(at)

    def between(self, src: PortKey, dst: PortKey, bucket: int) -> tuple[Hop, ...] | None:
        """The hops of a bucket from the host at ``src`` to the host at ``dst``; None if there is no path."""
        asked = (src, dst, bucket)
        if asked not in self._found:
            self._found[asked] = self._between(src, dst, bucket)
        return self._found[asked]

    def _between(self, src: PortKey, dst: PortKey, bucket: int) -> tuple[Hop, ...] | None:
        hops, at = [], src
        while at.dpid != dst.dpid:
            ports = self.ports(at.dpid, dst.dpid)
            if ports is None:
                return None
            peer = self.graph.peer(PortKey(at.dpid, ports[bucket]))
            hops.append(Hop(at.dpid, at.port_no, ports[bucket]))
            assert peer is not None, "a way out of a switch is a link"  # noqa: S101 - an invariant
            at = peer
        return (*hops, Hop(at.dpid, at.port_no, dst.port_no))

    def _ways_to(self, to: int) -> dict[int, tuple[int, ...]]:
        """For each switch, the first port of every bucket's path to the switch ``to``."""
        distances = self.graph.distances(to)
        costs = {to: (0,) * BUCKETS}
        ways: dict[int, tuple[int, ...]] = {}
        for at, distance in distances.items():
            if at == to:
                continue
            nearer = [s for s in self.graph.steps(at) if distances[s.peer.dpid] == distance - 1]
            best = [
                min((costs[s.peer.dpid][b] + _weights(s.link)[b], s.out_port) for s in nearer)
                for b in range(BUCKETS)
            ]
            costs[at] = tuple(cost for cost, _ in best)
            ways[at] = tuple(port for _, port in best)
        return ways


def seen_path(graph: Graph, out_ports: Mapping[int, int]) -> tuple[Hop, ...]:
    """The hops of a flow, from the ports by which it leaves some switches.

    Links give the order of the hops. Parts that no link joins follow one after the other. An input port that
    no link gives is ``UNKNOWN_PORT``.
    """
    into = {}
    for dpid, out_port in sorted(out_ports.items()):
        peer = graph.peer(PortKey(dpid, out_port))
        if peer is not None and peer.dpid in out_ports:
            into[peer.dpid] = peer.port_no
    hops: dict[int, Hop] = {}
    starts = [dpid for dpid in sorted(out_ports) if dpid not in into]
    for start in [*starts, *sorted(into)]:
        at: int | None = start
        while at is not None and at in out_ports and at not in hops:
            hops[at] = Hop(at, into.get(at, UNKNOWN_PORT), out_ports[at])
            peer = graph.peer(PortKey(at, out_ports[at]))
            at = peer.dpid if peer else None
    return tuple(hops.values())
