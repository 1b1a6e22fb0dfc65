"""The congestion controls that Weir brings: loaded into the kernel, chosen by a socket, unloaded again.

One is registered for the whole host, every network namespace of it, and stays until it is unloaded; its
map is pinned as /sys/fs/bpf/NAME, which is how a later process finds it. Sockets that have chosen it keep it
beyond that.
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

from openflow_ext.paths import ArtifactMissing, artifact
from openflow_ext.switch.libbpf import BpfError, Object, unregister

BPFFS = Path("/sys/fs/bpf")
_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


class TransportError(Exception):
    """A congestion control cannot be had; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Transport:
    """A congestion control: its name for TCP_CONGESTION, what it is, the kernel's own of that kind."""

    name: str
    summary: str
    kernels_own: str | None

    @property
    def artifact(self) -> str:
        """The built BPF object."""
        return f"{self.name}.bpf.o"


TRANSPORTS = {
    transport.name: transport
    for transport in (Transport("weir_dctcp", "Data Center TCP, RFC 8257", kernels_own="dctcp"),)
}


def available() -> list[str]:
    """The congestion controls that are in the kernel now, in its order; modules not yet loaded are not."""
    return _AVAILABLE.read_text().split()


def require_settable(name: str) -> None:
    """Raises TransportError where a socket cannot be given `name`; root's attempt loads a kernel module."""
    with socket.socket() as tcp:
        try:
            tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError as error:
            raise TransportError(f"no socket can use {name}: {error.strerror}") from error


def check(name: str) -> None:
    """Raises TransportError where this kernel refuses `name`; nothing is registered or left."""
    with _opened(name):
        pass


def load(name: str) -> bool:
    """Register `name`; False where it is there already. Raises TransportError."""
    with _opened(name) as made, _pins_locked():
        if name in available():
            return False
        pin = BPFFS / name
        pin.unlink(missing_ok=True)  # of one who was killed before it was registered
        try:
            made.register(name, pin)
        except BpfError as error:
            raise _refused(name, error) from error
    return True


def unload(name: str) -> bool:
    """Take `name` from the kernel; False where it is not there. Raises TransportError."""
    _known(name)
    pin = BPFFS / name
    with _pins_locked():
        try:
            if pin.exists():
                unregister(pin)
                return True
        except OSError as error:
            raise TransportError(f"cannot unload {name}: {error}") from error
        if name in available():
            by_hand = f"bpftool struct_ops unregister name {name}"
            raise TransportError(f"{name} was registered by somebody else: {by_hand}")
        return False


@contextmanager
def loaded(name: str) -> Iterator[None]:
    """`name` for as long as the context lasts; one that was there before stays. Raises TransportError."""
    ours = load(name)
    try:
        yield
    finally:
        if ours:
            unload(name)


def _known(name: str) -> Transport:
    if name not in TRANSPORTS:
        raise TransportError(f"no congestion control of Weir is called {name}: {', '.join(TRANSPORTS)}")
    return TRANSPORTS[name]


@contextmanager
def _opened(name: str) -> Iterator[Object]:
    """The BPF object, loaded: the kernel's verifier has agreed to it."""
    transport = _known(name)
    try:
        with Object(artifact(transport.artifact)) as made:
            made.load()
            yield made
    except ArtifactMissing as error:
        raise TransportError(str(error)) from error
    except BpfError as error:
        raise _refused(name, error) from error


def _refused(name: str, error: BpfError) -> TransportError:
    own = TRANSPORTS[name].kernels_own
    remedy = f"the kernel's own may serve: modprobe tcp_{own}" if own else "see weir doctor"
    if error.errno == errno.EPERM:
        remedy = "run it as root"
    return TransportError(f"this kernel does not take {name}: {error}; {remedy}")


@contextmanager
def _pins_locked() -> Iterator[None]:
    """Nobody else loads or unloads meanwhile."""
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
