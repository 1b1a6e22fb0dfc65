"""Weir's congestion controls: the list of them, and loading and unloading.

A congestion control is registered for the whole host, in every network namespace, until it is unloaded. Its
map is pinned as /sys/fs/bpf/NAME, where a later process finds it. A socket that uses it keeps it after that.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from libbpf_cffi.libbpf import BpfError, Object, unregister
from weir_base.paths import ArtifactMissing, artifact

BPFFS = Path("/sys/fs/bpf")
_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


class TransportError(Exception):
    """A congestion control cannot be loaded, used or unloaded; the message states why, and a remedy."""


@dataclass(frozen=True, slots=True)
class Transport:
    """A congestion control, built from `transports/NAME.bpf.c`.

    `name`: its name for TCP_CONGESTION. `kernel_name`: the kernel's own implementation, if there is one.
    """

    name: str
    summary: str
    kernel_name: str | None = None

    @property
    def artifact(self) -> str:
        """The built BPF object."""
        return f"{self.name}.bpf.o"


TRANSPORTS = {
    transport.name: transport
    for transport in [
        Transport("weir_dctcp", "Data Center TCP, RFC 8257", kernel_name="dctcp"),
    ]
}
"""Weir's congestion controls by name. This is the only list of them."""


def available() -> list[str]:
    """The congestion controls that the kernel offers, in its order, without modules that are not loaded."""
    return _AVAILABLE.read_text().split()


def require_settable(name: str) -> None:
    """Raises TransportError if no socket can use `name`. As root, this loads the kernel module if needed."""
    with socket.socket() as tcp:
        try:
            tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError as error:
            raise TransportError(f"no socket can use {name}: {error.strerror}") from error


def check(name: str) -> None:
    """Raises TransportError if this kernel rejects `name`. Nothing is registered."""
    with _verified_object(name):
        pass


def load(name: str) -> bool:
    """Register `name`. False if it was registered before. Raises TransportError."""
    with _verified_object(name) as programs, _pins_locked():
        if name in available():
            return False
        pin = BPFFS / name
        pin.unlink(missing_ok=True)  # left by a process that was killed before it registered it
        try:
            programs.register(name, pin)
        except BpfError as error:
            raise _refused(name, error) from error
    return True


def unload(name: str) -> bool:
    """Unregister `name`. False if it was not registered. Raises TransportError."""
    _transport(name)
    pin = BPFFS / name
    with _pins_locked():
        try:
            if pin.exists():
                unregister(pin)
                return True
        except OSError as error:
            raise TransportError(f"cannot unload {name}: {error}") from error
        if name in available():
            command = f"bpftool struct_ops unregister name {name}"
            raise TransportError(f"{name} was registered by another program; to remove it: {command}")
        return False


@contextmanager
def loaded(name: str) -> Iterator[None]:
    """Load `name` and unload it at the end, unless it was loaded before. Raises TransportError."""
    loaded_here = load(name)
    try:
        yield
    finally:
        if loaded_here:
            unload(name)


def _transport(name: str) -> Transport:
    if name not in TRANSPORTS:
        raise TransportError(f"Weir has no congestion control {name}; it has {', '.join(TRANSPORTS)}")
    return TRANSPORTS[name]


@contextmanager
def _verified_object(name: str) -> Iterator[Object]:
    """The BPF object after the kernel's verifier has accepted it."""
    transport = _transport(name)
    try:
        with Object(artifact(transport.artifact)) as programs:
            programs.load()
            yield programs
    except ArtifactMissing as error:
        raise TransportError(str(error)) from error
    except BpfError as error:
        raise _refused(name, error) from error


def _refused(name: str, error: BpfError) -> TransportError:
    kernel_name = TRANSPORTS[name].kernel_name
    remedy = "see weir doctor"
    if kernel_name:
        remedy = f"use the kernel's own instead: modprobe tcp_{kernel_name}"
    if error.errno == errno.EPERM:
        remedy = "run it as root"
    return TransportError(f"this kernel rejects {name}: {error}; {remedy}")


@contextmanager
def _pins_locked() -> Iterator[None]:
    """No other process loads or unloads a congestion control during this context."""
    if not os.path.ismount(BPFFS):
        raise TransportError(f"{BPFFS} is not mounted: mount -t bpf bpf {BPFFS}")
    try:
        folder = os.open(BPFFS, os.O_RDONLY)
    except PermissionError as error:
        raise TransportError(f"{BPFFS}: {error.strerror}: run it as root") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
