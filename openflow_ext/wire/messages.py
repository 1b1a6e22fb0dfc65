"""The extension's messages. Each is defined once: its class, its number and the layout of its fixed part.

``codec.py`` turns them to bytes and back. ``openflow_ext.registry`` gives each a class in Ryu and os-ken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from openflow_ext.wire.errors import ErrorCode
from openflow_ext.wire.layout import Layout, bits, flag, percentage, thousandth
from openflow_ext.wire.openflow import OFPP_ANY
from openflow_ext.wire.port_counters import PortCountersRecord
from openflow_ext.wire.types import (
    ArmEntry,
    FlowKinds,
    FlowRecord,
    MarkMode,
    OfpPort,
    PortConfigFlags,
)

__all__ = [
    "EXPERIMENTER_MESSAGES",
    "Arm",
    "BufAlarm",
    "BufNormal",
    "ExperimenterError",
    "FlowReport",
    "FlowReportConfig",
    "Message",
    "MessageFormat",
    "PortConfig",
    "PortConfigReply",
    "PortCountersReply",
    "PortCountersRequest",
    "Reflex",
]

Sender: TypeAlias = Literal["switch", "controller"]


class Message:
    """Base class of the extension's messages."""

    __slots__ = ()


_M = TypeVar("_M", bound=Message)


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """How an OFPT_EXPERIMENTER message travels. ``layout`` is its fixed part; a list may follow it."""

    exp_type: int
    layout: Layout
    sender: Sender


EXPERIMENTER_MESSAGES: dict[type[Message], MessageFormat] = {}
"""Every message that travels as OFPT_EXPERIMENTER, with its format."""


def _experimenter_message(
    exp_type: int, name: str, spec: str, sender: Sender, **converters: Callable[[int], int]
) -> Callable[[type[_M]], type[_M]]:
    """Register a message class under its ``exp_type``, with a Layout of the other arguments."""

    def register(cls: type[_M]) -> type[_M]:
        for other, format_ in EXPERIMENTER_MESSAGES.items():
            if format_.exp_type == exp_type:
                raise TypeError(f"{cls.__name__} and {other.__name__} both have exp_type {exp_type}")
        EXPERIMENTER_MESSAGES[cls] = MessageFormat(exp_type, Layout(name, spec, **converters), sender)
        return cls

    return register


_CROSSING_SPEC = (
    "port_buf_pkts:I port_buf_bytes:I port_rate_bps:Q cookie:Q priority:H non_tcp_percent:B 1x n_i:I"
    " crossing_ns:Q allowance_bytes:I 4x"
)
_PORT_CONFIG_SPEC = (
    "port_no:I flags:I k_pkts:I rtt_us:I capacity_bps:Q common_rtt_us:I least_window_bytes:I cookie:Q"
    " priority:H mark_mode:H mark_min_pkts:I mark_max_pkts:I off:B 3x"
)


@dataclass(frozen=True, slots=True)
class _QueueCrossing(Message):
    """A port's queue and the time at which its state changed.

    ``port_buf_pkts`` and ``port_buf_bytes``: the queue at that moment. ``port_rate_bps``: the port's
    capacity. ``cookie`` and ``priority``: from the controller's PORT_CONFIG. ``n_i``: flows counted at the
    port. ``crossing_ns``: Unix time, taken by the kernel. ``non_tcp_percent``: the part of ``port_buf_bytes``
    that would be there if the packets that are not TCP were alone, 0 to 100. ``allowance_bytes``: what may be
    in flight through the port, in the queue and on the links; 0: the port does not correct it.
    """

    port: OfpPort
    port_buf_pkts: int
    port_buf_bytes: int
    port_rate_bps: int
    cookie: int = 0
    priority: int = 0
    n_i: int = 0
    crossing_ns: int = 0
    non_tcp_percent: int = 0
    allowance_bytes: int = 0


@_experimenter_message(1, "buf_alarm", _CROSSING_SPEC, "switch", non_tcp_percent=percentage)
@dataclass(frozen=True, slots=True)
class BufAlarm(_QueueCrossing):
    """BUF_ALARM: the queue passed K packets, or was still above K at a check (SDTCP, section III.A)."""


@_experimenter_message(2, "buf_alarm", _CROSSING_SPEC, "switch", non_tcp_percent=percentage)
@dataclass(frozen=True, slots=True)
class BufNormal(_QueueCrossing):
    """BUF_NORMAL: three successive checks found at most K packets; ``crossing_ns`` is the third."""


