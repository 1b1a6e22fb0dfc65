"""The switches, their links and hosts, and the entries that each switch has for them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from itertools import islice

from fabric_app.claims import Sighting
from fabric_app.core_types import Decision, Learned, LinkDown, LinkUp, Lost, Put, SetMeters, Sweep
from fabric_app.discovery import Discovery
from fabric_app.flow_entries import Entry, FlowEntries, Place, Table, difference, table_of
from fabric_app.graph import Graph, Link
from fabric_app.host_tracking import Event, HostLimits, HostTracking, Placed
from fabric_app.hosts import Host
from fabric_app.meters import MeterRates, Meters
from fabric_app.paths import BUCKETS, Paths, bucket_of, seen_path
from flowdb.flow import FiveTuple, Hop, PortKey

_NEVER = (-1, -1)
SWEEP_LATEST_NS = 30_000_000_000
"""How long entries of an earlier controller stay while links that it knew are missing."""
MOST_WAS_LINKS = 10_000
MOST_GENERATIONS = 1_000
"""Link ports and earlier controllers that the entries of a switch may name. It can invent any number."""


@dataclass(slots=True)
class _Switch:
    """A connected switch. ``table``: the entries that it was sent.

    ``reports``: whether it reports its flows. If not, and in reactive mode, segments that open or close flows
    are copied to the controller for all hosts. For unknown hosts they always are. A host with its neighbours'
    addresses in its cache sends no ARP, so these copies are the way to learn it; frames to a host that was
    never heard are flooded.

    ``limited``: the ports that get meters. A port keeps them while it is down, so that a port that flaps
    costs the switch nothing.

    ``was_links``, ``claims`` and ``generations`` come from the entries of earlier controllers.

    ``left``: the entries of its last session with this controller; the links of that session are in
    ``was_links``. They are deleted when its links are found again, except the ones that are still wanted.
    """

    up_ns: int
    reports: bool = False
    table: Table = field(default_factory=dict)
    limited: set[int] = field(default_factory=set)
    was_links: set[int] = field(default_factory=set)
    claims: list[tuple[str, int]] = field(default_factory=list)
    generations: set[int] = field(default_factory=set)
    left: Table = field(default_factory=dict)


@dataclass(slots=True)
class _LastSession:
    """The entries that a switch had when its session ended, and the numbers of the ports that were links."""

    table: Table = field(default_factory=dict)
    links: set[int] = field(default_factory=set)


class Network:
    """The topology as of the last ``refresh``. All permanent entries are decided here.

    If no path leads to a host, the entries towards it stay, because its switch may only have lost its
    controller. They cannot loop: each leads to a switch that lost its path no earlier.
    """

    def __init__(
        self, discovery: Discovery, limits: HostLimits, entries: FlowEntries, rates: MeterRates
    ) -> None:
        self.discovery = discovery
        self.tracking = HostTracking(limits, discovery.is_port_up, lambda dpid: dpid in self._switches)
        self.hosts = self.tracking.hosts
        self.paths = Paths(Graph())
        self.entries = entries
        self.meters = Meters(rates)
        self._most_claims = limits.max_hosts
        self._switches: dict[int, _Switch] = {}
        self._last_sessions: dict[int, _LastSession] = {}
        self._numbers: dict[int, int] = {}
        self._edges: dict[int, tuple[int, ...]] = {}
        self._edge_ports: set[PortKey] = set()
        self._links: set[Link] = set()
        self._versions = _NEVER

    def switch_up(self, dpid: int, now_ns: int) -> list[Decision]:
        """A switch connected: it gets the entries by which the controller learns its hosts."""
        self.switch_down(dpid)
        self._numbers.setdefault(dpid, len(self._numbers) + 1)
        switch = self._switches[dpid] = _Switch(now_ns)
        switch.table = table_of(self.entries.permanent())
        stale = (
            self.entries.known_host(host.mac, host.port.port_no)
            for host in self.hosts
            if host.port.dpid == dpid
        )
        return [Put(dpid, tuple(switch.table.values()), tuple(stale))]

    def switch_down(self, dpid: int) -> None:
        """A switch disconnected."""
        if switch := self._switches.pop(dpid, None):
            last = self._last_sessions.setdefault(dpid, _LastSession())
            last.table |= switch.left | switch.table
            last.links |= switch.was_links | self.discovery.link_ports(dpid)
        self._edges.pop(dpid, None)
        self.discovery.switch_gone(dpid)
        self.meters.forget(dpid)
        self._versions = _NEVER

    def port_up(self, port: PortKey, now_ns: int) -> None:
        self.discovery.port_up(port, now_ns)
        if port.dpid in self._switches and port.port_no in self._switches[port.dpid].was_links:
            self.discovery.was_link(port)

    def port_down(self, port: PortKey) -> None:
        self.discovery.port_down(port)
        if port.dpid in self._switches:
            self._switches[port.dpid].was_links.discard(port.port_no)

    def inherit(
        self,
        dpid: int,
        hosts: Iterable[tuple[str, int]],
        link_ports: Iterable[int],
        generations: Iterable[int],
    ) -> None:
        """Take over the content of earlier controllers' entries: hosts (MAC, port number) and link ports."""
        if switch := self._switches.get(dpid):
            switch.claims += islice(hosts, _room(switch.claims, self._most_claims))
            switch.generations.update(islice(generations, _room(switch.generations, MOST_GENERATIONS)))
            self._were_links(dpid, link_ports)

    def end_last_session(self, dpid: int, kept: bool) -> None:
        """Take over the entries of the last session of a switch, if the switch ``kept`` them."""
        switch, last = self._switches.get(dpid), self._last_sessions.pop(dpid, None)
        if switch and last and kept:
            switch.left = last.table
            self._were_links(dpid, last.links)
            self._versions = _NEVER

    def _were_links(self, dpid: int, port_nos: Iterable[int]) -> None:
        switch = self._switches[dpid]
        named = list(islice(port_nos, _room(switch.was_links, MOST_WAS_LINKS)))
        switch.was_links.update(named)
        for port_no in named:
            self.discovery.was_link(PortKey(dpid, port_no))

    def reports_flows(self, dpid: int) -> None:
        """A switch reports its flows."""
        if switch := self._switches.get(dpid):
            switch.reports = True
            self._versions = _NEVER

    def is_reporting(self, dpid: int) -> bool:
        """Whether a switch reports its flows."""
        switch = self._switches.get(dpid)
        return switch is not None and switch.reports

    @property
    def edges(self) -> dict[int, tuple[int, ...]]:
        """The edge ports of every switch."""
        return self._edges

    def learn(self, seen: Sighting, now_ns: int) -> tuple[list[Decision], bool]:
        """A host sent a frame through a port. Returns also whether the frame may be answered or forwarded.

        A host at an edge port does not move to a port that may be a link.
        """
        edge, known = self.discovery.is_edge(seen.at, now_ns), self.hosts.get(seen.mac)
        if edge is False or (edge is None and known and self.discovery.is_edge(known.port, now_ns)):
            return [], self.tracking.owns(seen)
        outcome = self.tracking.sighted(seen, now_ns)
        return self._follow(outcome.events), outcome.served

    def lease(self, mac: str, ip: str, now_ns: int) -> list[Decision]:
        """A trusted DHCP server gave a host an address."""
        return self._follow(self.tracking.leased(mac, ip, now_ns))

    def track(self, now_ns: int) -> tuple[list[Decision], list[Sighting]]:
        """Time has passed: silent hosts are probed, lost hosts are removed, and claims are granted."""
        events, granted = self.tracking.tick(now_ns)
        return self._follow(events), granted

    def _follow(self, events: Iterable[Event]) -> list[Decision]:
        """The entries that follow from the changes of hosts."""
        decisions: list[Decision] = []
        for event in events:
            if isinstance(event, Placed):
                host, before = event.host, event.before
                left = before.port if before is not None and before.port != host.port else None
                decisions.append(Learned(host, left))
                if left is not None:
                    decisions += self._drop([self.entries.known_host(host.mac, left.port_no).place])
                decisions += self._lead_to(host)
            else:
                decisions.append(event)
            if isinstance(event, Lost):
                decisions += self._drop(self._places_of(event.host))
        return decisions

    def path(self, key: FiveTuple, src: PortKey, dst: PortKey) -> tuple[Hop, ...]:
        """The path of a flow between two ports; empty if none is known."""
        if src.dpid == dst.dpid:
            return (Hop(src.dpid, src.port_no, dst.port_no),)
        return self.paths.between(src, dst, bucket_of(key)) or ()

    def path_of_hosts(self, key: FiveTuple) -> tuple[Hop, ...]:
        """The path of a flow between the ports of its two hosts; empty if one is unknown or there is none."""
        src, dst = self.hosts.with_ip(key.src), self.hosts.with_ip(key.dst)
        return self.path(key, src.port, dst.port) if src and dst else ()

    def path_seen(self, key: FiveTuple, seen: Mapping[int, int]) -> tuple[Hop, ...]:
        """The path of a flow that leaves switches (dpid) by the ports ``seen``."""
        path = self.path_of_hosts(key)
        known = {hop.dpid: hop.out_port for hop in path}
        if path and all(known.get(dpid) == port_no for dpid, port_no in seen.items()):
            return path
        src = self.hosts.with_ip(key.src)
        path = seen_path(self.paths.graph, seen)
        if src and path[0].dpid == src.port.dpid:
            path = (Hop(path[0].dpid, src.port.port_no, path[0].out_port), *path[1:])
        return path

    def path_now(self, key: FiveTuple, path: tuple[Hop, ...]) -> tuple[Hop, ...]:
        """The new path of a flow; its old ``path`` if there is no new one or its ends are unknown."""
        if not path:
            return self.path_of_hosts(key)
        src, dst = PortKey(path[0].dpid, path[0].in_port), path[-1].port
        if not {src, dst} <= self._edge_ports:
            return path
        return self.path(key, src, dst) or path

    def refresh(self, now_ns: int) -> list[Decision]:
        """The decisions after changes: link events, entries to add and delete, learned hosts, meters."""
        changes = [] if self._versions == self._versions_now else self._update(now_ns)
        return [*changes, *self._sweep(now_ns)]

    def _update(self, now_ns: int) -> list[Decision]:
        """The decisions after a change of the topology or of the meters."""
        self._versions = self._versions_now
        links = self.discovery.links()
        decisions: list[Decision] = [LinkDown(link) for link in self._links - links]
        decisions += [LinkUp(link) for link in links - self._links]
        self._links = links
        graph = Graph(self._switches, links)
        if (graph.switches, graph.links) != (self.paths.graph.switches, self.paths.graph.links):
            self.paths = Paths(graph)
        for dpid in self._switches:
            decisions += self._forget_hosts_on_links(dpid)
            self._edges[dpid] = self._edges_of(dpid, now_ns)
        self._edge_ports = {PortKey(dpid, port_no) for dpid in self._edges for port_no in self._edges[dpid]}
        decisions += self._take_claims(now_ns)
        for dpid in self._switches:
            changes = self.meters.changes(dpid, self._limited(dpid, now_ns))
            decisions += self._put(dpid, table_of(self._wanted(dpid)))
            decisions += [SetMeters(dpid, changes)] if changes else []
        return decisions

    @property
    def _versions_now(self) -> tuple[int, int]:
        return self.discovery.version, self.meters.version

    def due_ns(self) -> int:
        """The time at which ``refresh`` or a probe is due if nothing happens until then; 0: at once."""
        waits = any(switch.generations or switch.left for switch in self._switches.values())
        if waits or self._versions != self._versions_now:
            return 0
        return min(self.discovery.due_ns, self.tracking.due_ns)

    def forget_port(self, port: PortKey) -> list[Decision]:
        """A port was removed, with the hosts behind it."""
        if switch := self._switches.get(port.dpid):
            switch.limited.discard(port.port_no)
            self._versions = _NEVER
        return self._follow(Lost(host) for host in self.tracking.forget_port(port))

    def _places_of(self, host: Host) -> list[Place]:
        """The places of a host's entries."""
        known = self.entries.known_host(host.mac, host.port.port_no)
        return [self.entries.to_host(host.mac, (0,), 0).place, known.place]

    def _drop(self, places: list[Place]) -> list[Decision]:
        """Delete the entries in these places at all switches."""
        decisions: list[Decision] = []
        for dpid, switch in self._switches.items():
            known = (switch.left, switch.table)
            gone = {place: table.pop(place) for table in known for place in places if place in table}
            decisions += [Put(dpid, deleted=tuple(gone.values()))] if gone else []
        return decisions

    def _forget_hosts_on_links(self, dpid: int) -> list[Decision]:
        """A port that became a link has no hosts."""
        ports = (PortKey(dpid, port_no) for port_no in self.discovery.link_ports(dpid))
        return self._follow(Lost(host) for port in ports for host in self.tracking.forget_port(port))

    def _edges_of(self, dpid: int, now_ns: int) -> tuple[int, ...]:
        """The edge ports of a switch."""
        ports = self.discovery.ports(dpid)
        return tuple(sorted(port.port_no for port in ports if self.discovery.is_edge(port, now_ns)))

    def _limited(self, dpid: int, now_ns: int) -> set[int]:
        """The ports of a switch that get meters: all that have been up, except links."""
        limited = self._switches[dpid].limited
        for port in self.discovery.ports(dpid):
            if self.discovery.is_edge(port, now_ns) is False:
                limited.discard(port.port_no)
            else:
                limited.add(port.port_no)
        return limited

    def _take_claims(self, now_ns: int) -> list[Decision]:
        """Hosts that an earlier controller knew at a port that is an edge port."""
        events: list[Event] = []
        for dpid, switch in self._switches.items():
            edges = set(self._edges[dpid])
            for mac, port_no in switch.claims:
                if port_no in edges:
                    events += self.tracking.inherit(mac, PortKey(dpid, port_no), now_ns)
            switch.claims = [claim for claim in switch.claims if claim[1] not in edges]
        return [Learned(event.host) if isinstance(event, Placed) else event for event in events]

    def _sweep(self, now_ns: int) -> list[Decision]:
        """Delete the entries of earlier controllers and sessions, as soon as others have replaced them."""
        due: list[Decision] = []
        for dpid, switch in self._switches.items():
            if not switch.generations and not switch.left:
                continue
            ports = self.discovery.ports(dpid)
            settled = ports and all(self.discovery.is_edge(port, now_ns) is not None for port in ports)
            linked = {end.port_no for link in self._links for end in link.ends if end.dpid == dpid}
            late = now_ns - switch.up_ns > SWEEP_LATEST_NS
            if settled and (late or switch.was_links <= linked):
                unwanted = tuple(entry for place, entry in switch.left.items() if place not in switch.table)
                due += [Sweep(dpid, frozenset(switch.generations))] if switch.generations else []
                due += [Put(dpid, deleted=unwanted)] if unwanted else []
                switch.generations.clear()
                switch.left.clear()
        return due

    def _wanted(self, dpid: int) -> Iterator[Entry]:
        """All permanent entries of a switch."""
        switch = self._switches[dpid]
        if limited := self.meters.of_ports(dpid):
            yield from self.entries.limits(limited)
        yield from self.entries.permanent(bool(limited))
        ports = self.discovery.ports(dpid)
        edges = self._edges[dpid]
        tree = {port.port_no for port in self.paths.graph.tree_ports if port.dpid == dpid}
        linked = {end.port_no for link in self._links for end in link.ends if end.dpid == dpid}
        was_linked = {port_no for port_no in switch.was_links if PortKey(dpid, port_no) in ports}
        yield from self.entries.ports(linked | was_linked, tree, edges)
        choices = list(self._to_switches(dpid))
        if choices:
            yield from self.entries.buckets()
            yield from choices
        for host in self.hosts:
            yield from self._for_host(dpid, host)

    def _to_switches(self, dpid: int) -> Iterator[Entry]:
        for to in self.hosts.switches - {dpid}:
            ports = self.paths.ports(dpid, to)
            if ports is not None:
                yield from self.entries.to_switch(self._numbers[to], ports)
            else:
                ways = self.entries.to_switch(self._numbers[to], tuple(range(BUCKETS)))
                had = (self._had(dpid, way.place) for way in ways)
                yield from (entry for entry in had if entry is not None)

    def _for_host(self, dpid: int, host: Host) -> Iterator[Entry]:
        if entry := self._to_host(dpid, host):
            yield entry
        spared = self._switches[dpid].reports and not self.entries.reactive
        if host.port.dpid == dpid and spared and not self.tracking.is_unheard(host.mac):
            yield self.entries.known_host(host.mac, host.port.port_no)

    def _to_host(self, dpid: int, host: Host) -> Entry | None:
        if host.port.dpid == dpid:
            return self.entries.to_host(host.mac, (host.port.port_no,), 0)
        ports = self.paths.ports(dpid, host.port.dpid)
        if ports is not None:
            return self.entries.to_host(host.mac, ports, self._numbers[host.port.dpid])
        return self._had(dpid, self.entries.to_host(host.mac, (0,), 0).place)

    def _had(self, dpid: int, place: Place) -> Entry | None:
        """The entry that a switch has in a place, in this session or from the last one."""
        switch = self._switches[dpid]
        return switch.table.get(place) or switch.left.get(place)

    def _lead_to(self, host: Host) -> Iterator[Decision]:
        """The entries that lead to a new or moved host, and to its switch if it is the first host there."""
        first = self.hosts.count_at_switch(host.port.dpid) == 1
        for dpid, switch in self._switches.items():
            choices = list(self._to_switches(dpid)) if first else []
            entries = [*self.entries.buckets(), *choices] if choices else []
            entries += self._for_host(dpid, host)
            if added := tuple(entry for entry in entries if switch.table.get(entry.place) != entry):
                switch.table |= table_of(added)
                yield Put(dpid, added)

    def _put(self, dpid: int, wanted: Table) -> list[Decision]:
        added, deleted = difference(self._switches[dpid].table, wanted)
        self._switches[dpid].table = wanted
        return [Put(dpid, tuple(added), tuple(deleted))] if added or deleted else []


def _room(kept: Sized, most: int) -> int:
    """How many more may be kept."""
    return max(most - len(kept), 0)
