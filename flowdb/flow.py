"""A directed TCP flow, its path and a switch port, as plain values."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from ipaddress import ip_address

NS_PER_S = 1_000_000_000

LARGEST_WINDOW_FIELD = 0xFFFF
"""The TCP header's window field has 16 bits (RFC 9293); the scale multiplies it (RFC 7323)."""


@dataclass(frozen=True, slots=True)
class FiveTuple:
    """Where a TCP segment comes from and goes to. Addresses as text, IPv4 or IPv6 (never a mix)."""

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
            raise ValueError(f"{text!r} is no flow; write it as 10.0.0.1:1000>10.0.0.2:80") from None
        if src.version != dst.version or not (0 <= src_port <= 0xFFFF and 0 <= dst_port <= 0xFFFF):
            raise ValueError(f"{text!r} is no flow: mixed IP versions, or a port above 65535")
        return cls(str(src), str(dst), src_port, dst_port)

    @property
    def reverse(self) -> FiveTuple:
        """The other direction: the ACKs of this one's data."""
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
    """A switch that a flow crosses: its data comes in by ``in_port`` and leaves by ``out_port``."""

    dpid: int
    in_port: int
    out_port: int

    @property
    def port(self) -> PortKey:
        """The port by which the data leaves the switch."""
        return PortKey(self.dpid, self.out_port)


class FlowState(enum.StrEnum):
    """``IDLE``: open, but without data for a while, so that slowing it down helps nobody."""

    ACTIVE = "active"
    IDLE = "idle"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Flow:
    """One direction of a TCP connection: its data goes from ``src`` to ``dst``, over ``path``.

    ``path``: the switches that the data crosses, in its order, each at most once. ``opened_ns``: Unix time
    of the SYN. ``mss_bytes``: the smaller of both sides' MSS options. ``receiver_wscale``: the scale of the
    windows that the data's receiver advertises, in the ACKs that flow the other way, ``sender_wscale`` the
    data sender's; None when it is not known. ``handshake_rtt_us``: SYN to ACK as a switch saw it, None when
    it did not. ``sent_bytes`` so far, ``rate_bps`` lately, ``last_active_ns``: Unix time of the last data
    known of (None: none yet).
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
        """Sorts flows from the longest-lived to the youngest."""
        return self.opened_ns, self.id

    @property
    def largest_window_bytes(self) -> int | None:
        """The largest window that the receiver can advertise; None when its scale is not known."""
        if self.receiver_wscale is None:
            return None
        return LARGEST_WINDOW_FIELD << self.receiver_wscale

    def hop_at(self, dpid: int) -> Hop | None:
        """Where the flow crosses a switch; None where it does not."""
        return next((hop for hop in self.path if hop.dpid == dpid), None)

    def heard_of(self, sent_bytes: int, last_active_ns: int, state: FlowState) -> Flow:
        """The flow after a report on it, with its rate since the one before.

        A report that tells of fewer bytes or an earlier time than is known (another switch's, or one whose
        clock was set back) changes neither them nor the rate.
        """
        since_ns = self.opened_ns if self.last_active_ns is None else self.last_active_ns
        more_bytes, passed_ns = sent_bytes - self.sent_bytes, last_active_ns - since_ns
        if more_bytes < 0 or passed_ns <= 0:
            return replace(self, state=state)
        return replace(
            self,
            sent_bytes=sent_bytes,
            rate_bps=more_bytes * 8 * NS_PER_S // passed_ns,
            last_active_ns=last_active_ns,
            state=state,
        )
