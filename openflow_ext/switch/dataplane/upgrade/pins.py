"""The pins of a data plane at the start of an agent: adopted, moved, refused, or left over by a dead agent.

A move makes the new maps in NAME+next. Before the programs are exchanged the folder NAME is renamed to
NAME+old, and NAME+next to NAME. NAME+old is removed when all its state is moved.
The file system of the pins allows no dot in a name, and the name of a data plane has no plus sign.
"""

from __future__ import annotations

import logging
from pathlib import Path

from libbpf_cffi.libbpf import MapShape
from openflow_ext.switch.dataplane.interface import DataPlaneError
from openflow_ext.switch.dataplane.removal import next_folder, old_folder, remove_pins
from openflow_ext.switch.dataplane.upgrade.layouts import held_layout, missing_maps, pinned_maps, same_maps
from openflow_ext.switch.dataplane.upgrade.move import Move

log = logging.getLogger(__name__)


def settle(folder: Path) -> None:
    """Finish what an agent that was killed during a move left. Raises OSError.

    Before the exchange nothing has changed, and the new maps are removed. After it the new maps hold the
    state, without what the earlier programs did since the last round before the exchange.
    """
    old, new = old_folder(folder), next_folder(folder)
    if old.exists() and not folder.exists():
        new.rename(folder)
    if new.exists():
        remove_pins(new)
    if old.exists():
        log.warning("an upgrade of %s was interrupted: what changed in its last moments is lost", folder)
        remove_pins(old)


def examine(folder: Path, wanted: dict[str, MapShape]) -> Move | None:
    """The move that the pins of a folder need; None if this version can use them, or if there are none.

    ``wanted``: the shapes of this version's maps. Pins without a port, which an agent left that was killed
    at its start, are removed. Nothing else changes. Raises DataPlaneError if state would be lost.
    """
    if not folder.exists():
        return None
    pinned = pinned_maps(folder)
    missing = missing_maps(pinned, wanted)
    if missing and not (folder / "weir_enqueue_link").exists():
        remove_pins(folder)
        return None
    if missing:
        raise DataPlaneError(
            f"the pins at {folder} are incomplete ({', '.join(missing)} missing):"
            f" weir switch --name {folder.name} --discard-state starts without their clamps and counts"
        )
    held = held_layout(folder, pinned)
    return None if same_maps(pinned, held, wanted) else Move(folder, pinned, held)


def exchange(folder: Path) -> None:
    """Put the new maps in the place of the earlier ones. Raises OSError."""
    folder.rename(old_folder(folder))
    next_folder(folder).rename(folder)


def end_links(folder: Path) -> None:
    """End the attachments that are pinned in a folder: without its pin a link is detached. Raises OSError."""
    for pin in folder.glob("*_link"):
        pin.unlink()
