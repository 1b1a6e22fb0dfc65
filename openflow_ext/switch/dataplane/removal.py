"""Programs and pins removed, also if another version of Weir left them behind."""

from __future__ import annotations

import errno
import functools
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from libbpf_cffi import libbpf
from openflow_ext.switch.dataplane.interface import DataPlaneError
from openflow_ext.switch.dataplane.netlink import interfaces
from openflow_ext.switch.dataplane.pinned_maps import BPFFS
from openflow_ext.switch.dataplane.qdiscs import Qdiscs

INGRESS_NAME = "weir_ingress"
INGRESS_TC_NAME = "weir_ingress_tc"
_HOOKS = (libbpf.TC_INGRESS, libbpf.TC_EGRESS)


def next_folder(folder: Path) -> Path:
    """Where an upgrade makes the new maps (upgrade/pins.py). No name of a data plane has a plus sign."""
    return folder.with_name(f"{folder.name}+next")


def old_folder(folder: Path) -> Path:
    """Where the earlier maps are while an upgrade moves their last state."""
    return folder.with_name(f"{folder.name}+old")


def remove_data_plane(name: str) -> None:
    """Detach the programs of the data plane ``name`` from all interfaces and remove its pins.

    Nothing happens if the data plane does not exist. Its version and the size of its maps do not matter: the
    programs are found by the map of ports that they use. What an upgrade left that was interrupted is removed
    too. Raises DataPlaneError.
    """
    home = BPFFS / name
    for folder in (home, old_folder(home), next_folder(home)):
        if folder.exists():
            _remove_folder(folder)


def _remove_folder(folder: Path) -> None:
    try:
        with closing(Qdiscs()) as qdiscs:
            for ifindex in _interfaces_of(folder, qdiscs):
                detach_programs(ifindex, qdiscs)
        remove_pins(folder)
    except OSError as error:
        raise DataPlaneError(f"the data plane at {folder} cannot be removed: {error}") from error


def detach_programs(ifindex: int, qdiscs: Qdiscs) -> None:
    """Detach Weir's programs from an interface, and remove its clsact qdisc if no filter is left.

    The interface may be gone. Raises BpfError.
    """
    detach_xdp(ifindex, qdiscs)
    for hook in _HOOKS:
        with _gone_is_fine():
            libbpf.tc_detach(ifindex, hook)
    qdiscs.remove_empty_clsact(ifindex)


def carries_programs(ifindex: int, qdiscs: Qdiscs) -> bool:
    """Whether an interface has Weir's programs for both directions, or is gone. Raises OSError."""
    with _gone_is_fine():
        by_xdp = any(is_named(program, INGRESS_NAME) for program in qdiscs.xdp(ifindex).values())
        ingress = libbpf.tc_program(ifindex, libbpf.TC_INGRESS)
        by_tc = ingress != 0 and is_named(ingress, INGRESS_TC_NAME)
        return (by_xdp or by_tc) and libbpf.tc_program(ifindex, libbpf.TC_EGRESS) != 0
    return True


def detach_xdp(ifindex: int, qdiscs: Qdiscs) -> None:
    """Detach Weir's XDP program from an interface, if there is one. Raises BpfError."""
    with _gone_is_fine():
        for mode, program in qdiscs.xdp(ifindex).items():
            if is_named(program, INGRESS_NAME):
                libbpf.xdp_detach(ifindex, mode)


def detach_ingress_tc(ifindex: int) -> None:
    """Detach Weir's program from tc's ingress hook of an interface, if there is one. Raises BpfError."""
    with _gone_is_fine():
        program = libbpf.tc_program(ifindex, libbpf.TC_INGRESS)
        if program and is_named(program, INGRESS_TC_NAME):
            libbpf.tc_detach(ifindex, libbpf.TC_INGRESS)


def is_named(program_id: int, name: str) -> bool:
    """Whether a program has this name, of which the kernel keeps the first characters. Raises BpfError."""
    return libbpf.program_name(program_id) == name[: libbpf.PROGRAM_NAME_MAX]


def remove_pins(folder: Path) -> None:
    """Remove a folder of pins. The kernel frees what only the pins held. Raises OSError."""
    for pin in sorted(folder.iterdir()):
        pin.unlink()
    folder.rmdir()


def _interfaces_of(folder: Path, qdiscs: Qdiscs) -> Iterator[int]:
    """The interfaces with programs that use the folder's map of ports; none if the map does not exist."""
    pin = folder / "ports"
    if not pin.exists():
        return
    ports = libbpf.pinned_map_id(pin)
    maps_of = functools.cache(libbpf.maps_of)
    for ifindex in interfaces():
        if any(ports in maps_of(program) for program in _programs_at(ifindex, qdiscs)):
            yield ifindex


def _programs_at(ifindex: int, qdiscs: Qdiscs) -> list[int]:
    programs = [libbpf.tc_program(ifindex, hook) for hook in _HOOKS]
    with _gone_is_fine():
        programs += qdiscs.xdp(ifindex).values()
    return programs


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    """Ignore errors that mean that the interface, its hook or its program does not exist."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENODEV, errno.ENOENT, errno.EINVAL):
            raise
