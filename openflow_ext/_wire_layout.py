"""Fixed-size fields <-> bytes: the machinery under wire.py."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from typing import Any

from openflow_ext._wire_types import BadLength, BadValue, Truncated


class Layout:
    """Fixed-size fields in order, written ``name:code`` with struct's codes; ``4x`` is padding.

    ``kinds`` turn a field's integer into its enum, or check it; they raise ValueError.
    """

    def __init__(self, name: str, spec: str, **kinds: Callable[[int], int]) -> None:
        self.name = name
        self._kinds = kinds
        self._fields = [(field, code) for field, _, code in (token.rpartition(":") for token in spec.split())]
        self._struct = struct.Struct("!" + "".join(code for _, code in self._fields))
        self.size = self._struct.size

    def pack(self, **values: Any) -> bytes:
        """The bytes of ``values``; those that the layout does not name are left out."""
        return b"".join(
            self._pack_field(field, code, values[field]) if field else struct.pack(code)
            for field, code in self._fields
        )

    def _pack_field(self, field: str, code: str, value: Any) -> bytes:
        try:
            return struct.pack("!" + code, self._kinds.get(field, _as_is)(value))
        except (struct.error, TypeError, ValueError) as error:
            raise BadValue(f"{self.name}.{field}", f"cannot be {value!r}") from error

    def unpack(self, data: bytes) -> dict[str, Any]:
        """The fields of ``data``, which must be this layout and no more."""
        if len(data) < self.size:
            raise Truncated(f"{self.name}.{self._field_at(len(data))}", f"missing after {len(data)} bytes")
        if len(data) > self.size:
            raise BadLength(self.name, f"{len(data)} bytes instead of {self.size}")
        names = (field for field, _ in self._fields if field)
        values: dict[str, Any] = dict(zip(names, self._struct.unpack(data), strict=True))
        for field, kind in self._kinds.items():
            try:
                values[field] = kind(values[field])
            except ValueError as error:
                raise BadValue(f"{self.name}.{field}", f"cannot be {values[field]!r}") from error
        return values

    def _field_at(self, size: int) -> str:
        """The first field that ``size`` bytes do not hold whole."""
        ends = itertools.accumulate(struct.calcsize("!" + code) for _, code in self._fields)
        return next(
            field or "padding" for (field, _), end in zip(self._fields, ends, strict=True) if end > size
        )


def _as_is(value: int) -> int:
    return value


def positive(value: int) -> int:
    if value < 1:
        raise ValueError(value)
    return value
