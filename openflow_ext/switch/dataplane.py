"""The data plane as the agent sees it: programs on ports, rules, port facts, queue events."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
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


class NoShare(enum.IntFlag):
    """Why a port's flows are counted but not held to a fair share."""

    NONE = 0
    CAPACITY = 1
    QUEUE = 2
    TABLE = 4


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
    no_share: NoShare = NoShare.NONE


class QueueEventKind(enum.IntEnum):
    """What the kernel saw at a queue: the alarm, its end, and the reflex entries going on and off."""

    BUF_ALARM = 0
    BUF_NORMAL = 1
    REFLEX_ON = 2
    REFLEX_OFF = 3


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """A queue event. crossing_ns is Unix time; rank is that of the entry that went on (REFLEX_ON)."""

    ifindex: int
    kind: QueueEventKind
    queue_pkts: int
    queue_bytes: int
    n_i: int
    crossing_ns: int
    rank: int = 0

    @property
    def normal(self) -> bool:
        return self.kind is QueueEventKind.BUF_NORMAL


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What holds for all ports. report_kinds: bit k wants flow reports of kind k (wire FlowReportKind).

    simple_count: N_i is the paper's integer (SCCP, section III.A), without flow state.
    report_wakes: ``reports_fd`` wakes who waits for it with each report; else it has to be looked at.
    """

    report_kinds: int = 0
    simple_count: bool = False
    report_wakes: bool = False


@dataclass(frozen=True, slots=True)
class SweepTimes:
    """When flows leave, in seconds: ended and silent ones the table, those without payload N_i.

    translated_s: of silent flows whose windows are translated, for later nobody would know how; over two
    hours, the period of TCP's keepalive. Out of N_i they are after silent_s. idle_s 0: never.
    active_s: how often an active flow is reported; 0: never. roll_call: this once every flow is reported,
    as active or idle.
    """

    closed_s: float = 10.0
    silent_s: float = 300.0
    translated_s: float = 9_000.0
    idle_s: float = 0.0
    active_s: float = 0.0
    roll_call: bool = False


class DataPlane(Protocol):
    """One host's data plane. A bridge is known by a small number that the agent gives it."""

    def attach(
        self, ifindex: int, ifname: str, bridge: int, ofport: int, *, kernel_datapath: bool = False
    ) -> None:
        """Put the programs on a port. Idempotent; adopts what an earlier agent left.

        kernel_datapath: at tc's ingress, where OVS's kernel datapath and bridges look after it; else by
        XDP, which is before the packet sockets of the userspace datapath.
        """

    def detach(self, ifindex: int) -> None:
        """Take the programs off a port (gone or alive) and forget its facts."""

    def attached(self) -> dict[int, int]:
        """ifindex -> bridge number of every port that carries the programs, also by an earlier agent."""

    def configure(
        self,
        ifindex: int,
        settings: PortSettings,
        capacity_bps: int,
        buffer_bytes: int = 0,
        no_share: NoShare = NoShare.NONE,
    ) -> None:
        """Set a port's facts: the rate in force (never 0), what its queue holds (0: not known).

        no_share: not NONE, flows are counted and none is held to a fair share, whatever the settings say.
        """

    def settings(self, ifindex: int) -> tuple[PortSettings, int]:
        """What configure() last set, also by an earlier agent: settings and capacity. Raises NoSuchPort."""

    def configure_host(self, settings: HostSettings) -> None:
        """Set what holds for all ports."""

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

    def arm(self, ifindex: int, bridge: int, rules: Sequence[Rule]) -> None:
        """Replace a port's reflex entries: exact MOD_WINDOW rules by rank. Raises NoSuchPort, TableFull,
        UnsupportedMatch; then nothing has changed."""

    def armed(self, ifindex: int) -> list[tuple[Rule, RuleStats]]:
        """A port's reflex entries by rank."""

    def sweep(self, times: SweepTimes) -> int:
        """Let flows go whose time has come; how many left the table."""

    def reports_fd(self) -> int:
        """A descriptor that is readable when flow reports wait; see HostSettings.report_wakes."""

    def reports(self) -> tuple[dict[int, bytes], int]:
        """The flow reports since the last call: by bridge, records as they go over the wire, oldest first;
        and how many were lost since then because they were not read in time."""

    def events_fd(self) -> int:
        """A descriptor that is readable when queue events wait."""

    def events(self) -> list[QueueEvent]:
        """The queue events since the last call, oldest first."""

    def close(self) -> None:
        """Let go of the maps; programs and pins stay and go on working."""

    def destroy(self) -> None:
        """Take off every program and remove every pin: nothing of this data plane is left."""
