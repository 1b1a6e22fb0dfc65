"""What the extension table holds, as plain values: between the split of FLOW_MODs and the BPF maps."""

from __future__ import annotations

import enum
import ipaddress
from dataclasses import dataclass, field

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LARGEST_WINDOW_BYTES = 0xFFFF << 14
"""The largest window that TCP can offer (RFC 7323, section 2.2)."""


@dataclass(frozen=True, slots=True)
class TcpMatch:
    """Which TCP segments an extension entry covers. None: any.

    ``flags`` and ``flags_mask`` are TCP header bits (FIN 0x01, SYN 0x02, RST 0x04 ...): a segment
    matches when ``segment_flags & flags_mask == flags``. ``in_port`` is an OpenFlow port number; only
    window entries may have one, for a packet's input port is not known at egress.
    """

    ip_version: int = 4
    src: Network | None = None
    dst: Network | None = None
    src_port: int | None = None
    dst_port: int | None = None
    flags: int = 0
    flags_mask: int = 0
    in_port: int | None = None

    @property
    def exact(self) -> bool:
        """Whether this names one connection's direction (a full 5-tuple, nothing more)."""
        return (
            self.src is not None
            and self.dst is not None
            and self.src.prefixlen == self.src.max_prefixlen
            and self.dst.prefixlen == self.dst.max_prefixlen
            and self.src_port is not None
            and self.dst_port is not None
            and self.flags_mask == 0
            and self.in_port is None
        )


class WindowOp(enum.IntEnum):
    """What is done to the window of a matching segment; it never raises one."""

    NONE = 0
    MOD_WINDOW = 1
    SET_WINDOW = 2
    FAIR_SHARE = 3


class CountOp(enum.IntEnum):
    """What a matching segment does to N_i of the port by which it leaves."""

    NONE = 0
    INCREMENT_NI = 1
    DECREMENT_NI = 2


@dataclass(frozen=True, slots=True)
class Rule:
    """The extension part of one flow entry.

    ``window_bytes`` is the start value of MOD_WINDOW or the value of SET_WINDOW, in bytes;
    ``alpha`` the MSS that MOD_WINDOW takes off with each matching segment (SDTCP equation 4).
    ``count_port`` is an OpenFlow port number, None for the segment's output port.
    Timeouts are in seconds, 0 for none, as in OpenFlow.
    """

    table_id: int
    priority: int
    cookie: int
    match: TcpMatch = field(default_factory=TcpMatch)
    window_op: WindowOp = WindowOp.NONE
    window_bytes: int = 0
    alpha: int = 0
    count_op: CountOp = CountOp.NONE
    count_port: int | None = None
    idle_timeout_s: int = 0
    hard_timeout_s: int = 0


@dataclass(frozen=True, slots=True)
class RuleStats:
    """A rule's counters: segments and bytes matched, segments whose window was lowered."""

    packets: int = 0
    bytes: int = 0
    clamped: int = 0
