"""The values that wire.py encodes and decodes. Import them from ``openflow_ext.wire``."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple, TypeAlias

from openflow_ext._wire_errors import OFPP_ANY, ErrorCode

OFPP_UNKNOWN = 0xFFFFFFFF
"""A FlowRecord's ``in_port`` when the data plane does not know it."""

SCALE_UNKNOWN = 0xFF
"""A FlowRecord's window scale when none was offered, or the handshake was not seen."""

FAIR_SHARE = 0xFFFFFFFF
"""SetWindow's value for "the fair share of the port by which the ACK comes in"."""

DEFAULT_ALPHA = 5
"""MSS that MOD_WINDOW takes off the window with each matching segment (SDTCP, equation 4)."""


class PortConfigFlags(enum.IntFlag, boundary=enum.STRICT):
    """Which groups of fields PORT_CONFIG sets; READ (or none) changes nothing and only asks.

    ALARM: k_pkts, rtt_us, cookie, priority. WINDOW: capacity, common RTT, least window. MARK: mark_*.
    """

    NONE = 0
    ALARM = 1
    READ = 2
    WINDOW = 4
    MARK = 8


class MarkMode(enum.IntEnum):
    """How the port sets CE: not at all, from mark_min_pkts on, or ever more often up to mark_max_pkts."""

    OFF = 0
    STEP = 1
    RAMP = 2


class PortCountersFlags(enum.IntFlag):
    """A port's state in its counters. Bits of later versions are kept.

    The last three say why its flows are counted but not held to a fair share.
    """

    NONE = 0
    ATTACHED = 1
    ALARM_UP = 2
    NO_CAPACITY = 4
    NO_QUEUE = 8
    TABLE_FULL = 16


class FlowKind(enum.IntEnum):
    """What a FlowRecord tells of its flow."""

    OPENED = 1
    ACTIVE = 2
    IDLE = 3
    CLOSED = 4


class FlowKinds(enum.IntFlag, boundary=enum.STRICT):
    """Which records FLOW_REPORT_CONFIG asks for: bit k is FlowKind k."""

    NONE = 0
    OPENED = 1 << FlowKind.OPENED
    ACTIVE = 1 << FlowKind.ACTIVE
    IDLE = 1 << FlowKind.IDLE
    CLOSED = 1 << FlowKind.CLOSED


class CloseReason(enum.IntEnum):
    """How a CLOSED flow ended; NONE for the other kinds. SILENT: a ghost, gone without FIN or RST."""

    NONE = 0
    FIN = 1
    RST = 2
    SILENT = 3


IPAddress: TypeAlias = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Header:
    """ofp_header; ``length`` is the whole message's."""

    version: int
    type: int
    length: int
    xid: int


@dataclass(frozen=True, slots=True)
class OfpPort:
    """ofp_port. ``hw_addr`` as ``aa:bb:cc:dd:ee:ff``; speeds in kbit/s, as there.

    OpenFlow 1.5 carries ``curr`` to ``max_speed`` in an Ethernet property; ``ethernet`` False is a port
    without it. ``properties``: its other properties, each whole but for its padding. 1.3 has neither.
    """

    port_no: int
    hw_addr: str = "00:00:00:00:00:00"
    name: bytes = b""
    config: int = 0
    state: int = 0
    curr: int = 0
    advertised: int = 0
    supported: int = 0
    peer: int = 0
    curr_speed: int = 0
    max_speed: int = 0
    ethernet: bool = True
    properties: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class _QueueCrossing:
    """A queue that passed K, or went quiet.

    ``port_buf_pkts`` and ``port_buf_bytes``: the queue at that moment. ``port_rate_bps``: the port's
    capacity. ``cookie`` and ``priority``: the controller's, from PORT_CONFIG. ``n_i``: flows counted at
    the port. ``crossing_ns``: Unix time taken by the kernel.
    """

    port: OfpPort
    port_buf_pkts: int
    port_buf_bytes: int
    port_rate_bps: int
    cookie: int = 0
    priority: int = 0
    n_i: int = 0
    crossing_ns: int = 0


@dataclass(frozen=True, slots=True)
class BufAlarm(_QueueCrossing):
    """BUF_ALARM: the queue passed K packets (SDTCP, section III.A)."""


@dataclass(frozen=True, slots=True)
class BufNormal(_QueueCrossing):
    """BUF_NORMAL: three quiet looks in a row; ``crossing_ns`` is the third."""


@dataclass(frozen=True, slots=True)
class _PortConfigFields:
    """A port's settings. ``capacity_bps`` 0: the port's own; ``least_window_bytes`` 0: one MSS."""

    port_no: int
    flags: PortConfigFlags = PortConfigFlags.NONE
    k_pkts: int = 0
    rtt_us: int = 0
    capacity_bps: int = 0
    common_rtt_us: int = 0
    least_window_bytes: int = 0
    cookie: int = 0
    priority: int = 0
    mark_mode: MarkMode = MarkMode.OFF
    mark_min_pkts: int = 0
    mark_max_pkts: int = 0


@dataclass(frozen=True, slots=True)
class PortConfig(_PortConfigFields):
    """PORT_CONFIG, controller to switch."""


@dataclass(frozen=True, slots=True)
class PortConfigReply(_PortConfigFields):
    """PORT_CONFIG_REPLY: the settings now in force; ``capacity_bps`` is never 0."""


