"""OpenFlow meters that limit the frames that a switch sends to the controller for each port. Pure.

Each port except links has a meter for each ``Kind`` of frame. The rates are the limits that the controller
has for the port too, so an honest port loses nothing more. A port is limited when the switch has accepted all
its meters. Otherwise the controller alone limits it.

Ids are counted down from the greatest one that the switch allows, because other apps usually count up from 1.
An id that another app's meter has is passed over. A meter in the upper half of the ids that looks like the
fabric's is taken for one of an earlier session or controller, and is modified and used again. It is not
deleted, because an agent looks for lost entries after each deletion.

If another app deletes a meter of the fabric, the next reading of its counter shows it, and the port gets new
meters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum

from fabric_app.rates import BURST_S
from flowdb.flow import NS_PER_S, PortKey

MOST_IDS = 0xFFFF_0000
"""OFPM_MAX: the greatest id of a meter (OpenFlow 1.3, section A.3.4.4)."""
READ_NS = 2 * NS_PER_S
"""The time between two readings at a switch. Each is short, so that it delays no alarm."""
SUSPECT_NS = 10 * NS_PER_S
MOST_FOUND = 65_536
"""Meters that a switch may have from before."""
MOST_CONFLICTS = 64
"""Ids of a switch that turn out to be in use. After that it is not limited until its next session."""


class Kind(Enum):
    """The frames that a meter limits: hosts' answers to probes, TCP segments, all others."""

    ANSWERS = "answers"
    SEGMENTS = "segments"
    PACKET_INS = "packet-ins"


PortMeters = Mapping[Kind, int]
"""The ids of a port's meters."""


@dataclass(frozen=True, slots=True)
class Meter:
    """A meter that drops what exceeds ``per_s`` packets a second, and ``BURST_S`` times as many at once.

    ``exists``: an earlier session has added it.
    """

    id: int
    port_no: int
    kind: Kind
    per_s: int
    exists: bool = False

    @property
    def burst(self) -> int:
        """Packets that may come at once."""
        return self.per_s * BURST_S


@dataclass(frozen=True, slots=True)
class MeterRates:
    """Frames in a second of each kind.

    ``uplinks``: ports with any number of hosts. Their answers to probes are not limited.
    """

    per_s: Mapping[Kind, int]
    uplinks: Set[PortKey] = frozenset()

    def of_port(self, port: PortKey) -> Iterator[tuple[Kind, int]]:
        """The kinds of a port that are limited, with their rates."""
        for kind in Kind:
            if kind is not Kind.ANSWERS or port not in self.uplinks:
                yield kind, self.per_s[kind]


@dataclass(frozen=True, slots=True)
class MeterChanges:
    """Meters to delete by their ids, and then meters to add, or to modify if they exist."""

    added: tuple[Meter, ...] = ()
    deleted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A meter that a switch has. ``per_s`` and ``burst`` are 0 if it has not the form of the fabric's."""

    id: int
    per_s: int = 0
    burst: int = 0

    @property
    def has_own_form(self) -> bool:
        """Whether its form is that of the fabric's meters."""
        return self.burst > 0 and self.burst == self.per_s * BURST_S


@dataclass(slots=True)
class _Switch:
    """The meters of a switch that are set or being set.

    ``known``: it has stated the meters that it had before. ``taken``: ids of others. ``existing``: meters of
    earlier sessions. ``stale``: meters to delete. ``waiting``: meters that it has not confirmed. ``refused``:
    ports that get no meters. ``given_up``: no port gets any. ``counts``: what each meter has dropped; None:
    unknown, because an earlier session added it. ``suspects``: ports whose meters are read often, until when.
    ``turn``: the port that was read last.
    """

    most: int
    next_id: int
    known: bool = False
    taken: set[int] = field(default_factory=set)
    existing: set[int] = field(default_factory=set)
    stale: list[int] = field(default_factory=list)
    spare: list[int] = field(default_factory=list)
    meters: dict[int, Meter] = field(default_factory=dict)
    ports: dict[int, dict[Kind, int]] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    given_up: bool = False
    conflicts: int = 0
    counts: dict[int, int | None] = field(default_factory=dict)
    suspects: dict[int, int] = field(default_factory=dict)
    turn: int = -1
    read_ns: int = 0

    def new_id(self) -> int:
        """An id that is free; 0 if there is none."""
        if self.spare:
            return self.spare.pop()
        while self.next_id in self.taken:
            self.next_id -= 1
        found = max(self.next_id, 0)
        self.next_id -= 1
        return found

    def release(self, port_no: int) -> list[int]:
        """The port has no meters any more. Returns their ids."""
        ids = list(self.ports.pop(port_no, {}).values())
        for meter_id in ids:
            del self.meters[meter_id]
            self.counts.pop(meter_id, None)
            self.waiting.discard(meter_id)
        self.spare += [meter_id for meter_id in ids if meter_id not in self.taken]
        return ids

    def replace(self, gone: Meter) -> None:
        """The switch does not have this meter: the others of its port are deleted too."""
        self.stale += [meter_id for meter_id in self.release(gone.port_no) if meter_id != gone.id]

    def to_read(self, now_ns: int) -> set[int]:
        """The ports whose meters are read now."""
        known = self.suspects.items()
        self.suspects = {port_no: ends for port_no, ends in known if ends > now_ns and port_no in self.ports}
        self.turn = min((port for port in self.ports if port > self.turn), default=min(self.ports))
        return {*self.suspects, self.turn}


