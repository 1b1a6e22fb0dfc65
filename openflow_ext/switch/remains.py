"""Our programs taken off interfaces, also those of a data plane that an agent of another version has left."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from openflow_ext.switch import libbpf
from openflow_ext.switch.dataplane import DataPlaneError
from openflow_ext.switch.libbpf import BpfError
from openflow_ext.switch.pinned import BPFFS
from openflow_ext.switch.qdiscs import Qdiscs

INGRESS_NAME = "weir_ingress"
_HOOKS = (libbpf.TC_INGRESS, libbpf.TC_EGRESS)


def remove_left(name: str) -> None:
    """Take the data plane ``name`` off all interfaces, and its maps away. Raises DataPlaneError.

    Which version of Weir made it, and for how many flows, is all one: its programs use its map of ports.
    """
    folder = BPFFS / name
    if not folder.exists():
        return
    try:
        with closing(Qdiscs()) as qdiscs:
            for ifindex in _interfaces_of(folder):
                take_off(ifindex)
                qdiscs.remove_empty_clsact(ifindex)
        remove_pins(folder)
    except OSError as error:
        raise DataPlaneError(f"what is left at {folder} cannot be removed: {error}") from error


def take_off(ifindex: int) -> None:
    """Take what is ours off an interface; one that is gone is fine. Raises BpfError."""
    with _gone_is_fine():
        there = libbpf.xdp_program(ifindex)
        if there and libbpf.program_name(there) == INGRESS_NAME[:15]:
            libbpf.xdp_detach(ifindex)
    for hook in _HOOKS:
        with _gone_is_fine():
            libbpf.tc_detach(ifindex, hook)


def remove_pins(folder: Path) -> None:
    """Remove a folder of pins; what only they held goes with them. Raises OSError."""
    for pin in sorted(folder.iterdir()):
        pin.unlink()
    folder.rmdir()


def _interfaces_of(folder: Path) -> Iterator[int]:
    """Those with programs that use the folder's map of ports; none where an agent did not get that far."""
    pin = folder / "ports"
    if not pin.exists():
        return
    ports = libbpf.pinned_map_id(pin)
    for ifindex, _ in socket.if_nameindex():
        if any(ports in libbpf.maps_of(program) for program in _programs_at(ifindex)):
            yield ifindex


def _programs_at(ifindex: int) -> list[int]:
    programs = [libbpf.tc_program(ifindex, hook) for hook in _HOOKS]
    with _gone_is_fine():
        programs.append(libbpf.xdp_program(ifindex))
    return programs


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except BpfError as error:
        if error.errno not in (errno.ENODEV, errno.ENOENT, errno.EINVAL):
            raise
