"""The values that wire.py encodes and decodes, and its errors. Import them from ``openflow_ext.wire``."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

WEIR_EXPERIMENTER_ID = 0x00576569
OFP13 = 0x04

OFPT_ERROR = 1
OFPT_EXPERIMENTER = 4
OFPT_MULTIPART_REQUEST = 18
OFPT_MULTIPART_REPLY = 19
OFPET_EXPERIMENTER = 0xFFFF
OFPMP_EXPERIMENTER = 0xFFFF
OFPMPF_REPLY_MORE = 1
OFPAT_EXPERIMENTER = 0xFFFF
OFPP_ANY = 0xFFFFFFFF

FAIR_SHARE = 0xFFFFFFFF
"""SetWindow's value for "the fair share of the port by which the ACK comes in"."""

DEFAULT_ALPHA = 5
"""MSS that MOD_WINDOW takes off the window with each matching segment (SDTCP, equation 4)."""


class ErrorCode(enum.IntEnum):
    """Why a switch refused an extension message (``exp_type`` of the OFPET_EXPERIMENTER error)."""

    BAD_PORT = 1
    BAD_VALUE = 2
    NO_DATAPLANE = 3
    BAD_MESSAGE = 4
    UNKNOWN_TYPE = 5


class WireError(Exception):
    """Bytes or values that are no message of the extension. ``code`` is what a switch answers."""

    code: ClassVar[ErrorCode] = ErrorCode.BAD_MESSAGE

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class Truncated(WireError):
    """The bytes end before the field does."""


class BadLength(WireError):
    """A length field disagrees with the bytes, or bytes are left over."""


class BadValue(WireError):
    """A value that the field cannot have."""

    code = ErrorCode.BAD_VALUE


class UnknownType(WireError):
    """A version, message, multipart or action type that the extension does not have."""

    code = ErrorCode.UNKNOWN_TYPE


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
    """A port's state in its counters. Bits of later versions are kept."""

    NONE = 0
    ATTACHED = 1
    ALARM_UP = 2


@dataclass(frozen=True, slots=True)
class Header:
    """ofp_header; ``length`` is the whole message's."""

    version: int
    type: int
    length: int
    xid: int


@dataclass(frozen=True, slots=True)
class OfpPort:
    """ofp_port of OpenFlow 1.3. ``hw_addr`` as ``aa:bb:cc:dd:ee:ff``; speeds in kbit/s, as there."""

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


Message: TypeAlias = (
    BufAlarm
    | BufNormal
    | PortConfig
    | PortConfigReply
    | PortCountersRequest
    | PortCountersReply
    | ExperimenterError
)
Action: TypeAlias = ModWindow | IncrementNi | DecrementNi | SetWindow
