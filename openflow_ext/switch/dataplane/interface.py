"""The interface of the data plane: ports, rules, counters, flow reports and queue events."""

from __future__ import annotations

import enum
import functools
import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from openflow_ext.switch.dataplane.rules import Rule, RuleStats
from weir_base.port_counters import PortCountersFlags, PortCountersRecord


class DataPlaneError(Exception):
    """The data plane cannot carry out a request. The message states what, and what to do about it."""


class NoSuchPort(DataPlaneError):
    """The data plane does not have this port."""


class TableFull(DataPlaneError):
    """A table of rules is full."""


class UnsupportedMatch(DataPlaneError):
    """The data plane cannot have a rule with this match."""


class NoShare(enum.IntFlag):
    """Why a port counts its flows but sets no fair share.

    CAPACITY: its rate is unknown. QUEUE: it has no queue. TABLE: the flow table is full, so N_i is too small.
    """

    NONE = 0
    CAPACITY = 1
    QUEUE = 2
    TABLE = 4

    @classmethod
    def of_flags(cls, flags: PortCountersFlags) -> NoShare:
        """The reasons that a port's flags state."""
        reasons = (reason for reason, flag in _NO_SHARE_FLAGS.items() if flags & flag)
        return functools.reduce(operator.or_, reasons, cls.NONE)

    def as_flags(self) -> PortCountersFlags:
        """The reasons as the flags of a port's counters."""
        flags = (flag for reason, flag in _NO_SHARE_FLAGS.items() if self & reason)
        return functools.reduce(operator.or_, flags, PortCountersFlags.NONE)


_NO_SHARE_FLAGS = {
    NoShare.CAPACITY: PortCountersFlags.NO_CAPACITY,
    NoShare.QUEUE: PortCountersFlags.NO_QUEUE,
    NoShare.TABLE: PortCountersFlags.TABLE_FULL,
}


@dataclass(frozen=True, slots=True)
class PortSettings:
    """The settings of a port by PORT_CONFIG. See wire.PortConfig for the fields.

    ``alarm``: whether the port raises alarms. ``capacity_bps`` 0: the port's own rate.
    ``corrects_allowance``: whether the port corrects its allowance, which begins with the RTT of its
    handshakes, at least with capacity x common RTT, or without a common RTT with what fits into the queue.
    ``omits``: the flags of wire.OMISSIONS that are set.
    ``by_host``: the allowance is divided among hosts first; only with ``corrects_allowance``.
    ``observes_share``: the port only counts the segments that its fair share would change.
    """

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
    corrects_allowance: bool = False
    omits: int = 0
    by_host: bool = False
    observes_share: bool = False


