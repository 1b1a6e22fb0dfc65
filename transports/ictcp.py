"""ICTCP at the interface of a receiving host: attach and detach its programs, and read their state.

The programs (ictcp.bpf.c) need no process: they act until they are detached or the interface is removed.
Nothing is pinned. The network namespace is that of the calling thread.
"""

from __future__ import annotations

import errno
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from cffi import FFI

from libbpf_cffi import libbpf
from libbpf_cffi.libbpf import BpfError, Map, Object
from transports.congestion import TransportError
from weir_base.paths import ArtifactMissing, artifact

ARTIFACT = "ictcp.bpf.o"
PROGRAMS = {libbpf.TC_INGRESS: "ictcp_ingress", libbpf.TC_EGRESS: "ictcp_egress"}
_MAP = ("ictcp_interfaces", "uint32_t", "struct ictcp_interface")

_ffi = FFI()
_ffi.cdef("""
struct ictcp_interface {
    uint32_t lock, lowered;
    uint64_t capacity_bps, subslot_began_ns, subslot_ns, arrived_bytes, free_bps, quota_bps, rtt_us_bytes;
    uint64_t received_bytes, windows_bytes, mean_window_bytes;
    uint32_t connections, slot, is_second, increases, decreases, restarts;
};
""")


@dataclass(frozen=True, slots=True)
class IctcpState:
    """The state of ICTCP at one interface.

    ``capacity_bps``: the rate of the link, as stated. ``free_bps``: the unused part of 0.9 of it in the
    last slot. ``subslot_us``: half of a slot. ``mean_window_bytes``: of the connections that received in it.
    ``slots``, ``lowered`` (segments whose window was lowered), ``increases``, ``decreases``, ``restarts`` (of
    new and of idle connections): counts since it was attached.
    """

    capacity_bps: int
    free_bps: int
    subslot_us: int
    mean_window_bytes: int
    slots: int
    lowered: int
    increases: int
    decreases: int
    restarts: int


def check() -> None:
    """Raises TransportError if this kernel rejects the programs. Nothing is attached."""
    with _verified_object():
        pass


def attach(ifname: str, capacity_bps: int) -> None:
    """Attach the programs to an interface, anew if they are attached already. Raises TransportError.

    Connections that are open are limited from then on.
    """
    ifindex = _ifindex(ifname)
    with _verified_object() as programs, _errors(f"attach to {ifname}"):
        for hook in PROGRAMS:
            _require_ours_or_free(ifname, ifindex, hook)
        state = programs.map(_MAP[0], _ffi, *_MAP[1:])
        state.put(state.key(0), state.value({"capacity_bps": capacity_bps}))
        for hook, name in PROGRAMS.items():
            libbpf.tc_attach(ifindex, hook, programs.program(name))


def detach(ifname: str) -> bool:
    """Detach the programs. Returns whether one was attached. Raises TransportError.

    An empty clsact qdisc is removed too. Other programs at the interface stay.
    """
    ifindex = _ifindex(ifname)
    attached = [hook for hook in PROGRAMS if _is_ours(ifindex, hook)]
    with _errors(f"detach from {ifname}"):
        for hook in attached:
            libbpf.tc_detach(ifindex, hook)
    if attached and not any(_tc("filter", "show", "dev", ifname, hook) for hook in ("ingress", "egress")):
        _tc("qdisc", "del", "dev", ifname, "clsact")
    return bool(attached)


def read(ifname: str) -> IctcpState:
    """The state at an interface. Raises TransportError if the programs are not attached to it."""
    ifindex = _ifindex(ifname)
    if not _is_ours(ifindex, libbpf.TC_EGRESS):
        raise TransportError(f"ICTCP is not attached to {ifname}: weir transports ictcp attach {ifname}")
    with _errors(f"read the state at {ifname}"):
        found = Map.of_program(libbpf.tc_program(ifindex, libbpf.TC_EGRESS), _MAP[0], _ffi, *_MAP[1:])
        with closing(os.fdopen(found.fd)):
            raw: Any = found.get(found.key(0))
    return IctcpState(
        capacity_bps=raw.capacity_bps,
        free_bps=raw.free_bps,
        subslot_us=raw.subslot_ns // 1000,
        mean_window_bytes=raw.mean_window_bytes,
        slots=raw.slot,
        lowered=raw.lowered,
        increases=raw.increases,
        decreases=raw.decreases,
        restarts=raw.restarts,
    )


def _ifindex(ifname: str) -> int:
    try:
        return socket.if_nametoindex(ifname)
    except OSError:
        names = ", ".join(name for _, name in socket.if_nameindex())
        raise TransportError(f"no interface {ifname} in this network namespace; it has {names}") from None


def _is_ours(ifindex: int, hook: int) -> bool:
    program = libbpf.tc_program(ifindex, hook)
    return bool(program) and libbpf.program_name(program) == PROGRAMS[hook]


def _require_ours_or_free(ifname: str, ifindex: int, hook: int) -> None:
    program = libbpf.tc_program(ifindex, hook)
    if program and not _is_ours(ifindex, hook):
        raise TransportError(
            f"{ifname} has the program {libbpf.program_name(program)} of a switch: "
            f"name the interface of the receiving host instead of the switch's port"
        )


def _tc(*words: str) -> str:
    try:
        done = subprocess.run(("tc", *words), capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise TransportError("tc is missing: install iproute2") from None
    if done.returncode:
        raise TransportError(f"tc {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


@contextmanager
def _verified_object() -> Iterator[Object]:
    """The BPF object after the kernel's verifier has accepted it."""
    with _errors("load ICTCP"), Object(artifact(ARTIFACT)) as programs:
        programs.load()
        yield programs


@contextmanager
def _errors(what: str) -> Iterator[None]:
    try:
        yield
    except ArtifactMissing as error:
        raise TransportError(str(error)) from error
    except BpfError as error:
        remedy = "run it as root" if error.errno == errno.EPERM else "see weir doctor"
        raise TransportError(f"cannot {what}: {error}; {remedy}") from error
