"""The tracked flows: both flow tables of the data plane (weir_flow_table.h), read as one."""

from __future__ import annotations

import ipaddress
import itertools
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from libbpf_cffi.libbpf import Map
from openflow_ext.switch.dataplane.structs import constants, ffi

_STATES = (
    (constants.WEIR_RST, "reset"),
    (constants.WEIR_FIN_IN | constants.WEIR_FIN_OUT, "closing"),
    (constants.WEIR_IDLE, "idle"),
    (constants.WEIR_ESTABLISHED, "established"),
)


@dataclass(frozen=True, slots=True)
class TrackedFlow:
    """A TCP flow at a port.

    ``local`` is the host behind the port, ``remote`` the other host. Scales and MSS are from their SYNs;
    a scale is None if the SYN had none or was not seen. ``counted``: the flow is one of the port's N_i.
    ``sent_bytes`` left by the port, headers included. ``age_s`` is the time since the first segment,
    ``silent_s`` the time since the last one.
    """

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
    """The flows of both tables, in no order. Each is read only when the iterator reaches it."""
    for key, flow in itertools.chain(_in_buckets(buckets), _in_hash(others)):
        yield _read(key, flow, time.monotonic_ns())


def _in_buckets(buckets: Map) -> Iterator[tuple[Any, Any]]:
    """The flows in buckets. The buckets are read in place, because most of them are empty."""
    size = ffi.sizeof("struct weir_bucket")
    empty = bytes(size)
    with buckets.mapped() as held:
        for begin in range(0, len(held), size):
            values = held[begin : begin + size]
            if values == empty:
                continue
            slots = ffi.from_buffer("struct weir_bucket *", values).slots
            yield from ((slot.key, slot.flow) for slot in slots if slot.key.ifindex)


def _in_hash(others: Map) -> Iterator[tuple[Any, Any]]:
    """The flows in the hash, one by one. Map.items() would read all keys first."""
    for key in others.keys():  # noqa: SIM118 - a BPF map is no dict
        flow = others.get(key)
        if flow is not None:
            yield key, flow


def _read(key: Any, flow: Any, now_ns: int) -> TrackedFlow:
    flags = int(flow.flags)
    return TrackedFlow(
        ifindex=int(key.ifindex),
        local=_address(key.local),
        local_port=socket.ntohs(key.local_port),
        remote=_address(key.remote),
        remote_port=socket.ntohs(key.remote_port),
        state=next((name for bits, name in _STATES if flags & bits), "opening"),
        counted=bool(flow.member & constants.WEIR_IN_N_I),
        local_scale=_scale(flow.local),
        remote_scale=_scale(flow.remote),
        local_mss=int(flow.local.mss),
        remote_mss=int(flow.remote.mss),
        sent_bytes=int(flow.out_bytes),
        age_s=max(0, now_ns - flow.first_ns) / 1e9,
        silent_s=max(0, now_ns - flow.last_ns) / 1e9,
    )


def _scale(offer: Any) -> int | None:
    return None if offer.scale == constants.WEIR_NO_SCALE else int(offer.scale)


def _address(held: Any) -> str:
    """The text of an address: one word in a bucket, four words in the hash."""
    if isinstance(held, int):
        return str(ipaddress.IPv4Address(socket.ntohl(held)))
    address = ipaddress.IPv6Address(bytes(ffi.buffer(held)))
    return str(address.ipv4_mapped or address)