class QueueEventKind(enum.IntEnum):
    """Events at a queue: an alarm and its end; reflex entries activated and released."""

    BUF_ALARM = 0
    BUF_NORMAL = 1
    REFLEX_ON = 2
    REFLEX_OFF = 3


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """A queue event.

    ``crossing_ns`` is the Unix time at which the queue crossed its threshold. ``rank`` is that of the entry
    that was activated (REFLEX_ON). ``non_tcp_percent``: the part of the queue that would be there without
    TCP, 0 to 100. ``allowance_bytes`` 0: the port does not correct its allowance.
    """

    ifindex: int
    kind: QueueEventKind
    queue_pkts: int
    queue_bytes: int
    n_i: int
    crossing_ns: int
    rank: int = 0
    non_tcp_percent: int = 0
    allowance_bytes: int = 0

    @property
    def normal(self) -> bool:
        return self.kind is QueueEventKind.BUF_NORMAL


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The settings of the whole host.

    ``report_kinds``: bit k requests flow reports of kind k (wire.FlowKind). ``simple_count``: N_i is the
    plain integer of the paper (SCCP, section III.A) without flow state. ``report_wakes``: a report makes
    ``reports_fd`` readable if none waits already; otherwise the agent has to poll.
    """

    report_kinds: int = 0
    simple_count: bool = False
    report_wakes: bool = False


@dataclass(frozen=True, slots=True)
class SweepTimes:
    """The times of a sweep, in seconds.

    ``closed_s``: a closed flow leaves the flow table after this time. ``silent_s``: a flow without segments
    leaves the flow table and N_i. ``translated_s``: the same for a flow with a translated window scale. It
    exceeds two hours, the period of TCP keepalive, because without its entry the scale would be unknown.
    Such a flow also leaves N_i after ``silent_s``. ``opening_s``: a flow whose handshake is not complete
    leaves the flow table so long after its first SYN.
    ``idle_s``: a flow without payload leaves N_i; 0: never. ``active_s``: the time between two reports of an
    active flow; 0: none. ``roll_call``: this sweep reports every flow, as active or as idle.
    """

    closed_s: float = 10.0
    silent_s: float = 300.0
    translated_s: float = 9_000.0
    opening_s: float = 10.0
    idle_s: float = 0.0
    active_s: float = 0.0
    roll_call: bool = False


class DataPlane(Protocol):
    """The data plane of one host. The agent gives each bridge a small number, by which it is known here."""

    def attach(
        self, ifindex: int, ifname: str, bridge: int, ofport: int, *, kernel_datapath: bool = False
    ) -> None:
        """Attach the programs to a port. Idempotent. The state of an earlier agent is adopted.

        ``kernel_datapath``: at tc's ingress hook, which is before the kernel datapath of Open vSwitch and
        before Linux bridges. Otherwise by XDP, which is before the packet sockets of the userspace datapath.
        The program of the other kind is detached.
        """

    def detach(self, *ifindexes: int) -> dict[int, str]:
        """Detach the programs from ports, which may be gone, and remove their state.

        Returns the ports that still carry programs, with the reason.
        """

    def without_programs(self, ifindexes: Collection[int]) -> set[int]:
        """The ports among ``ifindexes`` that lack a program, because another tool has detached it."""

    def attached(self) -> dict[int, int]:
        """ifindex -> bridge number of every port with programs, also with programs of an earlier agent."""

    def configure(
        self,
        ifindex: int,
        settings: PortSettings,
        capacity_bps: int,
        buffer_bytes: int = 0,
        no_share: NoShare = NoShare.NONE,
        observes: bool = False,
    ) -> None:
        """Set a port's settings, the rate in force (never 0) and the size of its queue (0: unknown).

        Capacity x common RTT counts as at most 4 GB.
        ``no_share``: if it is not NONE, the port sets no fair share, whatever its settings are.
        ``observes``: the port changes no packet, except that it translates windows of connections whose
        window scale it has changed earlier. It counts the packets that it would change.
        """

    def settings(self, ifindex: int) -> tuple[PortSettings, int]:
        """The settings and capacity of the last configure(), also of an earlier agent. Raises NoSuchPort."""

    def configure_host(self, settings: HostSettings) -> None:
        """Set the settings of the whole host."""

    def counters(self, ifindex: int) -> PortCountersRecord:
        """The counters of a port. Raises NoSuchPort."""

    def counters_of(self, ifindexes: Collection[int]) -> dict[int, PortCountersRecord]:
        """The counters of many ports in few calls. Ports that carry no programs are left out.

        A packet that was dropped at an empty queue is missing until the next packet passes. ``counters``
        has it.
        """

    def untracked(self) -> dict[int, int]:
        """The ports at which the flow table has refused flows, with the number of these flows."""

    def put(self, bridge: int, rule: Rule) -> None:
        """Add a rule, or replace the one with the same table, match and priority.

        The counters of a replaced rule restart at 0. Raises TableFull, UnsupportedMatch; nothing has changed
        then.
        """

    def remove(self, bridge: int, rule: Rule) -> RuleStats:
        """Remove the rule with the same table, match and priority. Returns its last counters."""

    def rules(self, bridge: int) -> list[tuple[Rule, RuleStats]]:
        """All rules of a bridge, expired ones included, in the order in which the programs look them up."""

    def expired(self) -> Iterable[tuple[int, Rule, RuleStats, bool]]:
        """The rules whose timeout has passed: (bridge, rule, counters, whether it was the hard timeout).

        The programs already ignore them. The agent has to remove them.
        """

    def arm(self, ifindex: int, bridge: int, rules: Sequence[Rule]) -> None:
        """Replace a port's reflex entries: exact MOD_WINDOW rules in the order of their rank.

        Raises NoSuchPort, TableFull, UnsupportedMatch; nothing has changed then.
        """

    def armed(self, ifindex: int) -> list[tuple[Rule, RuleStats]]:
        """A port's reflex entries in the order of their rank."""

    def reflex_level(self, ifindex: int) -> int:
        """How many of a port's reflex entries are active, from rank 0 on. Raises NoSuchPort."""

    def sweep_is_due(self, times: SweepTimes) -> bool:
        """Whether a sweep may find anything to do. False if nothing has passed and no time has come."""

    def sweep(self, times: SweepTimes) -> int:
        """Remove the flows whose time has come. Returns the number removed."""

    def now_ns(self) -> int:
        """The data plane's clock, from which the times in events and reports come.

        Unix time as it was when the agent started, advanced by the kernel's clock: setting the system's clock
        changes nothing.
        """

    def reports_fd(self) -> int:
        """A descriptor that is readable while flow reports wait. See HostSettings.report_wakes."""

    def reports(self) -> tuple[dict[int, bytes], int]:
        """The flow reports since the last call, and the number lost because they were not read in time.

        The reports of each bridge are records in the layout of the wire, the oldest first.
        """

    def events_fd(self) -> int:
        """A descriptor that is readable while queue events wait."""

    def events(self) -> list[QueueEvent]:
        """The queue events since the last call, the oldest first."""

    def close(self) -> None:
        """Close the maps. Programs and pins stay and continue to work."""

    def destroy(self) -> None:
        """Detach every program and remove every pin of this data plane."""
