"""Rules as plain values: the extension's parts of flow entries, between FLOW_MODs and the BPF maps."""

from __future__ import annotations

import enum
import ipaddress
from dataclasses import dataclass, field

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class TcpMatch:
    """The TCP segments that a rule matches. A field that is None matches anything.

    ``flags`` and ``flags_mask`` are bits of the TCP header (FIN 0x01, SYN 0x02, RST 0x04 ...). A segment
    matches if ``segment_flags & flags_mask == flags``. ``in_port`` is an OpenFlow port number. Only a rule
    that just changes windows can have one, because a packet's input port is unknown at egress.
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
        """Whether this is one direction of one connection: a full 5-tuple and nothing else."""
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
    """The operation on the window of a matching segment. No operation raises a window."""

    NONE = 0
    MOD_WINDOW = 1
    SET_WINDOW = 2
    FAIR_SHARE = 3


class CountOp(enum.IntEnum):
    """The operation on N_i when a segment matches."""

    NONE = 0
    INCREMENT_NI = 1
    DECREMENT_NI = 2


@dataclass(frozen=True, slots=True)
class Rule:
    """The extension's part of one flow entry.

    ``window_bytes`` is the initial window of MOD_WINDOW or the window of SET_WINDOW. ``alpha`` is the number
    of MSS by which MOD_WINDOW decreases its window with each matching segment (SDTCP, equation (4)).
    ``count_port`` is the OpenFlow port whose N_i changes; None: the output port of the segment.
    Timeouts are in seconds as in OpenFlow; 0: none. ``hard_end_ns`` is the time of CLOCK_MONOTONIC at which
    the hard timeout passes; 0: the timeout starts when the data plane takes the rule. ``observes``: the
    window operation changes no segment. It counts the segments that it would change.
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
    hard_end_ns: int = field(default=0, compare=False)
    observes: bool = False


@dataclass(frozen=True, slots=True)
class RuleStats:
    """The counters of a rule: matched segments and bytes, and segments whose window was lowered.

    A rule that observes, or whose port observes, counts the segments whose window it would have lowered.
    """

    packets: int = 0
    bytes: int = 0
    clamped: int = 0
