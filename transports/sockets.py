"""The state of each connection of the DCTCP family, read from the kernel (dctcp_sockets.bpf.c)."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cffi import FFI

from libbpf_cffi.libbpf import BpfError, Link, Object
from transports.congestion import TRANSPORTS, TransportError
from transports.pacing_paths import FlowsFrom
from weir_base.paths import ArtifactMissing, artifact

ALPHA_ONE = 1 << 16

_ffi = FFI()
_ffi.cdef("""
struct dctcp_socket {
    uint8_t local[16], remote[16];
    uint16_t local_port, remote_port;
    uint32_t cwnd, ssthresh, prior_cwnd;
    uint32_t srtt_us, padding;
    uint64_t pacing_bytes_per_s;
    char name[16];
    uint32_t alpha, window_end, acked_bytes, marked_bytes, una, prior_rcv_nxt, ce, reduction, high_seq;
    uint32_t delivered;
    uint32_t exponent, credit;
    uint64_t start_bytes;
    uint32_t is_counted, flows, source, interval_ns;
    uint64_t n_updated_ns;
    uint32_t slow_state, slow_ns;
};
""")
_RECORD = "struct dctcp_socket"


@dataclass(frozen=True, slots=True)
class DctcpSocket:
    """The state of one connection. Windows are in segments.

    ``prior_cwnd``: the congestion window before the last reduction. ``alpha``: the estimated fraction of
    marked bytes, 0 to 1. ``acked_bytes``, ``marked_bytes``: of the current observation window. ``ce``: the
    last data segment arrived with CE. ``control``: the congestion control. ``exponent``: of alpha at the last
    reduction by marks, d of D2TCP and wc of L2DCT; 0 before, and under DCTCP. ``flows``, ``flows_from``,
    ``flows_age_s`` and ``interval_us``: n, its source and age, and t of Adaptive Pacing when it last sent.
    The age is None unless a path states n. If n is from the window, it is the time since the connection sent.
    t is 0 if nothing is paced. ``pacing_rate_bps``: the rate at which the kernel sends now if it paces.
    ``slow_time_us``: of DCTCP+, the time by which it delays packets; 0: it does not.
    """

    local: tuple[str, int]
    remote: tuple[str, int]
    cwnd: int
    ssthresh: int
    prior_cwnd: int
    srtt_us: int
    alpha: float
    acked_bytes: int
    marked_bytes: int
    ce: bool
    control: str
    exponent: float
    flows: int
    flows_from: str
    flows_age_s: float | None
    interval_us: float
    pacing_rate_bps: int
    slow_time_us: float


class SocketReader:
    """Reads the connections of the network namespace of the calling thread."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def read(self) -> list[DctcpSocket]:
        """Every connection with a congestion control that keeps struct weir_flow. Raises TransportError."""
        try:
            records = self._link.read()
        except BpfError as error:
            raise TransportError(f"cannot read the state of sockets: {error}") from error
        size = _ffi.sizeof(_RECORD)
        each = (records[at : at + size] for at in range(0, len(records), size))
        found = (_ffi.from_buffer(_RECORD + " *", record) for record in each)
        return [_socket(raw) for raw in found if _has_flow(_control(raw))]


@contextmanager
def socket_reader() -> Iterator[SocketReader]:
    """A reader, which works even if none is loaded. Raises TransportError."""
    try:
        with Object(artifact("dctcp_sockets.bpf.o")) as programs:
            programs.load()
            link = programs.attach("dctcp_sockets")
            try:
                yield SocketReader(link)
            finally:
                link.destroy()
    except (ArtifactMissing, BpfError) as error:
        raise TransportError(f"cannot read the state of sockets: {error}") from error


def _control(raw: Any) -> str:
    """The name of the congestion control. Another program may give its own any bytes as its name."""
    return str(_ffi.string(raw.name).decode(errors="replace"))


def _has_flow(control: str) -> bool:
    return control in TRANSPORTS and TRANSPORTS[control].has_flow


def _socket(raw: Any) -> DctcpSocket:
    flows_from = FlowsFrom(raw.source)
    is_stated = flows_from not in (FlowsFrom.NOT_PACED, FlowsFrom.COUNTED)
    return DctcpSocket(
        local=(_address(bytes(raw.local)), raw.local_port),
        remote=(_address(bytes(raw.remote)), raw.remote_port),
        cwnd=raw.cwnd,
        ssthresh=raw.ssthresh,
        prior_cwnd=raw.prior_cwnd,
        srtt_us=raw.srtt_us,
        alpha=raw.alpha / ALPHA_ONE,
        acked_bytes=raw.acked_bytes,
        marked_bytes=raw.marked_bytes,
        ce=bool(raw.ce),
        control=_control(raw),
        exponent=raw.exponent / ALPHA_ONE,
        flows=raw.flows,
        flows_from=flows_from.name.lower(),
        flows_age_s=(time.monotonic_ns() - raw.n_updated_ns) / 1e9 if is_stated else None,
        interval_us=raw.interval_ns / 1000,
        pacing_rate_bps=raw.pacing_bytes_per_s * 8,
        slow_time_us=raw.slow_ns / 1000,
    )


def _address(packed: bytes) -> str:
    address = ipaddress.IPv6Address(packed)
    return str(address.ipv4_mapped or address)
