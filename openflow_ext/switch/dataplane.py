"""The data plane as the agent sees it: programs on ports, rules, port facts, queue events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from openflow_ext.switch.rules import Rule, RuleStats


class DataPlaneError(Exception):
    """The data plane could not do what was asked; the message says what and what to do."""


class NoSuchPort(DataPlaneError):
    """A port that the data plane does not hold."""


class TableFull(DataPlaneError):
    """The extension table has no room for another rule."""


class UnsupportedMatch(DataPlaneError):
    """A rule whose match the data plane cannot express."""


@dataclass(frozen=True, slots=True)
class PortSettings:
    """What a controller asks of a port (PORT_CONFIG). k_pkts 0: no alarm. Never raises a window."""

    alarm: bool = False
    k_pkts: int = 0
    rtt_us: int = 0
    capacity_bps: int = 0
    common_rtt_us: int = 0
    least_window_bytes: int = 0
    cookie: int = 0
    priority: int = 0
    mark_mode: int = 0
    mark_min_pkts: int = 0
    mark_max_pkts: int = 0


@dataclass(frozen=True, slots=True)
class PortCounters:
    """A port's counters since its programs were attached; queue figures are the qdisc's."""

    n_i: int = 0
    fair_share_bytes: int = 0
    alarm_up: bool = False
    capacity_bps: int = 0
    queue_pkts: int = 0
    queue_bytes: int = 0
    queue_max_pkts: int = 0
    queue_max_bytes: int = 0
    alarms: int = 0
    normals: int = 0
    syns_counted: int = 0
    fins_counted: int = 0
    acks_seen: int = 0
    clamped: int = 0
    marked: int = 0
    drops: int = 0
    unscaled: int = 0
    untracked: int = 0


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """BUF_ALARM (``normal`` False) or BUF_NORMAL, as the kernel saw it. crossing_ns is Unix time."""

    ifindex: int
    normal: bool
    queue_pkts: int
    queue_bytes: int
    n_i: int
    crossing_ns: int


class DataPlane(Protocol):
    """One host's data plane. A bridge is known by a small number that the agent gives it."""

    def attach(self, ifindex: int, ifname: str, bridge: int, ofport: int) -> None:
        """Put the programs on a port. Idempotent; adopts what an earlier agent left."""

    def detach(self, ifindex: int) -> None:
        """Take the programs off a port (gone or alive) and forget its facts."""

    def attached(self) -> dict[int, int]:
        """ifindex -> bridge number of every port that carries the programs, also by an earlier agent."""

    def configure(self, ifindex: int, settings: PortSettings, capacity_bps: int) -> None:
        """Set a port's facts; ``capacity_bps`` is the rate in force (never 0)."""

    def counters(self, ifindex: int) -> PortCounters:
        """Read a port's counters. Raises NoSuchPort."""

    def put(self, bridge: int, rule: Rule) -> None:
        """Add a rule, or replace the one of the same table, match and priority (its counters start
        anew). Raises TableFull, UnsupportedMatch; then nothing has changed."""

    def remove(self, bridge: int, rule: Rule) -> RuleStats:
        """Remove the rule of the same table, match and priority and return its last counters."""

    def rules(self, bridge: int) -> list[tuple[Rule, RuleStats]]:
        """All rules of a bridge, in the order in which they are looked up. Expired ones included."""

    def expired(self) -> Iterable[tuple[int, Rule, RuleStats, bool]]:
        """Rules past their timeout: (bridge, rule, counters, hard). The data plane already ignores
        them; the agent removes them."""

    def sweep(self, closed_s: float = 10.0, silent_s: float = 300.0) -> int:
        """Drop flows that ended closed_s ago and those silent for silent_s (ghosts); how many."""

    def events_fd(self) -> int:
        """A descriptor that is readable when queue events wait."""

    def events(self) -> list[QueueEvent]:
        """The queue events since the last call, oldest first."""

    def close(self) -> None:
        """Let go of the maps; programs and pins stay and go on working."""

    def destroy(self) -> None:
        """Take off every program and remove every pin: nothing of this data plane is left."""
