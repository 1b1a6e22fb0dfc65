"""Weir's congestion controls: the list of them, and loading and unloading.

A congestion control is registered for the whole host, in every network namespace, until it is unloaded. Its
map is pinned as /sys/fs/bpf/NAME, where a later process finds it. A socket that uses it keeps it after that.

/sys/fs/bpf/NAME_build is a symbolic link whose target is the hash of the object that was loaded, so that a
control of another build, such as one from before an upgrade, is noticed.

Maps that several congestion controls share are pinned beside it while one of them is loaded. So is the hook
by which sockets set deadlines, if one of them uses deadlines.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from libbpf_cffi.libbpf import BpfError, Link, Object, unregister
from weir_base.paths import ArtifactMissing, artifact

BPFFS = Path("/sys/fs/bpf")
DEADLINES = "weir_deadlines"
PATHS = "weir_ap_paths"
SENDERS = "weir_ap_senders"
_PACING = (PATHS, SENDERS)
_DEADLINE_HOOK = "weir_deadline_hook"
_MOUNTS = Path("/proc/mounts")
_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


class TransportError(Exception):
    """A congestion control cannot be loaded, used or unloaded; the message states why, and a remedy."""


@dataclass(frozen=True, slots=True)
class Transport:
    """A congestion control, built from `transports/NAME.bpf.c`.

    `name`: its name for TCP_CONGESTION. `kernel_name`: the kernel's own implementation, if there is one.
    `shared_maps`: maps of its object that other congestion controls or user space use too.
    `has_flow`: its state of a connection is struct weir_flow (weir_flow.h).
    """

    name: str
    summary: str
    kernel_name: str | None = None
    shared_maps: tuple[str, ...] = ()
    has_flow: bool = False

    @property
    def artifact(self) -> str:
        """The built BPF object."""
        return f"{self.name}.bpf.o"


TRANSPORTS = {
    transport.name: transport
    for transport in [
        Transport("weir_dctcp", "Data Center TCP, RFC 8257", kernel_name="dctcp", has_flow=True),
        Transport("weir_d2tcp", "D2TCP: DCTCP with deadlines", shared_maps=(DEADLINES,), has_flow=True),
        Transport("weir_l2dct", "L2DCT: DCTCP that favours short flows", has_flow=True),
        Transport("weir_dctcp_plus", "DCTCP+: DCTCP that delays packets at the least window", has_flow=True),
        Transport("weir_ap_reno", "Adaptive Pacing on NewReno", shared_maps=_PACING, has_flow=True),
        Transport("weir_ap_dctcp", "Adaptive Pacing on DCTCP", shared_maps=_PACING, has_flow=True),
        Transport(
            "weir_ap_d2tcp", "Adaptive Pacing on D2TCP", shared_maps=(DEADLINES, *_PACING), has_flow=True
        ),
        Transport("weir_ap_l2dct", "Adaptive Pacing on L2DCT", shared_maps=_PACING, has_flow=True),
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


def is_this_build(name: str) -> bool:
    """Whether the registered `name` is of the built object. Raises TransportError, OSError."""
    link = _build_link(name)
    return link.is_symlink() and os.readlink(link) == _digest(name)


def load(name: str) -> bool:
    """Register `name`. False if this build of it was registered before. Raises TransportError.

    Another build of it is replaced. Connections that use it keep it.
    """
    with _pins_locked():
        registered = name in available()
        if registered and is_this_build(name):
            return False
        pin = BPFFS / name
        if registered and not pin.exists():
            raise _of_another_program(name)
        try:
            with _verified_object(name, share=True) as programs:
                if registered:
                    unregister(pin)
                pin.unlink(missing_ok=True)  # left by a process that was killed before it registered it
                if DEADLINES in TRANSPORTS[name].shared_maps:
                    _attach_deadline_hook()
                programs.register(name, pin)
                _build_link(name).unlink(missing_ok=True)
                _build_link(name).symlink_to(_digest(name))
        except BpfError as error:
            raise _refused(name, error) from error
        finally:
            _remove_unused_pins()
    return True


def unload(name: str) -> bool:
    """Unregister `name`. False if it was not registered. Raises TransportError."""
    _transport(name)
    pin = BPFFS / name
    with _pins_locked():
        try:
            if pin.exists():
                unregister(pin)
                _remove_unused_pins()
                return True
        except OSError as error:
            raise TransportError(f"cannot unload {name}: {error}") from error
        if name in available():
            raise _of_another_program(name)
        return False


@contextmanager
def loaded(name: str) -> Iterator[None]:
    """Load `name` and unload it at the end, unless it was loaded before. Raises TransportError."""
    loaded_before = name in available()
    load(name)
    try:
        yield
    finally:
        if not loaded_before:
            unload(name)


def _transport(name: str) -> Transport:
    if name not in TRANSPORTS:
        raise TransportError(f"Weir has no congestion control {name}; it has {', '.join(TRANSPORTS)}")
    return TRANSPORTS[name]


def _build_link(name: str) -> Path:
    return BPFFS / f"{name}_build"


def _digest(name: str) -> str:
    """The hash of the built object. Raises TransportError."""
    try:
        return hashlib.sha256(artifact(_transport(name).artifact).read_bytes()).hexdigest()
    except ArtifactMissing as error:
        raise TransportError(str(error)) from error


def _of_another_program(name: str) -> TransportError:
    command = f"bpftool struct_ops unregister name {name}"
    return TransportError(f"{name} was registered by another program; to remove it: {command}")


@contextmanager
def _verified_object(name: str, *, share: bool = False) -> Iterator[Object]:
    """The BPF object after the kernel's verifier has accepted it. If `share`, its shared maps are pinned."""
    transport = _transport(name)
    try:
        with Object(artifact(transport.artifact)) as programs:
            if share:
                for shared in transport.shared_maps:
                    programs.use_pinned(shared, BPFFS / shared)
            programs.load()
            yield programs
    except ArtifactMissing as error:
        raise TransportError(str(error)) from error
    except BpfError as error:
        raise _refused(name, error) from error


