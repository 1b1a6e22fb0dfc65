"""The paths of Adaptive Pacing: the bottleneck towards each destination (equation (16): n, k, B and C).

A path belongs to the network namespace of the calling thread and to a destination network; the longest
prefix counts. It is in the map that the congestion controls of Adaptive Pacing share. It stays until it is
removed or the last of these controls is unloaded.

`weir transports follow` (follower.py) writes what a controller knows of the bottlenecks. An operator's path
is written by `weir transports path`.
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
from transports.congestion import BPFFS, PATHS, SENDERS, TransportError

MOST_FLOWS = 65_536
MOST_RATE_BPS = 8 << 40
MOST_K = 16.0
MOST_BUFFER_BYTES = 1 << 40
MOST_ALLOWANCE_BYTES = (1 << 32) - 1
K_ONE = 256
_SO_NETNS_COOKIE = 71
_COOKIE_BITS = 64
_MAPPED_BITS = 96
"""The bits of an IPv4-mapped address before the IPv4 address."""

_ffi = FFI()
_ffi.cdef("""
struct ap_path_key {
    uint32_t prefix_bits;
    uint32_t netns_cookie[2];
    uint8_t address[16];
};
struct weir_ap_path {
    uint64_t buffer_bytes, bytes_per_s, n_updated_ns, n_lifetime_ns;
    uint32_t flows, k, source, allowance_bytes;
};
struct ap_destination {
    uint32_t netns_cookie[2];
    uint8_t address[16];
};
""")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class FlowsFrom(enum.IntEnum):
    """Where n comes from. weir_ap.h has the same enum.

    NOT_PACED: there is no path. COUNTED: at this host. OPERATOR: from a person or program at this host.
    NETWORK: from the switch of the bottleneck, by the controller. WINDOW: the same switch's fair share, which
    is the window of the last ACK.
    """

    NOT_PACED = 0
    COUNTED = 1
    OPERATOR = 2
    NETWORK = 3
    WINDOW = 4


@dataclass(frozen=True, slots=True)
class PacingPath:
    """The bottleneck towards a destination.

    ``buffer_bytes``: B. ``rate_bps``: C. ``k``: packets of a flow in the time of one packet, 0.004 to 16; 1
    if all flows begin at once. ``flows``: n; 0: the connections of this host that have sent to the
    destination and are open. ``allowance_bytes``: what the bottleneck's switch divides into fair shares,
    which are the advertised windows: n is this divided by the window. 0: windows carry no n.
    ``lifetime_s``: how long ``flows`` and ``allowance_bytes`` count after they were true; 0: for ever. After
    that the host counts. ``age_s``: how long ago they were true.
    """

    buffer_bytes: int
    rate_bps: int
    k: float = 1.0
    flows: int = 0
    lifetime_s: float = 0.0
    flows_from: FlowsFrom = FlowsFrom.OPERATOR
    allowance_bytes: int = 0
    age_s: float = 0.0

    def check(self) -> None:
        """Raises TransportError if a value cannot be."""
        for name, value, least, most in (
            ("buffer_bytes", self.buffer_bytes, 1, MOST_BUFFER_BYTES),
            ("rate_bps", self.rate_bps, 8, MOST_RATE_BPS),
            ("k", self.k, 1 / K_ONE, MOST_K),
            ("flows", self.flows, 0, MOST_FLOWS),
            ("allowance_bytes", self.allowance_bytes, 0, MOST_ALLOWANCE_BYTES),
            ("lifetime_s", self.lifetime_s, 0, 1e9),
            ("age_s", self.age_s, 0, 1e9),
        ):
            if not least <= value <= most:
                raise TransportError(f"{name} is {value}: give {least:g} to {most:g}")


def set_path(network: Network, path: PacingPath, namespace: bytes | None = None) -> None:
    """Set the path to a destination network, in place of an earlier one. Raises TransportError.

    ``namespace``: the network namespace whose connections it concerns, as ``this_namespace`` names it; None:
    that of the calling thread. The same holds for the functions below.
    """
    path.check()
    with _pinned(PATHS, "struct ap_path_key", "struct weir_ap_path") as held:
        value = {
            "buffer_bytes": path.buffer_bytes,
            "bytes_per_s": path.rate_bps // 8,
            "n_updated_ns": max(time.monotonic_ns() - round(path.age_s * 1e9), 1),
            "n_lifetime_ns": round(path.lifetime_s * 1e9),
            "flows": path.flows,
            "k": round(path.k * K_ONE),
            "source": path.flows_from,
            "allowance_bytes": path.allowance_bytes,
        }
        held.put(_key(held, network, namespace), held.value(value))


def remove_path(network: Network, namespace: bytes | None = None) -> bool:
    """Remove the path to a destination network. False if there was none. Raises TransportError."""
    with _pinned(PATHS, "struct ap_path_key", "struct weir_ap_path") as held:
        return held.delete(_key(held, network, namespace))


def paths(namespace: bytes | None = None) -> dict[Network, PacingPath]:
    """The paths of a network namespace. Raises TransportError."""
    return paths_by_namespace().get(namespace or this_namespace(), {})


def paths_by_namespace() -> dict[bytes, dict[Network, PacingPath]]:
    """The paths of every network namespace that has some. Raises TransportError."""
    now_ns, found = time.monotonic_ns(), dict[bytes, dict[Network, PacingPath]]()
    with _pinned(PATHS, "struct ap_path_key", "struct weir_ap_path") as held:
        for key, value in held.items():
            found.setdefault(_namespace(key), {})[_network(key)] = _path(value, now_ns)
    return found


def destinations_by_namespace() -> dict[bytes, list[Address]]:
    """The hosts to which paced connections of each network namespace sent, with open connections first.

    The kernel remembers a limited number, and forgets the destination that was not used for longest. Raises
    TransportError.
    """
    with _pinned(SENDERS, "struct ap_destination", "int64_t") as held:
        items = [(_namespace(key), _address(bytes(key.address)), value[0]) for key, value in held.items()]
    found: dict[bytes, list[Address]] = {}
    for namespace, address, _ in sorted(items, key=lambda item: item[2] <= 0):
        found.setdefault(namespace, []).append(address)
    return found


def this_namespace() -> bytes:
    """The kernel's number of the calling thread's network namespace, which no other one has until the next
    boot. Raises TransportError.
    """
    try:
        with socket.socket() as any_socket:
            return any_socket.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
    except OSError as error:
        raise TransportError(f"this kernel numbers no network namespaces (Linux 5.14): {error}") from error


def _path(value: Any, now_ns: int) -> PacingPath:
    return PacingPath(
        buffer_bytes=value.buffer_bytes,
        rate_bps=value.bytes_per_s * 8,
        k=value.k / K_ONE,
        flows=value.flows,
        lifetime_s=value.n_lifetime_ns / 1e9,
        flows_from=FlowsFrom(value.source),
        allowance_bytes=value.allowance_bytes,
        age_s=max(now_ns - value.n_updated_ns, 0) / 1e9,
    )


def _namespace(key: Any) -> bytes:
    return bytes(_ffi.buffer(key.netns_cookie))


def _address(packed: bytes) -> Address:
    address = ipaddress.IPv6Address(packed)
    return address.ipv4_mapped or address


def _network(key: Any) -> Network:
    address, bits = ipaddress.IPv6Address(bytes(key.address)), key.prefix_bits - _COOKIE_BITS
    if address.ipv4_mapped and bits >= _MAPPED_BITS:
        return ipaddress.IPv4Network((address.ipv4_mapped, bits - _MAPPED_BITS))
    return ipaddress.IPv6Network((address, bits))


def _key(held: Map, network: Network, namespace: bytes | None) -> Any:
    address, bits = network.network_address.packed, network.prefixlen
    if isinstance(network, ipaddress.IPv4Network):
        address, bits = bytes(10) + b"\xff\xff" + address, bits + _MAPPED_BITS
    cookie = struct.unpack("=II", namespace or this_namespace())
    return held.key({"prefix_bits": _COOKIE_BITS + bits, "netns_cookie": cookie, "address": list(address)})


@contextmanager
def _pinned(name: str, key: str, value: str) -> Iterator[Map]:
    """One of the maps that the controls of Adaptive Pacing share. Raises TransportError."""
    try:
        held = Map.pinned(BPFFS / name, _ffi, key, value)
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