class Meters:
    """The meters of all connected switches.

    ``version`` grows whenever ``changes`` may have work. ``refusals`` counts messages that switches refused.
    """

    def __init__(self, rates: MeterRates) -> None:
        self.version = self.refusals = 0
        self._rates = rates
        self._switches: dict[int, _Switch] = {}

    def forget(self, dpid: int) -> None:
        """A session with a switch began or ended: nothing is known of its meters."""
        if self._switches.pop(dpid, None):
            self.version += 1

    def offered(self, dpid: int, most: int) -> None:
        """A switch can limit packets by meters with ids up to ``most``."""
        most = min(most, MOST_IDS)
        self._switches[dpid] = _Switch(most, next_id=most)

    def found(self, dpid: int, meters: Iterable[Found], last: bool) -> None:
        """Meters that a switch has from before. ``last``: these are the last ones.

        A switch that states more than ``MOST_FOUND`` is not limited.
        """
        switch = self._switches.get(dpid)
        if switch is None:
            return
        for meter in meters:
            is_own = meter.id > switch.most // 2 and meter.has_own_form
            (switch.existing if is_own else switch.taken).add(meter.id)
        switch.known = last
        self.version += 1
        if len(switch.existing) + len(switch.taken) > MOST_FOUND:
            self.forget(dpid)

    def changes(self, dpid: int, port_nos: Set[int]) -> MeterChanges | None:
        """What a switch needs so that exactly these ports have meters; None if it needs nothing.

        The caller deletes the entries that use a deleted meter first.
        """
        switch = self._switches.get(dpid)
        if switch is None or not switch.known:
            return None
        port_nos = set() if switch.given_up else port_nos
        deleted, switch.stale = switch.stale, []
        for port_no in switch.ports.keys() - port_nos:
            deleted += switch.release(port_no)
        switch.refused &= port_nos
        added: list[Meter] = []
        for port_no in sorted(port_nos - switch.ports.keys() - switch.refused):
            added += self._add(switch, PortKey(dpid, port_no))
        return MeterChanges(tuple(added), tuple(deleted)) if added or deleted else None

    def confirmed(self, dpid: int, ids: Iterable[int]) -> None:
        """A switch has processed the messages that set these meters, and has refused none that is left."""
        if switch := self._switches.get(dpid):
            switch.waiting.difference_update(ids)
            self.version += 1

    def refuse(self, meter: Meter, dpid: int, in_use: bool) -> None:
        """A switch has refused a meter. ``in_use``: because another app's meter has its id.

        A meter that existed may have been deleted meanwhile, so it is then added.
        """
        self.refusals += 1
        switch = self._switches.get(dpid)
        if switch is None or switch.meters.get(meter.id) != meter:
            return
        if in_use:
            switch.taken.add(meter.id)
        if in_use or meter.exists:
            switch.conflicts += 1
            switch.given_up |= switch.conflicts > MOST_CONFLICTS
        else:
            switch.refused.add(meter.port_no)
        switch.replace(meter)
        self.version += 1

    def unusable(self, dpid: int) -> None:
        """A switch has refused an entry that uses a meter: until its next session it is not limited."""
        self.refusals += 1
        if switch := self._switches.get(dpid):
            switch.given_up = True
            self.version += 1

    def of_ports(self, dpid: int) -> dict[int, PortMeters]:
        """The ports of a switch that are limited, with the ids of their meters."""
        switch = self._switches.get(dpid)
        if switch is None:
            return {}
        return {
            port_no: ids for port_no, ids in switch.ports.items() if switch.waiting.isdisjoint(ids.values())
        }

    def suspect(self, port: PortKey, now_ns: int) -> None:
        """A port uses much of what it may use: its meters are read more often for ``SUSPECT_NS``."""
        if switch := self._switches.get(port.dpid):
            switch.suspects[port.port_no] = now_ns + SUSPECT_NS

    def due(self, now_ns: int) -> list[tuple[int, tuple[int, ...]]]:
        """The ids of meters to read now, by switch: of its suspected ports, and of one more port in turn."""
        due = []
        for dpid, switch in self._switches.items():
            if not switch.ports or now_ns < switch.read_ns + READ_NS:
                continue
            switch.read_ns = now_ns
            of_port = (switch.ports[port_no] for port_no in switch.to_read(now_ns))
            ids = tuple(i for meters in of_port for i in meters.values() if i not in switch.waiting)
            due += [(dpid, ids)] if ids else []
        return due

    def read(self, dpid: int, meter_id: int, dropped: int | None) -> tuple[PortKey, Kind, int] | None:
        """A switch states how many packets a meter has dropped so far. Returns the news, for its port.

        None as ``dropped``: the switch does not have the meter, because another app has deleted it.
        """
        switch = self._switches.get(dpid)
        if switch is None or meter_id not in switch.meters or meter_id in switch.waiting:
            return None
        meter = switch.meters[meter_id]
        if dropped is None:
            switch.replace(meter)
            self.version += 1
            return None
        before = switch.counts.get(meter_id, 0)
        switch.counts[meter_id] = dropped
        if before is None or dropped <= before:
            return None
        return PortKey(dpid, meter.port_no), meter.kind, dropped - before

    def _add(self, switch: _Switch, port: PortKey) -> list[Meter]:
        wanted = list(self._rates.of_port(port))
        ids = [switch.new_id() for _ in wanted]
        if not all(ids):
            switch.spare += filter(None, ids)
            switch.refused.add(port.port_no)
            return []
        meters = [
            Meter(meter_id, port.port_no, kind, per_s, exists=meter_id in switch.existing)
            for meter_id, (kind, per_s) in zip(ids, wanted, strict=True)
        ]
        switch.ports[port.port_no] = {meter.kind: meter.id for meter in meters}
        switch.meters |= {meter.id: meter for meter in meters}
        switch.counts |= {meter.id: None for meter in meters if meter.exists}
        switch.existing.difference_update(ids)
        switch.waiting.update(ids)
        return meters
