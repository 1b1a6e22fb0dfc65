"""A data plane in memory, for tests of the agent without a kernel."""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection, Iterable, Sequence

from openflow_ext.switch.dataplane.interface import (
    DataPlaneError,
    HostSettings,
    NoShare,
    NoSuchPort,
    PortSettings,
    QueueEvent,
    SweepTimes,
    TableFull,
)
from openflow_ext.switch.dataplane.rules import Rule, RuleStats
from openflow_ext.switch.openflow.extension_table import Key, key_of
from weir_base.port_counters import PortCountersFlags, PortCountersRecord


def _close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class FakeDataPlane:
    """A data plane in memory. ``room``: rules that fit; ``refuses``: interfaces that cannot be attached.

    ``keeps``: interfaces that cannot be detached. ``stripped``: those whose programs another tool detached.
    """

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.refuses: set[int] = set()
        self.keeps: set[int] = set()
        self.stripped: set[int] = set()
        self.in_kernel: set[int] = set()
        self.ports: dict[int, tuple[str, int, int]] = {}
        self.configured: dict[int, tuple[PortSettings, int]] = {}
        self.held: dict[tuple[int, Key], Rule] = {}
        self.past: list[tuple[int, Rule, RuleStats, bool]] = []
        self.roll_calls: list[bool] = []
        self.living: dict[int, bytes] = {}
        self.no_share: dict[int, NoShare] = {}
        self.observing: dict[int, bool] = {}
        self.refused = 0
        self.quiet = False
        self.clock_ns = 0
        self.state = "open"
        self._waiting: list[QueueEvent] = []
        self._reader, self._writer = os.pipe()
        self.host = HostSettings()
        self.armings: dict[int, list[Rule]] = {}
        self.levels: dict[int, int] = {}
        self._reports: dict[int, bytes] = {}
        self._lost = 0
        self._report_reader, self._report_writer = os.pipe()
        ends = self._reader, self._writer, self._report_reader, self._report_writer
        self._end = weakref.finalize(self, _close_all, ends)

    def attach(
        self, ifindex: int, ifname: str, bridge: int, ofport: int, *, kernel_datapath: bool = False
    ) -> None:
        if ifindex in self.refuses:
            raise DataPlaneError(f"{ifname}: no XDP on this device")
        self.ports[ifindex] = (ifname, bridge, ofport)
        self.stripped.discard(ifindex)
        (self.in_kernel.add if kernel_datapath else self.in_kernel.discard)(ifindex)

    def detach(self, *ifindexes: int) -> dict[int, str]:
        for ifindex in set(ifindexes) - self.keeps:
            self.ports.pop(ifindex, None)
            self.configured.pop(ifindex, None)
        return dict.fromkeys(set(ifindexes) & self.keeps, "Device or resource busy")

    def without_programs(self, ifindexes: Collection[int]) -> set[int]:
        return self.stripped & set(ifindexes)

    def attached(self) -> dict[int, int]:
        return {ifindex: bridge for ifindex, (_, bridge, _) in self.ports.items()}

    def configure(
        self,
        ifindex: int,
        settings: PortSettings,
        capacity_bps: int,
        buffer_bytes: int = 0,
        no_share: NoShare = NoShare.NONE,
        observes: bool = False,
    ) -> None:
        if ifindex not in self.ports:
            raise NoSuchPort(f"interface {ifindex}")
        self.configured[ifindex] = (settings, capacity_bps)
        self.no_share[ifindex] = no_share
        self.observing[ifindex] = observes

    def counters(self, ifindex: int) -> PortCountersRecord:
        if ifindex not in self.ports:
            raise NoSuchPort(f"interface {ifindex}")
        _, capacity_bps = self.configured.get(ifindex, (PortSettings(), 1))
        return PortCountersRecord(
            port_no=0,
            flags=PortCountersFlags.ATTACHED | PortCountersFlags.ALARM_UP,
            n_i=ifindex,
            capacity_bps=capacity_bps,
            untracked=self.refused,
        )

    def counters_of(self, ifindexes: Collection[int]) -> dict[int, PortCountersRecord]:
        return {ifindex: self.counters(ifindex) for ifindex in ifindexes if ifindex in self.ports}

    def untracked(self) -> dict[int, int]:
        return dict.fromkeys(self.ports, self.refused) if self.refused else {}

    def put(self, bridge: int, rule: Rule) -> None:
        place = bridge, key_of(rule)
        if place not in self.held and len(self.held) >= self.room:
            raise TableFull(f"{self.room} rules are all that fit")
        self.held[place] = rule

    def remove(self, bridge: int, rule: Rule) -> RuleStats:
        self.held.pop((bridge, key_of(rule)), None)
        return RuleStats()

    def rules(self, bridge: int) -> list[tuple[Rule, RuleStats]]:
        return [(rule, RuleStats()) for (number, _), rule in self.held.items() if number == bridge]

    def expired(self) -> Iterable[tuple[int, Rule, RuleStats, bool]]:
        past, self.past = self.past, []
        return past

    def sweep_is_due(self, times: SweepTimes) -> bool:
        return not self.quiet

    def sweep(self, times: SweepTimes) -> int:
        self.roll_calls.append(times.roll_call)
        for bridge, records in self.living.items() if times.roll_call else ():
            self.report(bridge, records)
        return 0

    def settings(self, ifindex: int) -> tuple[PortSettings, int]:
        if ifindex not in self.configured:
            raise NoSuchPort(f"no port on interface {ifindex}")
        return self.configured[ifindex]

    def configure_host(self, settings: HostSettings) -> None:
        self.host = settings

    def arm(self, ifindex: int, bridge: int, rules: Sequence[Rule]) -> None:
        self.armings[ifindex] = list(rules)

    def armed(self, ifindex: int) -> list[tuple[Rule, RuleStats]]:
        return [(rule, RuleStats()) for rule in self.armings.get(ifindex, [])]

    def reflex_level(self, ifindex: int) -> int:
        return self.levels.get(ifindex, 0)

    def now_ns(self) -> int:
        return self.clock_ns

    def reports_fd(self) -> int:
        return self._report_reader

    def reports(self) -> tuple[dict[int, bytes], int]:
        waiting, self._reports = self._reports, {}
        lost, self._lost = self._lost, 0
        if waiting or lost:
            os.read(self._report_reader, 1000)
        return waiting, lost

    def report(self, bridge: int, records: bytes, lost: int = 0) -> None:
        """Add flow reports, as the kernel writes them."""
        self._reports[bridge] = self._reports.get(bridge, b"") + records
        self._lost += lost
        os.write(self._report_writer, b"!")

    def happen(self, event: QueueEvent) -> None:
        """Add a queue event, as the kernel reports it."""
        self._waiting.append(event)
        os.write(self._writer, b"!")

    def events_fd(self) -> int:
        return self._reader

    def events(self) -> list[QueueEvent]:
        waiting, self._waiting = self._waiting, []
        os.read(self._reader, len(waiting))
        return waiting

    def close(self) -> None:
        self.state = "closed"
        self._end()

    def destroy(self) -> None:
        self.state = "destroyed"
        self.ports.clear()
        self.held.clear()
        self._end()
