"""The data plane's two tables of flows (weir_tracked.h), read as one: one value a flow and port."""

from __future__ import annotations

import ipaddress
import itertools
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from openflow_ext.switch.layout import constants, ffi
from openflow_ext.switch.libbpf import Map

_STATES = (
    (constants.WEIR_RST, "reset"),
    (constants.WEIR_FIN_IN | constants.WEIR_FIN_OUT, "closing"),
    (constants.WEIR_IDLE, "idle"),
    (constants.WEIR_ESTABLISHED, "established"),
)


@dataclass(frozen=True, slots=True)
class TrackedFlow:
    """A TCP flow at a port. ``local`` is the host behind the port; scales and MSS are those of its SYN and
    of the other's (scale None: none offered, or not seen). ``counted``: it is one of the port's N_i.
    ``sent_bytes`` left by the port, headers included."""

    ifindex: int
    local: str
    local_port: int
    remote: str
    remote_port: int
    state: str
    counted: bool
    local_scale: int | None
    remote_scale: int | None
    local_mss: int
    remote_mss: int
    sent_bytes: int
    age_s: float
    silent_s: float


def tracked(buckets: Map, others: Map) -> Iterator[TrackedFlow]:
    """The flows in both tables, in no order, read as they are asked for: there may be a million."""
    for key, flow in itertools.chain(_placed(buckets), _hashed(others)):
        yield _read(key, flow, time.monotonic_ns())


def _placed(buckets: Map) -> Iterator[tuple[Any, Any]]:
    """Those in the buckets, most of which are empty: they are read in place."""
    size = ffi.sizeof("struct weir_bucket")
    empty = bytes(size)
    with buckets.mapped() as held:
        for begin in range(0, len(held), size):
            values = held[begin : begin + size]
            if values == empty:
                continue
            places = ffi.from_buffer("struct weir_bucket *", values).places
            yield from ((place.key, place.flow) for place in places if place.key.ifindex)


def _hashed(others: Map) -> Iterator[tuple[Any, Any]]:
    """The others, one by one: Map.items() would read all keys first."""
    for key in others.keys():  # noqa: SIM118 - a BPF map is no dict
        flow = others.get(key)
        if flow is not None:
            yield key, flow


def _read(key: Any, flow: Any, now_ns: int) -> TrackedFlow:
    seen = int(flow.seen)
    return TrackedFlow(
        ifindex=int(key.ifindex),
        local=_address(key.local),
        local_port=socket.ntohs(key.local_port),
        remote=_address(key.remote),
        remote_port=socket.ntohs(key.remote_port),
        state=next((name for bits, name in _STATES if seen & bits), "opening"),
        counted=bool(flow.counted),
        local_scale=_scale(flow.local),
        remote_scale=_scale(flow.remote),
        local_mss=int(flow.local.mss),
        remote_mss=int(flow.remote.mss),
        sent_bytes=int(flow.out_bytes),
        age_s=max(0, now_ns - flow.first_ns) / 1e9,
        silent_s=max(0, now_ns - flow.last_ns) / 1e9,
    )


def _scale(half: Any) -> int | None:
    return None if half.scale == constants.WEIR_NO_SCALE else int(half.scale)


def _address(held: Any) -> str:
    """Of a key: one word in a bucket, four elsewhere."""
    if isinstance(held, int):
        return str(ipaddress.IPv4Address(socket.ntohl(held)))
    address = ipaddress.IPv6Address(bytes(ffi.buffer(held)))
    return str(address.ipv4_mapped or address)
