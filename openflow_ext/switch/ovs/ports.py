"""The ports of one bridge: their programs, settings and capacity."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openflow_ext.switch.dataplane.interface import (
    DataPlane,
    DataPlaneError,
    NoShare,
    NoSuchPort,
    PortSettings,
    QueueEvent,
    QueueEventKind,
)
from openflow_ext.switch.dataplane.rules import Rule
from openflow_ext.switch.ovs.egress import DEFAULT_RATE_BPS, Egress
from openflow_ext.wire import OFPP_ANY

log = logging.getLogger(__name__)

_DISTRUST_N_I_S = 10.0
"""After the flow table has refused a flow, N_i is too small, so the port sets no fair share for this time."""
_REASONS = {
    NoShare.CAPACITY: "their capacity is unknown: shape them, or set capacity_bps",
    NoShare.QUEUE: "they have no queue: give them a qdisc",
    NoShare.TABLE: "the flow table is full: raise [switch] max_flows",
}


@dataclass(frozen=True, slots=True)
class Link:
    """A port as Open vSwitch describes it: interface number, interface name, OpenFlow port number."""

    ifindex: int
    name: str
    ofport: int


@dataclass(slots=True, eq=False)
class Port:
    """A port that should carry the programs.

    ``egress``: the rate and queue of its qdisc or link. ``in_kernel``: the programs are those for the kernel
    datapath. ``reflex_level``: reflex entries of a lower rank are
    active. ``no_share``: why the port sets no fair share; ``logged``: the part of that in the log.
    ``untracked``: the number of flows that the flow table refused, the last of them at ``refused_s``.
    """

    link: Link
    egress: Egress = Egress()
    settings: PortSettings = field(default_factory=PortSettings)
    attached: bool = False
    in_kernel: bool = False
    armed: tuple[Rule, ...] = ()
    reflex_level: int = 0
    untracked: int = 0
    refused_s: float = float("-inf")
    no_share: NoShare = NoShare.NONE
    logged: NoShare = NoShare.NONE

    @property
    def capacity_bps(self) -> int:
        """The rate in force in bit/s: the controller's if it set one, else the port's own."""
        return self.settings.capacity_bps or self.egress.rate_bps

    def reasons_for_no_share(self, untracked: int, now_s: float) -> NoShare:
        """Why the port may set no fair share. ``untracked``: the flows that the flow table has refused."""
        reasons = self.egress.lacks
        if self.settings.capacity_bps:
            reasons &= ~NoShare.CAPACITY
        if untracked > self.untracked:
            self.untracked, self.refused_s = untracked, now_s
        return reasons | (NoShare.TABLE if now_s - self.refused_s < _DISTRUST_N_I_S else NoShare.NONE)

    def switched(self, event: QueueEvent) -> range:
        """The ranks of the reflex entries that an event reports as activated or released."""
        if event.kind is QueueEventKind.REFLEX_ON:
            self.reflex_level = event.rank + 1
            return range(event.rank, event.rank + 1)
        if event.kind is QueueEventKind.REFLEX_OFF:
            ranks, self.reflex_level = range(max(self.reflex_level, 1)), 0
            return ranks
        return range(0)


class Ports:
    """The ports of one bridge, by ifindex and by OpenFlow port number.

    ``adopted``: interfaces that carry an earlier agent's programs; their settings stay in force.
    ``kernel_datapath``: Open vSwitch forwards in the kernel instead of in userspace. ``settings``: the
    settings of each port until a controller changes them. ``observes``: no port ever changes a packet.
    ``off``: the same, until ``switch`` ends it. ``switched`` is called with each change of it.
    """

    def __init__(
        self,
        bridge: int,
        dataplane: DataPlane,
        adopted: Collection[int] = (),
        kernel_datapath: bool = False,
        settings: PortSettings | None = None,
        *,
        observes: bool = False,
        off: bool = False,
        switched: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self.kernel_datapath = kernel_datapath
        self._observes, self.off, self._switched = observes, off, switched
        self._bridge = bridge
        self._dataplane = dataplane
        self._adopted = set(adopted)
        self._undetached: set[int] = set()
        self._ports: dict[int, Port] = {}
        self._settings = settings or PortSettings()
        self._distrusted: set[int] = set()

    def __iter__(self) -> Iterator[Port]:
        return iter(self._ports.values())

    def __len__(self) -> int:
        return len(self._ports)

    def get(self, ifindex: int) -> Port | None:
        """The port on an interface."""
        return self._ports.get(ifindex)

    def numbered(self, port_no: int) -> Port:
        """The port of an OpenFlow port number. Raises NoSuchPort."""
        for port in self:
            if port.link.ofport == port_no:
                return port
        raise NoSuchPort(f"the bridge has no port {port_no} that can carry the programs")

    def detach_missing(self, links: Collection[Link]) -> None:
        """Detach the ports that the bridge no longer has. One that cannot be detached is tried at each call.

        A port may have moved to another bridge, so call this for every bridge before ``sync`` of any.
        """
        wanted = {link.ifindex for link in links}
        self._undetached -= wanted
        if self._undetached:
            owners = self._dataplane.attached()
            self._undetached = {i for i in self._undetached if owners.get(i) == self._bridge}
        if gone := {*self._ports, *self._adopted, *self._undetached} - wanted:
            self._detach(gone)

    def sync(self, links: Collection[Link], egresses: Mapping[int, Egress]) -> None:
        """Attach new ports, retry ports that failed, and update the capacity of the ports in ``egresses``.

        After a change of ``kernel_datapath`` the programs of all ports are exchanged. A port that cannot be
        attached is logged once and tried again at the next call.
        """
        for link in links:
            port = self._ports.get(link.ifindex)
            if port is None or port.link != link or port.in_kernel != self.kernel_datapath:
                before = port or Port(link, settings=self._settings)
                port = dataclasses.replace(before, link=link, attached=False, in_kernel=self.kernel_datapath)
                port.egress = egresses.get(link.ifindex, before.egress)
                self._ports[link.ifindex] = port
                self._attach(port, first=True)
            elif not port.attached:
                self._attach(port, first=False)
            if link.ifindex in egresses:
                self._update_egress(port, egresses[link.ifindex])
        self._log_shares()

    @property
    def unfinished(self) -> bool:
        """Whether a port does not carry the programs, or an interface that has left the bridge does."""
        return bool(self._undetached) or not all(port.attached for port in self)

    def update(self, egresses: Mapping[int, Egress]) -> None:
        """Take over changed rates and queues. Other interfaces are ignored."""
        for ifindex in egresses.keys() & self._ports.keys():
            self._update_egress(self._ports[ifindex], egresses[ifindex])
        self._log_shares()

    def check_programs(self, ifindexes: Collection[int]) -> bool:
        """Whether another tool has detached programs from ports among ``ifindexes``.

        The next ``sync`` attaches them again.
        """
        attached = [ifindex for ifindex in ifindexes if (port := self.get(ifindex)) and port.attached]
        lost = self._dataplane.without_programs(attached)
        for ifindex in lost:
            self._ports[ifindex].attached = False
            log.warning("port %s: its programs were detached by another tool", self._ports[ifindex].link.name)
        return bool(lost)

    def distrust(self, untracked: Mapping[int, int], now_s: float) -> None:
        """Stop the shares of ports whose N_i is too small, and let them be set again after a while.

        ``untracked``: the ports at which the flow table has refused flows, with the number of these flows.
        """
        doubtful = (self._distrusted | untracked.keys()) & self._ports.keys()
        for port in [self._ports[ifindex] for ifindex in doubtful]:
            refused = untracked.get(port.link.ifindex, 0)
            if port.attached and port.reasons_for_no_share(refused, now_s) != port.no_share:
                self._push_or_log(port)
        if doubtful:
            self._log_shares()

    def _attach(self, port: Port, first: bool) -> None:
        link = port.link
        adopted = link.ifindex in self._adopted
        try:
            if adopted:
                port.settings, _ = self._dataplane.settings(link.ifindex)
                port.armed = tuple(rule for rule, _ in self._dataplane.armed(link.ifindex))
                port.reflex_level = self._dataplane.reflex_level(link.ifindex)
            self._dataplane.attach(
                link.ifindex, link.name, self._bridge, link.ofport, kernel_datapath=self.kernel_datapath
            )
            if adopted:
                port.untracked = self._dataplane.counters(link.ifindex).untracked
            self._push(port)
        except DataPlaneError as error:
            if first:
                log.error("port %s (%d) cannot carry the programs: %s", link.name, link.ofport, error)
            return
        self._adopted.discard(link.ifindex)
        port.attached = True
        log.info("port %s (%d) %s", link.name, link.ofport, "adopted" if adopted else "attached")

    def _detach(self, gone: Collection[int]) -> None:
        kept = self._dataplane.detach(*gone)
        for ifindex in gone:
            port = self._ports.pop(ifindex, None)
            name = port.link.name if port else f"with ifindex {ifindex}"
            if ifindex not in kept:
                log.info("port %s detached", name)
            elif ifindex not in self._undetached:
                log.warning("port %s still carries the programs: %s", name, kept[ifindex])
        self._adopted.difference_update(gone)
        self._distrusted.difference_update(gone)
        self._undetached = self._undetached.difference(gone) | kept.keys()

    def _update_egress(self, port: Port, egress: Egress) -> None:
        same = egress == port.egress
        before, port.egress = port.capacity_bps, egress
        if not port.attached:
            return
        if port.capacity_bps != before:
            log.info("port %s: capacity is now %d bit/s", port.link.name, port.capacity_bps)
        if not same:
            self._push_or_log(port)

    def _push_or_log(self, port: Port) -> None:
        try:
            self._push(port)
        except DataPlaneError as error:
            log.error("port %s: %s", port.link.name, error)

    def _push(self, port: Port) -> None:
        no_share = port.reasons_for_no_share(port.untracked, time.monotonic())
        self._dataplane.configure(
            port.link.ifindex,
            port.settings,
            port.capacity_bps,
            port.egress.buffer_bytes,
            no_share,
            observes=self._observes or self.off,
        )
        port.no_share = no_share
        if no_share & NoShare.TABLE:
            self._distrusted.add(port.link.ifindex)
        else:
            self._distrusted.discard(port.link.ifindex)

    def _log_shares(self) -> None:
        """Log once at which ports a requested fair share cannot be set, and once when it can be again."""
        changed: dict[NoShare, list[str]] = {}
        for port in self:
            now = port.no_share if port.settings.common_rtt_us else NoShare.NONE
            if now != port.logged:
                port.logged = now
                changed.setdefault(now, []).append(port.link.name)
        for no_share, names in changed.items():
            if no_share:
                why = "; ".join(_REASONS[reason] for reason in no_share)
                log.warning("ports %s count flows but clamp none: %s", ", ".join(names), why)
            else:
                log.info("ports %s set fair shares", ", ".join(names))

    def configure(self, port_no: int, **changes: Any) -> None:
        """Change settings of one port; with OFPP_ANY, of all present and future ports.

        Raises NoSuchPort; DataPlaneError for a single port that carries no programs.
        """
        if port_no == OFPP_ANY:
            self._settings = dataclasses.replace(self._settings, **changes)
            for port in self:
                port.settings = dataclasses.replace(port.settings, **changes)
                if port.attached:
                    self._push(port)
            self._log_shares()
            return
        port = self._attached(port_no)
        before, port.settings = port.settings, dataclasses.replace(port.settings, **changes)
        try:
            self._push(port)
        except DataPlaneError:
            port.settings = before
            raise
        self._log_shares()

    def switch(self, off: bool) -> None:
        """Let no port change a packet, or let all act by their settings again. Counts and flows are kept.

        A port that cannot be changed is logged.
        """
        if off == self.off:
            return
        self.off = off
        for port in self:
            if port.attached:
                self._push_or_log(port)
        log.warning(
            "all ports %s", "are off: they change no packet" if off else "act by their settings again"
        )
        self._switched(off)

    def _attached(self, port_no: int) -> Port:
        port = self.numbered(port_no)
        if not port.attached:
            raise DataPlaneError(f"port {port.link.name} carries no programs")
        return port

    def arm(self, port_no: int, rules: Sequence[Rule]) -> None:
        """Replace a port's reflex entries, in the order of their rank. Raises NoSuchPort, DataPlaneError."""
        port = self._attached(port_no)
        self._dataplane.arm(port.link.ifindex, self._bridge, rules)
        port.armed = tuple(rules)

    def in_force(self, port_no: int) -> tuple[PortSettings, int]:
        """The settings and the capacity of a port. Raises NoSuchPort.

        OFPP_ANY: the settings of future ports and the smallest capacity of the present ones.
        """
        if port_no == OFPP_ANY:
            rates = [port.capacity_bps for port in self]
            return self._settings, self._settings.capacity_bps or min(rates, default=DEFAULT_RATE_BPS)
        port = self.numbered(port_no)
        return port.settings, port.capacity_bps
