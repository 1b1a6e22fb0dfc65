"""The values that messages carry: constants, flags, ports, flow records and armed entries."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple, TypeAlias

__all__ = [
    "DEFAULT_ALPHA",
    "OFPP_UNKNOWN",
    "OMISSIONS",
    "SCALE_UNKNOWN",
    "ArmEntry",
    "CloseReason",
    "FlowKind",
    "FlowKinds",
    "FlowRecord",
    "Header",
    "IPAddress",
    "MarkMode",
    "OfpPort",
    "PortConfigFlags",
]

OFPP_UNKNOWN = 0xFFFFFFFF
"""``in_port`` of a FlowRecord if the data plane does not know the port."""

SCALE_UNKNOWN = 0xFF
"""Window scale of a FlowRecord if the end offered none, or if the data plane missed the handshake."""

DEFAULT_ALPHA = 5
"""Default ``alpha`` of MOD_WINDOW (SDTCP, equation 4)."""


class PortConfigFlags(enum.IntFlag, boundary=enum.STRICT):
    """The groups of fields that a PORT_CONFIG sets. READ or NONE sets nothing and asks for the settings.

    ALARM: k_pkts, rtt_us, cookie, priority. WINDOW: capacity_bps, common_rtt_us, least_window_bytes.
    MARK: the mark_* fields. ALLOWANCE has no field; with WINDOW or ALARM it lets the port correct its
    allowance. That begins with the RTT of the port's handshakes, at least with capacity x common_rtt_us, or
    without a common RTT with what fits into the queue.
    WINDOW without ALLOWANCE: the allowance stays at capacity x common_rtt_us.
    OMIT_...: with WINDOW or ALLOWANCE, the additions of Weir that the port does without.
    BY_HOST has no field; with WINDOW and ALLOWANCE the allowance is divided among hosts first, and a host's
    part among its active flows.
    OBSERVE has no field; with WINDOW the port's fair share changes no packet, and the port counts the packets
    that it would change. WINDOW without OBSERVE ends that.
    SWITCH: off, for all ports of the switch together.
    """

    NONE = 0
    ALARM = 1
    READ = 2
    WINDOW = 4
    MARK = 8
    ALLOWANCE = 16
    OMIT_FITTING = 32
    OMIT_FINER_SCALE = 64
    OMIT_PSH = 128
    OMIT_ACTIVE_SENDERS = 256
    OMIT_CROWD = 512
    OMIT_TWO_SEGMENTS = 1024
    OBSERVE = 2048
    SWITCH = 4096
    BY_HOST = 8192


OMISSIONS = (
    PortConfigFlags.OMIT_FITTING
    | PortConfigFlags.OMIT_FINER_SCALE
    | PortConfigFlags.OMIT_PSH
    | PortConfigFlags.OMIT_ACTIVE_SENDERS
    | PortConfigFlags.OMIT_CROWD
    | PortConfigFlags.OMIT_TWO_SEGMENTS
)
"""The flags that switch an addition of Weir off."""


class MarkMode(enum.IntEnum):
    """How a port sets CE.

    OFF: never. STEP: on every packet if the queue is longer than mark_min_pkts. RAMP: with a probability
    that rises from 0 at mark_min_pkts to 1 at mark_max_pkts.
    """

    OFF = 0
    STEP = 1
    RAMP = 2


class FlowKind(enum.IntEnum):
    """The event or state that a FlowRecord reports."""

    OPENED = 1
    ACTIVE = 2
    IDLE = 3
    CLOSED = 4


class FlowKinds(enum.IntFlag, boundary=enum.STRICT):
    """The kinds of records that FLOW_REPORT_CONFIG asks for: bit k stands for FlowKind k."""

    NONE = 0
    OPENED = 1 << FlowKind.OPENED
    ACTIVE = 1 << FlowKind.ACTIVE
    IDLE = 1 << FlowKind.IDLE
    CLOSED = 1 << FlowKind.CLOSED


class CloseReason(enum.IntEnum):
    """How a CLOSED flow ended; NONE for the other kinds. SILENT: it stopped without FIN or RST."""

    NONE = 0
    FIN = 1
    RST = 2
    SILENT = 3


IPAddress: TypeAlias = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Header:
    """ofp_header. ``length`` is the length of the whole message in bytes."""

    version: int
    type: int
    length: int
    xid: int


@dataclass(frozen=True, slots=True)
class OfpPort:
    """ofp_port. ``hw_addr`` is written ``aa:bb:cc:dd:ee:ff``; speeds are in kbit/s.

    OpenFlow 1.5 carries ``curr`` to ``max_speed`` in an Ethernet property; ``ethernet`` is False for a port
    without that property. ``properties`` holds the port's other properties, each whole and without padding.
    OpenFlow 1.3 has no properties.
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


class FlowRecord(NamedTuple):
    """A TCP flow as a port saw it. src -> dst is the direction that leaves by ``out_port``.

    ``scale_*`` and ``mss_*``: the options of each end's SYN (SCALE_UNKNOWN and 0 if absent or not seen).
    ``sent_bytes``: sent by src, headers included. ``*_ns``: Unix time. ``handshake_rtt_us``: 0 if unknown.
    This is a tuple instead of a dataclass because controllers create tens of thousands per second.
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
class ArmEntry:
    """A MOD_WINDOW entry that is armed in advance. ``src`` to ``dst_port`` is the 5-tuple of the ACKs."""

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
