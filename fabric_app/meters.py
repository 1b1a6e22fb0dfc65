"""OpenFlow meters that limit the frames that a switch sends to the controller for each port. Pure.

Each port except links has a meter for each ``Kind`` of frame. The rates are the limits that the controller
has for the port too, so an honest port loses nothing more. A port is limited when the switch has accepted all
its meters. Otherwise the controller alone limits it.

Ids are counted down from the greatest one that the switch allows, because other apps usually count up from 1.
An id that another app's meter has is passed over. A meter in the upper half of the ids that looks like the
fabric's is taken for one of an earlier session or controller, and is modified and used again. It is not
deleted, because an agent looks for lost entries after each deletion.

If another app deletes a meter of the fabric, the next reading of the counters shows it, and the port gets new
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
"""The time between two readings of a switch's meters."""
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
    unknown, because an earlier session added it. ``unread``: meters that a reading has not shown.
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
    unread: set[int] = field(default_factory=set)
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
            self.unread.discard(meter_id)
        self.spare += [meter_id for meter_id in ids if meter_id not in self.taken]
        return ids


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
        switch.stale += [i for i in switch.release(meter.port_no) if i != meter.id]
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

    def due(self, now_ns: int) -> list[int]:
        """The switches whose meters are to be read now."""
        due = []
        for dpid, switch in self._switches.items():
            if now_ns >= switch.read_ns + READ_NS and switch.meters:
                switch.read_ns = now_ns
                switch.unread = switch.meters.keys() - switch.waiting
                due.append(dpid)
        return due

    def read(
        self, dpid: int, counts: Iterable[tuple[int, int]], last: bool
    ) -> list[tuple[PortKey, Kind, int]]:
        """The switch states what meters have dropped so far (id, packets). Returns the news of each port.

        ``last``: these are the last ones of this reading. A meter that it did not show was deleted.
        """
        switch = self._switches.get(dpid)
        if switch is None:
            return []
        news = []
        for meter_id, dropped in counts:
            meter = switch.meters.get(meter_id)
            if meter is None:
                continue
            switch.unread.discard(meter_id)
            before = switch.counts.get(meter_id, 0)
            switch.counts[meter_id] = dropped
            if before is not None and dropped > before:
                news.append((PortKey(dpid, meter.port_no), meter.kind, dropped - before))
        if last and switch.unread:
            for port_no in {switch.meters[meter_id].port_no for meter_id in switch.unread}:
                switch.stale += switch.release(port_no)
            self.version += 1
        return news

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