def _attach_deadline_hook() -> None:
    """Let every socket of the host set a deadline. Raises TransportError, BpfError."""
    pin = BPFFS / _DEADLINE_HOOK
    if pin.exists():
        return
    with Object(artifact("deadlines.bpf.o")) as programs:
        programs.use_pinned(DEADLINES, BPFFS / DEADLINES)
        programs.load()
        link = programs.attach_cgroup("set_deadline", _cgroup_root())
        try:
            link.pin(pin)
        finally:
            link.destroy()


def _cgroup_root() -> Path:
    """Where the cgroups of version 2 are mounted, with all processes below. Raises TransportError."""
    for line in _MOUNTS.read_text().splitlines():
        _, folder, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(folder)
    raise TransportError(
        "deadlines need cgroups of version 2: mount -t cgroup2 none /sys/fs/cgroup/unified, or boot with "
        "systemd.unified_cgroup_hierarchy=1"
    )


def _remove_unused_pins() -> None:
    """Remove the shared maps and the hook that no loaded congestion control needs. Sockets keep their own.

    The links with the builds of congestion controls that are not loaded are removed too.
    """
    names = available()
    for name in TRANSPORTS.keys() - set(names):
        _build_link(name).unlink(missing_ok=True)
    used = {shared for name in names if name in TRANSPORTS for shared in TRANSPORTS[name].shared_maps}
    shared = {shared for transport in TRANSPORTS.values() for shared in transport.shared_maps}
    for unused in shared - used:
        (BPFFS / unused).unlink(missing_ok=True)
    hook = BPFFS / _DEADLINE_HOOK
    if DEADLINES not in used and hook.exists():
        link = Link.pinned(hook)
        link.detach()
        link.unpin()
        link.destroy()


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