@dataclass(frozen=True, slots=True)
class _PortSettings(Message):
    """The settings of a port.

    ``capacity_bps`` 0: use the port's own rate. ``least_window_bytes`` 0: one MSS. ``off``: the switch
    changes no packet, whatever the other settings are, and counts as before.
    """

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
    off: bool = False


@_experimenter_message(
    3,
    "port_config",
    _PORT_CONFIG_SPEC,
    "controller",
    flags=bits(PortConfigFlags),
    mark_mode=MarkMode,
    off=flag,
)
@dataclass(frozen=True, slots=True)
class PortConfig(_PortSettings):
    """PORT_CONFIG: the controller sets or reads a port's settings."""


@_experimenter_message(
    4,
    "port_config",
    _PORT_CONFIG_SPEC,
    "switch",
    flags=bits(PortConfigFlags),
    mark_mode=MarkMode,
    off=flag,
)
@dataclass(frozen=True, slots=True)
class PortConfigReply(_PortSettings):
    """PORT_CONFIG_REPLY: the settings in force; ``capacity_bps`` is never 0."""


@_experimenter_message(
    5,
    "flow_report",
    "lost:Q roll_called:B 1x now_ms:H now_s:I",
    "switch",
    roll_called=flag,
    now_ms=thousandth,
)
@dataclass(frozen=True, slots=True)
class FlowReport(Message):
    """FLOW_REPORT: at most FLOW_REPORT_MAX flow records.

    ``lost``: records that the switch dropped since its last FLOW_REPORT. ``roll_called``: the roll call is
    complete. The switch has now reported every flow that existed when this connection asked for reports.
    ``now_s`` and ``now_ms``: the switch's Unix time when it sent the message, by the clock of the records'
    times, in seconds and further milliseconds. 0 s: not stated (switches of version 0.1).
    """

    records: tuple[FlowRecord, ...] = ()
    lost: int = 0
    roll_called: bool = False
    now_ms: int = 0
    now_s: int = 0


@_experimenter_message(6, "arm", "port_no:I count:H 2x", "controller")
@dataclass(frozen=True, slots=True)
class Arm(Message):
    """ARM: replaces the port's armed entries, by rank, at most ARM_MAX. No entries: disarm the port."""

    port_no: int
    entries: tuple[ArmEntry, ...] = ()


@_experimenter_message(
    7,
    "flow_report_config",
    "kinds:I interval_ms:I active_ms:I idle_ms:I",
    "controller",
    kinds=bits(FlowKinds),
)
@dataclass(frozen=True, slots=True)
class FlowReportConfig(Message):
    """FLOW_REPORT_CONFIG: the flow reports that this connection of the controller wants.

    ``interval_ms``: the longest time that the switch holds a record back (0: none). ``active_ms``: how
    often it reports an active flow (0: never). ``idle_ms``: the silence after which a flow is idle (0: the
    switch's default). A connection that asks for ACTIVE or IDLE first gets a roll call of all flows.
    The setting ends with the connection.
    """

    kinds: FlowKinds = FlowKinds.NONE
    interval_ms: int = 0
    active_ms: int = 0
    idle_ms: int = 0


@_experimenter_message(8, "reflex", "port_no:I rank:I on:B 3x n_i:I cookie:Q when_ns:Q", "switch", on=flag)
@dataclass(frozen=True, slots=True)
class Reflex(Message):
    """REFLEX: at ``when_ns`` (Unix time) the data plane switched an armed entry on or off.

    ``rank``: the entry's place in the port's armed entries, from 0. ``n_i``: flows counted at the port.
    """

    port_no: int
    rank: int
    on: bool
    n_i: int = 0
    cookie: int = 0
    when_ns: int = 0


@dataclass(frozen=True, slots=True)
class PortCountersRequest(Message):
    """Multipart request for the counters of one port, or of all ports (OFPP_ANY)."""

    port_no: int = OFPP_ANY


@dataclass(frozen=True, slots=True)
class PortCountersReply(Message):
    """Multipart reply with at most PORT_COUNTERS_MAX records; ``more``: another reply follows."""

    records: tuple[PortCountersRecord, ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class ExperimenterError(Message):
    """OFPT_ERROR of type OFPET_EXPERIMENTER; ``data`` is the start of the refused message."""

    code: ErrorCode
    data: bytes = b""
