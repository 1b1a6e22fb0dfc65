"""The paths of Adaptive Pacing: the bottleneck towards each destination (equation (16): n, k, B and C).

A path belongs to the network namespace of the calling thread and to a destination network; the longest
prefix counts. It is in the map that the congestion controls of Adaptive Pacing share. It stays until it is
removed or the last of these controls is unloaded.

Not implemented: n from the switch of the bottleneck. A program that knows n writes it here.
"""

from __future__ import annotations

import enum
import errno
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cffi import FFI

from libbpf_cffi.libbpf import BpfError, Map
from transports.congestion import BPFFS, PATHS, TransportError

MOST_FLOWS = 65_536
MOST_RATE_BPS = 8 << 40
MOST_K = 16.0
K_ONE = 256
_SO_NETNS_COOKIE = 71
_COOKIE_BITS = 64
_MAPPED_BITS = 96
"""The bits of an IPv4-mapped address before the IPv4 address."""
_ADDRESS_BYTES = 16

_ffi = FFI()
_ffi.cdef("""
struct ap_path_key {
    uint32_t prefix_bits;
    uint32_t netns_cookie[2];
    uint8_t address[16];
};
struct weir_ap_path {
    uint64_t buffer_bytes, bytes_per_s, n_updated_ns, n_lifetime_ns;
    uint32_t flows, k, source, padding;
};
""")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class FlowsFrom(enum.IntEnum):
    """Where n comes from. NOT_PACED: there is no path. COUNTED: at this host. weir_ap.h has the same enum."""

    NOT_PACED = 0
    COUNTED = 1
    OPERATOR = 2
    NETWORK = 3


@dataclass(frozen=True, slots=True)
class PacingPath:
    """The bottleneck towards a destination.

    ``buffer_bytes``: B. ``rate_bps``: C. ``k``: packets of a flow in the time of one packet, 0.004 to 16; 1
    if all flows begin at once. ``flows``: n; 0: the connections of this host that have sent to the
    destination and are open. ``lifetime_s``: how long ``flows`` counts after it was set; 0: for ever. After
    that the host counts.
    """

    buffer_bytes: int
    rate_bps: int
    k: float = 1.0
    flows: int = 0
    lifetime_s: float = 0.0
    flows_from: FlowsFrom = FlowsFrom.OPERATOR

    def check(self) -> None:
        """Raises TransportError if a value cannot be."""
        for name, value, least, most in (
            ("buffer_bytes", self.buffer_bytes, 1, 1 << 40),
            ("rate_bps", self.rate_bps, 8, MOST_RATE_BPS),
            ("k", self.k, 1 / K_ONE, MOST_K),
            ("flows", self.flows, 0, MOST_FLOWS),
            ("lifetime_s", self.lifetime_s, 0, 1e9),
        ):
            if not least <= value <= most:
                raise TransportError(f"{name} is {value}: give {least:g} to {most:g}")


def set_path(network: Network, path: PacingPath) -> None:
    """Set the path to a destination network, in place of an earlier one. Raises TransportError."""
    path.check()
    with _paths() as held:
        value = {
            "buffer_bytes": path.buffer_bytes,
            "bytes_per_s": path.rate_bps // 8,
            "n_updated_ns": time.monotonic_ns(),
            "n_lifetime_ns": round(path.lifetime_s * 1e9),
            "flows": path.flows,
            "k": round(path.k * K_ONE),
            "source": path.flows_from,
        }
        held.put(_key(held, network), held.value(value))


def remove_path(network: Network) -> bool:
    """Remove the path to a destination network. False if there was none. Raises TransportError."""
    with _paths() as held:
        return held.delete(_key(held, network))


def paths() -> dict[Network, PacingPath]:
    """The paths of this network namespace. Raises TransportError."""
    cookie = _netns_cookie()
    with _paths() as held:
        return {
            _network(key): _path(value)
            for key, value in held.items()
            if bytes(_ffi.buffer(key.netns_cookie)) == cookie
        }


def _path(value: Any) -> PacingPath:
    return PacingPath(
        buffer_bytes=value.buffer_bytes,
        rate_bps=value.bytes_per_s * 8,
        k=value.k / K_ONE,
        flows=value.flows,
        lifetime_s=value.n_lifetime_ns / 1e9,
        flows_from=FlowsFrom(value.source),
    )


def _network(key: Any) -> Network:
    address, bits = ipaddress.IPv6Address(bytes(key.address)), key.prefix_bits - _COOKIE_BITS
    if address.ipv4_mapped and bits >= _MAPPED_BITS:
        return ipaddress.IPv4Network((address.ipv4_mapped, bits - _MAPPED_BITS))
    return ipaddress.IPv6Network((address, bits))


def _key(held: Map, network: Network) -> Any:
    address, bits = network.network_address.packed, network.prefixlen
    if isinstance(network, ipaddress.IPv4Network):
        address, bits = bytes(10) + b"\xff\xff" + address, bits + _MAPPED_BITS
    cookie = struct.unpack("=II", _netns_cookie())
    return held.key({"prefix_bits": _COOKIE_BITS + bits, "netns_cookie": cookie, "address": list(address)})


def _netns_cookie() -> bytes:
    """The kernel's number of this network namespace, which no other one has until the next boot."""
    try:
        with socket.socket() as any_socket:
            return any_socket.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
    except OSError as error:
        raise TransportError(f"this kernel numbers no network namespaces (Linux 5.14): {error}") from error


@contextmanager
def _paths() -> Iterator[Map]:
    try:
        held = Map.pinned(BPFFS / PATHS, _ffi, "struct ap_path_key", "struct weir_ap_path")
    except BpfError as error:
        remedy = "run it as root"
        if error.errno == errno.ENOENT:
            remedy = "load a control of Adaptive Pacing first: weir transports load weir_ap_reno"
        raise TransportError(f"no paths of Adaptive Pacing: {error}; {remedy}") from error
    try:
        yield held
    except BpfError as error:
        remedy = "; remove paths that are not used" if error.errno == errno.ENOSPC else ""
        raise TransportError(f"cannot use the paths of Adaptive Pacing: {error}{remedy}") from error
    finally:
        os.close(held.fd)
