"""Reactive mode: a path is set up in both directions before its SYN is forwarded (SDTCP, IV). Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from fabric_app.connections import name_of
from fabric_app.core_types import Await, Decision, Put, Send
from fabric_app.flow_entries import Entry
from fabric_app.network import Network
from flowdb.flow import FiveTuple, Hop, PortKey


@dataclass(slots=True)
class _Waiting:
    """A SYN that waits for the switches of its path."""

    dpids: set[int]
    syn: Send


class ReactivePaths:
    """The flows with entries of their own, at most ``most``. Older entries end by their idle timeout."""

    def __init__(self, network: Network, idle_s: int, most: int) -> None:
        self._network = network
        self._idle_s = idle_s
        self._most = most
        self._paths: OrderedDict[FiveTuple, tuple[FiveTuple, tuple[Hop, ...]]] = OrderedDict()
        self._waiting: OrderedDict[int, _Waiting] = OrderedDict()
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._paths)

    def on_syn_inside(self, key: FiveTuple, at: PortKey, frame: bytes) -> list[Decision]:
        """A SYN arrived at a link without an entry, because its entries are gone. It is still forwarded."""
        of, path = self._paths.get(name_of(key), (key, ()))
        return [
            Send(at.dpid, (hop.out_port if of == key else hop.in_port,), frame)
            for hop in path
            if hop.dpid == at.dpid
        ]

    def on_syn(self, key: FiveTuple, at: PortKey, to: PortKey, frame: bytes) -> list[Decision]:
        """A SYN without an entry arrived at an edge port. Its receiver is behind ``to``."""
        path = self._network.path(key, at, to)
        if not path:
            return []
        self._remember(key, path)
        dpids = {hop.dpid for hop in path}
        self._numbers += 1
        self._waiting[self._numbers] = _Waiting(dpids, Send(at.dpid, (path[0].out_port,), frame))
        if len(self._waiting) > self._most:
            self._waiting.popitem(last=False)
        entries = self._entries(key, path)
        return [
            *(Put(dpid, entries[dpid]) for dpid in entries),
            *(Await(dpid, self._numbers) for dpid in sorted(dpids)),
        ]

    def on_done(self, dpid: int, number: int) -> list[Decision]:
        """A switch replied to the barrier of an ``Await``. After the last reply the SYN is forwarded."""
        waiting = self._waiting.get(number)
        if waiting is None:
            return []
        waiting.dpids.discard(dpid)
        if waiting.dpids:
            return []
        del self._waiting[number]
        return [waiting.syn]

    def end(self, key: FiveTuple) -> list[Decision]:
        """A connection ended: its entries are deleted."""
        known = self._paths.pop(name_of(key), None)
        return [Put(dpid, deleted=gone) for dpid, gone in self._entries(*known).items()] if known else []

    def end_at(self, ports: Collection[PortKey]) -> Iterator[Decision]:
        """Hosts have left these ports: the entries of hosts lead their connections from now on."""
        for key, path in list(self._paths.values()) if ports else ():
            if PortKey(path[0].dpid, path[0].in_port) in ports or path[-1].port in ports:
                yield from self.end(key)

    def reroute(self) -> Iterator[Decision]:
        """Entries along the new paths; the entries that flows no longer use are deleted."""
        for name, (key, path) in list(self._paths.items()):
            now = self._network.path_now(key, path)
            if now != path:
                self._paths[name] = key, now
                old, new = self._entries(key, path), self._entries(key, now)
                yield from (Put(dpid, new[dpid]) for dpid in new)
                yield from (Put(dpid, deleted=old[dpid]) for dpid in old if dpid not in new)

    def _remember(self, key: FiveTuple, path: tuple[Hop, ...]) -> None:
        self._paths[name_of(key)] = key, path
        if len(self._paths) > self._most:
            self._paths.popitem(last=False)

    def _entries(self, key: FiveTuple, path: tuple[Hop, ...]) -> dict[int, tuple[Entry, ...]]:
        return {
            hop.dpid: (
                self._network.entries.of_flow(key, hop.out_port, self._idle_s),
                self._network.entries.of_flow(key.reverse, hop.in_port, self._idle_s),
            )
            for hop in path
        }
