"""Bytes of a record in one layout to bytes in another one. Pure."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from libbpf_cffi.btf import Fields
from openflow_ext.switch.dataplane.upgrade.meanings import Record, Step

_INTEGERS = (1, 2, 4, 8)


class Conversion:
    """The conversion of a record from the fields ``old`` to the fields ``new`` of ``size`` bytes.

    A field is copied by its name. ``steps`` handle the fields that changed otherwise. ``lost``: the paths of
    old fields that the new record cannot hold; padding is none of them.
    """

    def __init__(self, old: Fields, new: Fields, size: int, steps: Sequence[Step] = ()) -> None:
        self._old, self._new, self._size, self._steps = old, new, size, steps
        sizes = {path: length for path, (_, length) in old.items()}
        after = self._read(bytes(max((at + length for at, length in old.values()), default=0)))
        self.lost = sorted(path for path in after if not is_padding(path) and not self._fits(path, sizes))
        self._copied = None if steps or self.lost else _runs(old, new)

    def _fits(self, path: str, sizes: dict[str, int]) -> bool:
        if path not in self._new:
            return False
        if path not in sizes:  # a step has made it
            return True
        was, now = sizes[path], self._new[path][1]
        return was == now or (was < now and now in _INTEGERS)

    def __call__(self, record: bytes) -> bytes:
        """The new record of an old one."""
        made = bytearray(self._size)
        if self._copied is not None:
            for old_at, new_at, length in self._copied:
                made[new_at : new_at + length] = record[old_at : old_at + length]
            return bytes(made)
        for path, value in self._read(record).items():
            if path not in self._new:
                continue
            at, length = self._new[path]
            made[at : at + length] = (
                value if isinstance(value, bytes) else value.to_bytes(length, sys.byteorder)
            )
        return bytes(made)

    def _read(self, record: bytes) -> Record:
        values: Record = {}
        for path, (at, length) in self._old.items():
            held = record[at : at + length]
            values[path] = int.from_bytes(held, sys.byteorder) if length in _INTEGERS else held
        for step in self._steps:
            values = step(values)
        return values


def is_padding(path: str) -> bool:
    """Whether a field is only padding."""
    return path.rpartition(".")[2].startswith("pad")


def _runs(old: Fields, new: Fields) -> list[tuple[int, int, int]] | None:
    """The bytes to copy: (offset in the old record, in the new one, length). None if a field was widened."""
    runs: list[tuple[int, int, int]] = []
    for path, (at, length) in old.items():
        if path not in new:
            continue
        to, size = new[path]
        if size != length:
            return None
        if runs and runs[-1][0] + runs[-1][2] == at and runs[-1][1] + runs[-1][2] == to:
            runs[-1] = (*runs[-1][:2], runs[-1][2] + length)
        else:
            runs.append((at, to, length))
    return runs
