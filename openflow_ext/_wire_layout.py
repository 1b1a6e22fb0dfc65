"""Fixed-size fields <-> bytes: the machinery under wire.py."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator
from enum import IntFlag
from typing import Any

from openflow_ext._wire_errors import BadLength, BadValue, Truncated


class Layout:
    """Fixed-size fields in order, written ``name:code`` with struct's codes; ``4x`` is padding.

    ``kinds`` turn a field's integer into its enum, or check it; they raise ValueError.
    """

    def __init__(self, name: str, spec: str, **kinds: Callable[[int], int]) -> None:
        self.name = name
        self._kinds = kinds
        self._fields = [(field, code) for field, _, code in (token.rpartition(":") for token in spec.split())]
        self._names = [field for field, _ in self._fields if field]
        self._struct = struct.Struct("!" + "".join(code for _, code in self._fields))
        self.size = self._struct.size

    def pack(self, **values: Any) -> bytes:
        """The bytes of ``values``; those that the layout does not name are left out."""
        return self.pack_row(*[values[name] for name in self._names])

    def pack_row(self, *row: Any) -> bytes:
        """The bytes of ``row``, one value for each field."""
        try:
            return self._struct.pack(*(self._checked(row) if self._kinds else row))
        except (struct.error, TypeError, ValueError) as error:
            raise self._culprit(row) from error

    def _checked(self, row: tuple[Any, ...]) -> list[Any]:
        return [self._kinds.get(name, _as_is)(value) for name, value in zip(self._names, row, strict=True)]

    def _culprit(self, row: tuple[Any, ...]) -> BadValue:
        """The error that names the first field of ``row`` that cannot be packed."""
        codes = (code for name, code in self._fields if name)
        for name, code, value in zip(self._names, codes, row, strict=True):
            try:
                struct.pack("!" + code, self._kinds.get(name, _as_is)(value))
            except (struct.error, TypeError, ValueError):
                return BadValue(f"{self.name}.{name}", f"cannot be {value!r}")
        return BadValue(self.name, "cannot be packed")

    def unpack(self, data: bytes) -> dict[str, Any]:
        """The fields of ``data``, which must be this layout and no more."""
        if len(data) < self.size:
            raise self._truncated(len(data))
        if len(data) > self.size:
            raise BadLength(self.name, f"{len(data)} bytes instead of {self.size}")
        values: dict[str, Any] = dict(zip(self._names, self._struct.unpack(data), strict=True))
        for field, kind in self._kinds.items():
            try:
                values[field] = kind(values[field])
            except ValueError as error:
                raise BadValue(f"{self.name}.{field}", f"cannot be {values[field]!r}") from error
        return values

    def iter_rows(self, data: bytes) -> Iterator[tuple[Any, ...]]:
        """The fields of each of the layouts that ``data`` is; ``kinds`` are not asked."""
        if rest := len(data) % self.size:
            raise self._truncated(rest)
        return self._struct.iter_unpack(data)

    def _truncated(self, size: int) -> Truncated:
        """The error that names the first field that ``size`` bytes do not hold whole."""
        ends = itertools.accumulate(struct.calcsize("!" + code) for _, code in self._fields)
        field = next(
            field or "padding" for (field, _), end in zip(self._fields, ends, strict=True) if end > size
        )
        return Truncated(f"{self.name}.{field}", f"missing after {size} bytes")


def _as_is(value: int) -> int:
    return value


def positive(value: int) -> int:
    if value < 1:
        raise ValueError(value)
    return value


def bits(flags: type[IntFlag]) -> Callable[[int], int]:
    """The kind of a field of ``flags``; they themselves take a negative number for a complement."""

    def checked(value: int) -> int:
        if value < 0:
            raise ValueError(value)
        return flags(value)

    return checked


def flag(value: int) -> bool:
    if value not in (0, 1):
        raise ValueError(value)
    return bool(value)
