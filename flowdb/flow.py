"""A directed TCP flow, its path, and a switch port, as plain values."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from ipaddress import ip_address

from weir_base.window import MAX_WINDOW_FIELD

NS_PER_S = 1_000_000_000
NON_TCP_PERCENT = 50
"""From here on, packets that are not TCP fill a queue, and no flow is punished. As in the data plane."""
_LARGEST_RATE_BPS = 10**12
"""The sum of the rates of a million flows is an integer of SQL."""


@dataclass(frozen=True, slots=True)
class FiveTuple:
    """The addresses and ports of a TCP segment. The addresses are text, both IPv4 or both IPv6."""

    src: str
    dst: str
    src_port: int
    dst_port: int

    @classmethod
    def parse(cls, text: str) -> FiveTuple:
        """From ``10.0.0.1:1000>10.0.0.2:80`` or ``[fe80::1]:1000>[fe80::2]:80``. Raises ValueError."""
        try:
            ends = [end.strip().rpartition(":") for end in text.split(">")]
            (src, src_port), (dst, dst_port) = ((ip_address(a.strip("[]")), int(port)) for a, _, port in ends)
        except ValueError:
            raise ValueError(f"{text!r} is not a flow; write it as 10.0.0.1:1000>10.0.0.2:80") from None
        if src.version != dst.version or not (0 <= src_port <= 0xFFFF and 0 <= dst_port <= 0xFFFF):
            raise ValueError(f"{text!r} is not a flow: mixed IP versions, or a port above 65535")
        return cls(str(src), str(dst), src_port, dst_port)

    @property
    def reverse(self) -> FiveTuple:
        """The other direction, in which the ACKs of this direction's data travel."""
        return FiveTuple(self.dst, self.src, self.dst_port, self.src_port)

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.src

    def __str__(self) -> str:
        return f"{self.src}:{self.src_port}>{self.dst}:{self.dst_port}"


@dataclass(frozen=True, slots=True)
class PortKey:
    """A port of a switch."""

    dpid: int
    port_no: int

    def __str__(self) -> str:
        return f"{self.dpid:016x}:{self.port_no}"


@dataclass(frozen=True, slots=True)
class Hop:
    """A switch that a flow crosses: its data enters by ``in_port`` and leaves by ``out_port``."""

    dpid: int
    in_port: int
    out_port: int

    @property
    def port(self) -> PortKey:
        """The port by which the data leaves the switch."""
        return PortKey(self.dpid, self.out_port)


class FlowState(enum.StrEnum):
    """``IDLE``: open, but without data for a while, so that slowing it down does not shorten a queue."""

    ACTIVE = "active"
    IDLE = "idle"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Flow:
    """One direction of a TCP connection: its data goes from ``src`` to ``dst``, over ``path``.

    ``path``: the switches that the data crosses, in order, each at most once. ``opened_ns``: Unix time of the
    SYN. ``mss_bytes``: the smaller of both sides' MSS options. ``receiver_wscale``: the window scale of the
    data's receiver, whose windows travel in the ACKs; ``sender_wscale``: that of the data's sender; None if
    unknown. ``handshake_rtt_us``: the time from SYN to ACK at a switch, None if no switch saw both.
    ``sent_bytes``: since the SYN. ``rate_bps``: between the last two flow reports. ``last_active_ns``: Unix
    time of the last data that was reported, None if none was.
    """

    id: int
    key: FiveTuple
    path: tuple[Hop, ...]
    opened_ns: int
    mss_bytes: int
    receiver_wscale: int | None
    sender_wscale: int | None = None
    handshake_rtt_us: int | None = None
    sent_bytes: int = 0
    rate_bps: int = 0
    last_active_ns: int | None = None
    state: FlowState = FlowState.ACTIVE

    @property
    def age_key(self) -> tuple[int, int]:
        """A sort key: the longest-lived flow first."""
        return self.opened_ns, self.id

    @property
    def largest_window_bytes(self) -> int | None:
        """The largest window that the receiver can advertise; None if its scale is unknown."""
        if self.receiver_wscale is None:
            return None
        return MAX_WINDOW_FIELD << self.receiver_wscale

    def hop_at(self, dpid: int) -> Hop | None:
        """The hop at a switch; None if the flow does not cross it."""
        return next((hop for hop in self.path if hop.dpid == dpid), None)

    def with_report(self, sent_bytes: int, last_active_ns: int, state: FlowState) -> Flow:
        """The flow after a flow report, with its rate since the report before.

        A report with fewer bytes or an earlier time than known changes only the state. Another switch may
        send such a report, or a switch whose clock was set back. A rate above 1 Tbit/s is an error of two
        reports that are too close: it is cut to that.
        """
        since_ns = self.opened_ns if self.last_active_ns is None else self.last_active_ns
        more_bytes, passed_ns = sent_bytes - self.sent_bytes, last_active_ns - since_ns
        if more_bytes < 0 or passed_ns <= 0:
            return replace(self, state=state)
        return replace(
            self,
            sent_bytes=sent_bytes,
            rate_bps=min(more_bytes * 8 * NS_PER_S // passed_ns, _LARGEST_RATE_BPS),
            last_active_ns=last_active_ns,
            state=state,
        )
