"""Which ports are links and which lead to hosts, from the fabric's LLDP frames. Pure; time in nanoseconds.

Probing. A port that comes up is probed at once and then every ``interval_ns``; an edge port is probed less
often (``EDGE_FACTOR``). There is a link between two ports if each hears the other's probes.

Probes that do not count:

- a probe that is not one of the last ``lost_after`` of its port: a recorded frame proves nothing later;
- a probe that returns through its own port;
- a probe that arrives at two ports, or at another port than a later one, because it came over no cable. Its
  port then has no link until ``lost_after`` probes have arrived at one port again.

Loss. ``lost_after`` probes in a row that no port hears end a link. Probes are counted instead of time, so a
controller that was delayed loses no link. A probe that was delayed counts for the time at which it was sent.
A port that goes down loses its link at once.

Edge ports. An edge port has been up for ``settle_ns`` without hearing a probe. Before that time nothing is
flooded there, so that a loop is detected before it can carry a flood. A port that was a link becomes an edge
port only after it went down: a switch without a controller may still be behind it and flood by its old
entries.

Not defended against: two hosts, or one host with two ports, that forward every probe at once in both
directions. They behave like a cable.
"""

from __future__ import annotations

from dataclasses import dataclass

from fabric_app import lldp
from fabric_app.graph import Link
from fabric_app.lldp import ForgedFrame, Probe
from flowdb.flow import PortKey

EDGE_FACTOR = 10


@dataclass(slots=True)
class _Port:
    """``hears``: it has heard a probe. ``heard_at``: where its probes arrive; ``came_in``: the last one."""

    up_ns: int
    next_ns: int
    hears: bool = False
    heard_at: PortKey | None = None
    sent: tuple[int, ...] = ()
    came_in: tuple[int, PortKey] | None = None
    unheard: int = 0
    crooked: int = 0


class Discovery:
    """The state of all ports.

    ``forged`` counts refused frames that claimed to be the fabric's. ``version`` grows whenever a link or an
    edge port may have changed.
    """

    def __init__(self, key: bytes, interval_ns: int, settle_ns: int, lost_after: int) -> None:
        self.forged = 0
        self.version = 0
        self._key = key
        self._interval_ns = interval_ns
        self._settle_ns = settle_ns
        self._lost_after = lost_after
        self._serial = 0
        self._ports: dict[PortKey, _Port] = {}
        self._next_ns = 0
        self._settles_ns: list[int] = []

    def port_up(self, port: PortKey, now_ns: int) -> None:
        """A port is up. If it was up before, nothing changes."""
        if port not in self._ports:
            self._ports[port] = _Port(now_ns, now_ns)
            self._next_ns = now_ns
            self._settles_ns.append(now_ns + self._settle_ns)
            self.version += 1

    def port_down(self, port: PortKey) -> None:
        """A port went down or was removed."""
        if self._ports.pop(port, None):
            self.version += 1

    def switch_gone(self, dpid: int) -> None:
        """A switch disconnected: its ports can neither be probed nor report probes."""
        for port in self.ports(dpid):
            self.port_down(port)

    def was_link(self, port: PortKey) -> None:
        """An earlier controller knew a port as a link."""
        if port in self._ports:
            self._ports[port].hears = True
            self.version += 1

    def ports(self, dpid: int) -> set[PortKey]:
        """A switch's ports that are up."""
        return {port for port in self._ports if port.dpid == dpid}

    def link_ports(self, dpid: int) -> set[int]:
        """The numbers of the ports of a switch that have heard a probe."""
        return {port.port_no for port in self.ports(dpid) if self._ports[port].hears}

    def is_port_up(self, port: PortKey) -> bool:
        """Whether a port is up and its switch connected."""
        return port in self._ports

    def links(self) -> set[Link]:
        """The current links."""
        return {
            Link.of(port, state.heard_at)
            for port, state in self._ports.items()
            if state.heard_at is not None and self._is_heard_at(state.heard_at, port)
        }

    def is_edge(self, port: PortKey, now_ns: int) -> bool | None:
        """Whether a port leads to hosts or to nothing; None: that is still unknown."""
        state = self._ports.get(port)
        if state is None:
            return None
        if state.hears:
            return False
        return True if now_ns - state.up_ns >= self._settle_ns else None

    @property
    def due_ns(self) -> int:
        """The time at which ``due`` next has something to do."""
        return min(self._next_ns, *self._settles_ns[:1]) if self._settles_ns else self._next_ns

    def due(self, now_ns: int) -> list[tuple[PortKey, bytes]]:
        """The probes that are due, each with its port."""
        if self._settles_ns and self._settles_ns[0] <= now_ns:
            self._settles_ns = [at for at in self._settles_ns if at > now_ns]
            self.version += 1
        if now_ns < self._next_ns:
            return []
        probes = [self._probe(port, now_ns) for port, state in self._ports.items() if state.next_ns <= now_ns]
        self._next_ns = min((state.next_ns for state in self._ports.values()), default=now_ns)
        return probes

    def heard(self, at: PortKey, data: bytes, now_ns: int) -> list[tuple[PortKey, bytes]]:
        """An LLDP frame arrived at a port. Returns the probe that answers it, if the port had heard none.

        Raises ForeignFrame, ForgedFrame (counted), MalformedFrame.
        """
        try:
            probe = lldp.decode(data, self._key)
            self._check(probe, at)
        except ForgedFrame:
            self.forged += 1
            raise
        receiver, sender = self._ports.get(at), self._ports[probe.port]
        if receiver is None:
            return []
        news = not receiver.hears
        receiver.hears = True
        was = sender.heard_at
        self._note(sender, (probe.serial, at))
        if news or sender.heard_at != was:
            self.version += 1
        return [self._probe(at, now_ns)] if news else []

    def _check(self, probe: Probe, at: PortKey) -> None:
        sender = self._ports.get(probe.port)
        if sender is None or probe.serial not in sender.sent:
            raise ForgedFrame(f"LLDP of port {probe.port}: not one of its last probes")
        if probe.port == at:
            raise ForgedFrame(f"LLDP of port {probe.port}: it returned through its own port")

    def _note(self, sender: _Port, came_in: tuple[int, PortKey]) -> None:
        """Note where a probe arrived. The same probe at a second place is a contradiction."""
        last = sender.came_in
        if last is not None and came_in[0] <= last[0]:
            if last[1] != came_in[1]:
                sender.heard_at, sender.crooked = None, self._lost_after
            return
        sender.came_in = came_in
        sender.unheard = len(sender.sent) - 1 - sender.sent.index(came_in[0])
        if sender.crooked:
            sender.crooked -= 1
        else:
            sender.heard_at = came_in[1]

    def _is_heard_at(self, port: PortKey, other: PortKey) -> bool:
        state = self._ports.get(port)
        return state is not None and state.heard_at == other

    def _probe(self, port: PortKey, now_ns: int) -> tuple[PortKey, bytes]:
        state = self._ports[port]
        if state.unheard >= self._lost_after and state.heard_at is not None:
            state.heard_at = None
            self.version += 1
        self._serial += 1
        state.unheard += 1
        state.sent = (*state.sent[1 - self._lost_after :], self._serial)
        rare = self.is_edge(port, now_ns)
        state.next_ns = now_ns + self._interval_ns * (EDGE_FACTOR if rare else 1)
        self._next_ns = min(self._next_ns, state.next_ns)
        return port, lldp.encode(Probe(port, self._serial), self._key)
