"""Fixed-size binary layouts: named fields to bytes and back."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator
from dataclasses import fields
from enum import IntFlag
from typing import Any

from openflow_ext.wire.errors import BadLength, BadValue, Truncated


class Layout:
    """Fixed-size fields in network byte order.

    ``spec`` lists them as ``name:code`` with the codes of ``struct``; ``4x`` is padding. Padding is zero
    when packed and ignored when unpacked. A keyword argument names a field and gives the function that
    checks its integer or converts it (to an enum, for example). That function raises ValueError.
    ``codes`` maps each field to its code, and ``size`` is the size in bytes.
    """

    def __init__(self, name: str, spec: str, **converters: Callable[[int], int]) -> None:
        self.name = name
        self._converters = converters
        self._fields = [(field, code) for field, _, code in (token.rpartition(":") for token in spec.split())]
        self._names = [field for field, _ in self._fields if field]
        self.codes = {name: code for name, code in self._fields if name}
        self._struct = struct.Struct("!" + "".join(code for _, code in self._fields))
        self.size = self._struct.size

    def pack(self, **values: Any) -> bytes:
        """Pack ``values`` into bytes. Values of other names are ignored. Raises BadValue."""
        return self.pack_row(*[values[name] for name in self._names])

    def pack_fields(self, instance: Any) -> bytes:
        """Pack the fields of a dataclass instance. Raises BadValue."""
        return self.pack(**{field.name: getattr(instance, field.name) for field in fields(instance)})

    def pack_row(self, *row: Any) -> bytes:
        """Pack ``row``, one value per field in the layout's order. Raises BadValue."""
        try:
            return self._struct.pack(*(self._converted(row) if self._converters else row))
        except (struct.error, TypeError, ValueError) as error:
            raise self._first_bad_value(row) from error

    def _converted(self, row: tuple[Any, ...]) -> list[Any]:
        return [
            self._converters.get(name, _unchanged)(value)
            for name, value in zip(self._names, row, strict=True)
        ]

    def _first_bad_value(self, row: tuple[Any, ...]) -> BadValue:
        """The error for the first field of ``row`` that cannot be packed."""
        codes = (code for name, code in self._fields if name)
        for name, code, value in zip(self._names, codes, row, strict=True):
            try:
                struct.pack("!" + code, self._converters.get(name, _unchanged)(value))
            except (struct.error, TypeError, ValueError):
                return BadValue(f"{self.name}.{name}", f"cannot be {value!r}")
        return BadValue(self.name, "cannot be packed")

    def unpack(self, data: bytes) -> dict[str, Any]:
        """Unpack ``data``, which must have exactly this layout's size, into values by name.

        Raises Truncated, BadLength or BadValue.
        """
        if len(data) < self.size:
            raise self._truncated(len(data))
        if len(data) > self.size:
            raise BadLength(self.name, f"{len(data)} bytes instead of {self.size}")
        values: dict[str, Any] = dict(zip(self._names, self._struct.unpack(data), strict=True))
        for field, convert in self._converters.items():
            try:
                values[field] = convert(values[field])
            except ValueError as error:
                raise BadValue(f"{self.name}.{field}", f"cannot be {values[field]!r}") from error
        return values

    def iter_rows(self, data: bytes) -> Iterator[tuple[Any, ...]]:
        """Unpack an array of this layout row by row, without the converters. Raises Truncated."""
        if rest := len(data) % self.size:
            raise self._truncated(rest)
        return self._struct.iter_unpack(data)

    def _truncated(self, size: int) -> Truncated:
        """The error for the first field that does not fit in ``size`` bytes."""
        ends = itertools.accumulate(struct.calcsize("!" + code) for _, code in self._fields)
        field = next(
            field or "padding" for (field, _), end in zip(self._fields, ends, strict=True) if end > size
        )
        return Truncated(f"{self.name}.{field}", f"missing after {size} bytes")


def _unchanged(value: int) -> int:
    return value


def positive(value: int) -> int:
    """Converter of a field that is at least 1."""
    if value < 1:
        raise ValueError(value)
    return value


def thousandth(value: int) -> int:
    """Converter of a field that counts thousandths of the next larger unit: 0 to 999."""
    if not 0 <= value < 1000:
        raise ValueError(value)
    return value


def percentage(value: int) -> int:
    """Converter of a field that holds 0 to 100."""
    if not 0 <= value <= 100:
        raise ValueError(value)
    return value


def bits(flags: type[IntFlag]) -> Callable[[int], int]:
    """Converter of a field that holds ``flags``.

    It refuses negative numbers, which an IntFlag accepts as the complement of a set of flags.
    """

    def converted(value: int) -> int:
        if value < 0:
            raise ValueError(value)
        return flags(value)

    return converted


def flag(value: int) -> bool:
    """Converter of a field that is 0 or 1."""
    if value not in (0, 1):
        raise ValueError(value)
    return bool(value)
