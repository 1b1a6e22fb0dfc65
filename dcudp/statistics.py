"""Counters of connections and nodes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class _Counters:
    @classmethod
    def of(cls, raw: Any) -> Self:
        """Copy the C structure, whose members have the names of the fields."""
        return cls(**{field.name: getattr(raw, field.name) for field in fields(cls)})


@dataclass(frozen=True, slots=True)
class ConnectionStatistics(_Counters):
    """A connection. ``mode``: 0 UDP Mode, 1 Congestion Mode, from this host to the peer.

    ``rate_pps``: packets a second that pacing allows. ``rtt_idle_us``: the least RTT. ``mtu_bytes``: the UDP
    payload that the handshake proved. ``data_...``: packets, with repetitions. ``ecn_bleached``: 1 if the
    path erases ECN.
    """

    mode: int
    mtu_bytes: int
    rate_pps: float
    rtt_us: int
    rtt_idle_us: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    data_sent: int
    retransmitted: int
    acknowledged: int
    data_received: int
    duplicates: int
    lost: int
    ce_received: int
    control_sent: int
    congestion_entries: int
    timeouts: int
    peer_window_packets: int
    ecn_bleached: int


@dataclass(frozen=True, slots=True)
class NodeStatistics(_Counters):
    """A node's socket and thread.

    ``joined_...``: messages of several packets (UDP_SEGMENT, UDP_GRO). ``too_large``, ``refused``: packets
    that the kernel did not take. ``paced``: timers of the node's thread, and how late they ran (``late_...``;
    the 99th percentile is an upper bound). ``segments``, ``txtime``: 1 if UDP_SEGMENT and SO_TXTIME are in
    use. ``fragments``: 1 if packets may be fragmented, because a path's MTU shrank.
    """

    packets_sent: int
    bytes_sent: int
    send_calls: int
    joined_sent: int
    packets_received: int
    bytes_received: int
    receive_calls: int
    joined_received: int
    ce_received: int
    too_large: int
    refused: int
    paced: int
    late_mean_us: int
    late_p99_us: int
    late_max_us: int
    cpu_us: int
    segments: int
    txtime: int
    fragments: int