@dataclass(frozen=True, slots=True)
class PortCountersRequest:
    """Asks for the counters of one port, or of all (OFPP_ANY)."""

    port_no: int = OFPP_ANY


@dataclass(frozen=True, slots=True)
class PortCountersRecord:
    """One port's counters. ``unscaled``: ACKs left alone, scale unknown; ``untracked``: table full."""

    port_no: int
    n_i: int = 0
    fair_share_bytes: int = 0
    flags: PortCountersFlags = PortCountersFlags.NONE
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
class PortCountersReply:
    """Counters of ports, at most PORT_COUNTERS_MAX a message; ``more``: another reply follows."""

    records: tuple[PortCountersRecord, ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class ExperimenterError:
    """OFPT_ERROR of type OFPET_EXPERIMENTER; ``data`` starts the message that was refused."""

    code: ErrorCode
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class ModWindow:
    """OFPAT_MOD_WINDOW: lower the window to ``window_bytes``; falls by ``alpha`` >= 1 MSS a segment."""

    window_bytes: int
    alpha: int = DEFAULT_ALPHA


@dataclass(frozen=True, slots=True)
class IncrementNi:
    """OFPAT_INCREMENT_NI: one flow more at ``port``; OFPP_ANY is the packet's output port."""

    port: int = OFPP_ANY


@dataclass(frozen=True, slots=True)
class DecrementNi:
    """OFPAT_DECREMENT_NI: one flow fewer at ``port``; OFPP_ANY is the packet's output port."""

    port: int = OFPP_ANY


@dataclass(frozen=True, slots=True)
class SetWindow:
    """OFPAT_SET_WINDOW: lower the window to ``value`` bytes, or to the port's FAIR_SHARE."""

    value: int = FAIR_SHARE


@dataclass(frozen=True, slots=True)
class TcpWindow:
    """OFPXMT_OFB_TCP_WINDOW: the 16-bit window field as it stands in the segment, before scaling."""

    value: int
    mask: int | None = None


class FlowRecord(NamedTuple):
    """A TCP flow as a port saw it; src -> dst is the direction that leaves by ``out_port``.

    ``scale_*`` and ``mss_*``: what each end offered in its SYN (SCALE_UNKNOWN, 0: nothing, or unseen).
    ``sent_bytes``: by src, headers included. ``*_ns``: Unix time. ``handshake_rtt_us`` 0: unknown.
    A tuple, not a dataclass: a controller makes tens of thousands a second.
    """

    kind: FlowKind
    src: IPAddress
    dst: IPAddress
    src_port: int
    dst_port: int
    out_port: int
    in_port: int = OFPP_UNKNOWN
    scale_src: int = SCALE_UNKNOWN
    scale_dst: int = SCALE_UNKNOWN
    mss_src: int = 0
    mss_dst: int = 0
    sent_bytes: int = 0
    first_ns: int = 0
    last_ns: int = 0
    handshake_rtt_us: int = 0
    reason: CloseReason = CloseReason.NONE


@dataclass(frozen=True, slots=True)
class FlowReport:
    """FLOW_REPORT: at most FLOW_REPORT_MAX records; ``lost`` more were dropped since the last message.

    ``roll_called``: every flow that was there when this connection asked for reports has been told of by now.
    """

    records: tuple[FlowRecord, ...] = ()
    lost: int = 0
    roll_called: bool = False


@dataclass(frozen=True, slots=True)
class FlowReportConfig:
    """FLOW_REPORT_CONFIG: what this connection of the controller wants to hear; it ends with it.

    ``interval_ms``: a report waits at most so long (0: not at all). ``active_ms``: how often an active
    flow is reported (0: never). ``idle_ms``: silent for so long is idle (0: the switch's default).
    Who asks for ACTIVE or IDLE is first told once of every flow that is there, and when that is done.
    """

    kinds: FlowKinds = FlowKinds.NONE
    interval_ms: int = 0
    active_ms: int = 0
    idle_ms: int = 0


@dataclass(frozen=True, slots=True)
class ArmEntry:
    """A MOD_WINDOW entry armed ahead of time. ``src`` to ``dst_port``: the 5-tuple of the ACKs."""

    src: IPAddress
    dst: IPAddress
    src_port: int
    dst_port: int
    window_bytes: int
    alpha: int = DEFAULT_ALPHA
    table_id: int = 0
    cookie: int = 0
    priority: int = 0
    hard_timeout_s: int = 0


@dataclass(frozen=True, slots=True)
class Arm:
    """ARM: the port's entries by rank, at most ARM_MAX, in place of those armed before; none: disarm."""

    port_no: int
    entries: tuple[ArmEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Reflex:
    """REFLEX: the data plane switched the port's entry of ``rank`` (from 0) on or off at ``when_ns``."""

    port_no: int
    rank: int
    on: bool
    n_i: int = 0
    cookie: int = 0
    when_ns: int = 0


Message: TypeAlias = (
    BufAlarm
    | BufNormal
    | PortConfig
    | PortConfigReply
    | FlowReport
    | Arm
    | FlowReportConfig
    | Reflex
    | PortCountersRequest
    | PortCountersReply
    | ExperimenterError
)
Action: TypeAlias = ModWindow | IncrementNi | DecrementNi | SetWindow
Field: TypeAlias = TcpWindow
