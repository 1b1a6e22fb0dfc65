"""Which ports are links and which lead to hosts: told by our own LLDP frames. Pure; time in nanoseconds.

A port that comes up is probed at once and then every ``interval_ns``, less often (``EDGE_FACTOR``) when it
has turned out to be an edge port. There is a link where each of two ports hears the other's probes. A probe
counts only while it is one of its port's last two, so that a recorded frame says nothing later; one that
comes back by its own port says nothing; one that comes in at two ports came over no cable, and its port has
no link until ``lost_after`` probes came in properly again. As many in a row that nobody hears end a link:
probes are counted, not time, so that a controller that was held up loses none. A port that goes down ends
its link at once.

An edge port has been up for ``settle_ns`` and never heard a probe of ours. Until then it is neither, and
nothing is flooded there: what a loop needs to run is not given to it before the loop is seen. A port that
was a link once is no edge port before it went down: behind it may be a switch that lost its controller and
still floods as it was told to.

Not defended against: two hosts, or one with two ports, that pass every probe on at once in both directions.
They are a cable.
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
    """``hears``: it has heard a probe. ``heard_at``: where its own are heard; ``came_in``: the last one."""

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

    ``forged`` counts frames that claimed to be ours and were refused. ``version`` grows whenever a link or
    an edge port may have come or gone.
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
        """A port is there and up; of one that was so before nothing changes."""
        if port not in self._ports:
            self._ports[port] = _Port(now_ns, now_ns)
            self._next_ns = now_ns
            self._settles_ns.append(now_ns + self._settle_ns)
            self.version += 1

    def port_down(self, port: PortKey) -> None:
        """A port went down or is gone."""
        if self._ports.pop(port, None):
            self.version += 1

    def switch_gone(self, dpid: int) -> None:
        """A switch's session ended: none of its ports can be probed, or tell what it hears."""
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

    def links(self) -> set[Link]:
        """The links as they stand."""
        return {
            Link.of(port, state.heard_at)
            for port, state in self._ports.items()
            if state.heard_at is not None and self._is_heard_at(state.heard_at, port)
        }

    def is_edge(self, port: PortKey, now_ns: int) -> bool | None:
        """Whether a port leads to hosts, or to nobody; None: that is not known yet."""
        state = self._ports.get(port)
        if state is None:
            return None
        if state.hears:
            return False
        return True if now_ns - state.up_ns >= self._settle_ns else None

    def due(self, now_ns: int) -> list[tuple[PortKey, bytes]]:
        """The probes to send now, each with its port."""
        if self._settles_ns and self._settles_ns[0] <= now_ns:
            self._settles_ns = [at for at in self._settles_ns if at > now_ns]
            self.version += 1
        if now_ns < self._next_ns:
            return []
        probes = [self._probe(port, now_ns) for port, state in self._ports.items() if state.next_ns <= now_ns]
        self._next_ns = min((state.next_ns for state in self._ports.values()), default=now_ns)
        return probes

    def heard(self, at: PortKey, data: bytes, now_ns: int) -> list[tuple[PortKey, bytes]]:
        """An LLDP frame came in at a port. Returns the probe that answers it, if it was news.

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
            raise ForgedFrame(f"LLDP of port {probe.port}: none of its last probes")
        if probe.port == at:
            raise ForgedFrame(f"LLDP of port {probe.port}: it came back by its own port")

    def _note(self, sender: _Port, came_in: tuple[int, PortKey]) -> None:
        """A probe was heard; the same one at a second place is contradictory."""
        last = sender.came_in
        sender.came_in = came_in
        if last is not None and last[0] == came_in[0]:
            if last != came_in:
                sender.heard_at, sender.crooked = None, self._lost_after
            return
        sender.unheard = 0
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
        state.sent = (*state.sent[-1:], self._serial)
        rare = self.is_edge(port, now_ns)
        state.next_ns = now_ns + self._interval_ns * (EDGE_FACTOR if rare else 1)
        self._next_ns = min(self._next_ns, state.next_ns)
        return port, lldp.encode(Probe(port, self._serial), self._key)
