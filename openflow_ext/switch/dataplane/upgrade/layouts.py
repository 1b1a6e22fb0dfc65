"""The layout of pinned maps, as the kernel knows it by BTF, compared with that of this version.

A layout is the fields of every key and value, by name. So nobody has to maintain its version number. Only
the meaning of a field can change without a trace: for that there is one number (WEIR_MEANING).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from libbpf_cffi import libbpf
from libbpf_cffi.btf import BtfError, Fields, Types
from libbpf_cffi.libbpf import BpfError, Map, MapShape, PinnedMap
from openflow_ext.switch.dataplane.interface import DataPlaneError
from openflow_ext.switch.dataplane.pinned_maps import KEY_AND_VALUE, PER_CPU
from openflow_ext.switch.dataplane.structs import constants, ffi

MEANING = int(constants.WEIR_MEANING)
_LINK_SUFFIX = "_link"
_LATER = frozenset({"reoffers", "opening_keys"})
"""The maps that the first version with pins did not have."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of the maps' keys and values, by map.

    A map without BTF (a queue, a ring buffer) is not in it. ``meaning``: see WEIR_MEANING.
    """

    keys: dict[str, Fields]
    values: dict[str, Fields]
    meaning: int


def fields_of(c_type: str) -> Fields:
    """The fields of a C type of this version, as libbpf_cffi.btf names them."""
    found: Fields = {}
    _collect(ffi.typeof(c_type), "", 0, found)
    return found


def _collect(c_type: Any, path: str, offset: int, found: Fields) -> None:
    if c_type.kind == "struct":
        for name, field in c_type.fields:
            _collect(field.type, f"{path}.{name}" if path else name, offset + field.offset, found)
    elif c_type.kind == "array" and c_type.item.kind != "primitive":
        for index in range(c_type.length):
            _collect(c_type.item, f"{path}[{index}]", offset + index * ffi.sizeof(c_type.item), found)
    else:
        found[path] = offset, ffi.sizeof(c_type)


@cache
def own_layout() -> Layout:
    """The layout of this version."""
    values = {name: value for name, (_, value) in KEY_AND_VALUE.items()} | PER_CPU
    keys = {name: key for name, (key, _) in KEY_AND_VALUE.items()} | dict.fromkeys(PER_CPU, "__u32")
    queues = {"flow_keys", "opening_keys"}
    return Layout(
        {name: fields_of(key) for name, key in keys.items() if name not in queues},
        {name: fields_of(value) for name, value in values.items() if name not in queues},
        MEANING,
    )


def pinned_maps(folder: Path) -> dict[str, PinnedMap]:
    """The maps that are pinned in a folder. Raises DataPlaneError if anything else is there."""
    found = {}
    try:
        for pin in sorted(folder.iterdir()):
            if not pin.name.endswith(_LINK_SUFFIX):
                found[pin.name] = libbpf.pinned_map(pin)
    except BpfError as error:
        raise DataPlaneError(
            f"{folder} has a pin that Weir did not make ({error}): choose another name with --name,"
            f" or remove {folder}"
        ) from error
    return found


def held_layout(folder: Path, pinned: dict[str, PinnedMap]) -> Layout:
    """The layout of the maps in a folder. Raises DataPlaneError if Weir did not make them."""
    keys, values = {}, {}
    types: dict[int, Types] = {}
    try:
        for name, held in pinned.items():
            if name not in own_layout().values or not held.btf_id:
                continue
            if held.btf_id not in types:
                types[held.btf_id] = Types(libbpf.btf_bytes(held.btf_id))
            keys[name] = types[held.btf_id].fields(held.key_type)
            values[name] = types[held.btf_id].fields(held.value_type)
    except (BtfError, BpfError) as error:
        raise DataPlaneError(
            f"the types of the maps at {folder} cannot be read ({error}):"
            f" weir switch --name {folder.name} --discard-state starts without them"
        ) from error
    return Layout(keys, values, _meaning(folder, pinned, values))


def _meaning(folder: Path, pinned: dict[str, PinnedMap], values: dict[str, Fields]) -> int:
    """The number in the settings. A field of theirs identifies versions that had no number."""
    settings = values.get("settings", {})
    if "meaning" in settings:
        offset, size = settings["meaning"]
        raw = raw_map(folder / "settings", pinned["settings"].shape).values(0, 1)
        if number := int.from_bytes(raw[offset : offset + size], "little"):
            return number
    flow = values.get("other_flows", {})
    return 1 if "counted" in flow else 2 if "out_before_gap" in flow else 3


def raw_map(path: Path, shape: MapShape) -> Map:
    """A pinned map whose keys and values are bytes, because their types belong to another version."""
    types = libbpf.byte_types(shape)
    return Map.pinned(path, types, "struct key", "struct value")


def missing_maps(pinned: dict[str, PinnedMap], wanted: dict[str, MapShape]) -> list[str]:
    """The maps that every version has, but this folder has not."""
    every = wanted.keys() & (KEY_AND_VALUE.keys() | PER_CPU.keys()) - _LATER
    return sorted(every - pinned.keys())


def same_maps(
    pinned: dict[str, PinnedMap], held: Layout, wanted: dict[str, MapShape], own: Layout | None = None
) -> bool:
    """Whether this version can use the maps as they are: the same shapes, fields and meaning."""
    shapes = {name: one.shape for name, one in pinned.items()}
    own = own or own_layout()
    return (
        all(shapes.get(name) == shape for name, shape in wanted.items())
        and held.meaning == own.meaning
        and held.values == own.values
        and held.keys == own.keys
    )
