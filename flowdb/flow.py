"""A directed TCP flow and a switch port, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

LARGEST_WINDOW_FIELD = 0xFFFF
"""The TCP header's window field has 16 bits (RFC 9293); the scale multiplies it (RFC 7323)."""


@dataclass(frozen=True, slots=True)
class FiveTuple:
    """Where a TCP segment comes from and goes to. Addresses as text, IPv4 or IPv6 (never a mix)."""

    src: str
    dst: str
    src_port: int
    dst_port: int

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
class Flow:
    """One direction of a TCP connection through one switch: its data goes from ``src`` to ``dst``.

    ``out_port``: the port by which the data leaves the switch. ``opened_ns``: Unix time of the SYN.
    ``mss_bytes``: the smaller of both sides' MSS options. ``receiver_wscale``: the scale of the windows
    that the data's receiver advertises, in the ACKs that flow the other way; None when it is not known.
    """

    id: int
    key: FiveTuple
    dpid: int
    in_port: int
    out_port: int
    opened_ns: int
    mss_bytes: int
    receiver_wscale: int | None

    @property
    def port(self) -> PortKey:
        return PortKey(self.dpid, self.out_port)

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
