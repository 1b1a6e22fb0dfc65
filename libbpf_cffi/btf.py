"""BTF, the kernel's description of C types: the fields of a struct, by name. Pure.

Source: Documentation/bpf/btf.rst of the kernel. Only what types of maps need is implemented: integers,
enums, arrays and structs, behind typedefs and qualifiers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = ["BtfError", "Fields", "Types"]

Fields = dict[str, tuple[int, int]]
"""The fields of a struct: path -> (offset, size), in bytes. A path is like ``slots[1].key.ifindex``; an array
of integers is one field."""

_HEADER = struct.Struct("<HBBIIIII")
_MAGIC = 0xEB9F
_TYPE = struct.Struct("<III")
_MEMBER = struct.Struct("<III")
_ARRAY = struct.Struct("<III")
_INT, _ARRAY_KIND, _STRUCT, _UNION, _ENUM, _ENUM64 = 1, 3, 4, 5, 6, 19
_ALIASES = frozenset({8, 9, 10, 11, 18})
"""Typedef, volatile, const, restrict, type tag."""
_BYTES_AFTER = {_INT: 4, _ARRAY_KIND: 12, 14: 4, 17: 4}
_BYTES_PER_MEMBER = {_STRUCT: 12, _UNION: 12, _ENUM: 8, 13: 8, 15: 12, _ENUM64: 12}


class BtfError(ValueError):
    """Bytes that are not BTF, or a type that is not implemented."""


@dataclass(frozen=True, slots=True)
class _Type:
    name: str
    kind: int
    size_or_type: int
    after: bytes


class Types:
    """The types of a BTF object. Raises BtfError if ``data`` is not BTF."""

    def __init__(self, data: bytes) -> None:
        try:
            magic, _, _, header, types_at, types_len, names_at, names_len = _HEADER.unpack_from(data)
            if magic != _MAGIC:
                raise BtfError("not BTF, or of a machine with another byte order")
            self._strings = data[header + names_at : header + names_at + names_len]
            self._types = self._read(data[header + types_at : header + types_at + types_len])
        except (struct.error, ValueError) as error:
            raise BtfError(f"no valid BTF: {error}") from error

    def _read(self, data: bytes) -> list[_Type]:
        found, at = [], 0
        while at < len(data):
            name, info, size_or_type = _TYPE.unpack_from(data, at)
            kind = info >> 24 & 0x1F
            at += _TYPE.size
            after = _BYTES_AFTER.get(kind, 0) + _BYTES_PER_MEMBER.get(kind, 0) * (info & 0xFFFF)
            found.append(_Type(self._name(name), kind, size_or_type, data[at : at + after]))
            at += after
        return found

    def _name(self, at: int) -> str:
        return self._strings[at : self._strings.index(b"\0", at)].decode()

    def named(self, name: str) -> Fields | None:
        """The fields of ``struct name``; None if no struct has this name."""
        for at, one in enumerate(self._types):
            if one.kind == _STRUCT and one.name == name:
                return self.fields(at + 1)
        return None

    def fields(self, number: int) -> Fields:
        """The fields of the type with this number. An integer is one field with the path ""."""
        found: Fields = {}
        self._collect(number, "", 0, found)
        return found

    def _plain(self, number: int) -> _Type:
        for _ in range(len(self._types)):
            if not 0 < number <= len(self._types):
                break
            one = self._types[number - 1]
            if one.kind not in _ALIASES:
                return one
            number = one.size_or_type
        raise BtfError(f"type {number} is not defined")

    def _collect(self, number: int, path: str, offset: int, found: Fields) -> None:
        one = self._plain(number)
        if one.kind in (_INT, _ENUM, _ENUM64):
            found[path] = offset, one.size_or_type
        elif one.kind == _STRUCT:
            for at in range(0, len(one.after), _MEMBER.size):
                name, member, bits = _MEMBER.unpack_from(one.after, at)
                below = f"{path}.{self._name(name)}" if path else self._name(name)
                self._collect(member, below, offset + bits // 8, found)
        elif one.kind == _ARRAY_KIND:
            self._collect_array(one, path, offset, found)
        else:
            raise BtfError(f"{path or one.name}: a type of the kind {one.kind}")

    def _collect_array(self, one: _Type, path: str, offset: int, found: Fields) -> None:
        element, _, count = _ARRAY.unpack(one.after)
        size = self._size(element)
        if self._plain(element).kind == _INT:
            found[path] = offset, size * count
            return
        for index in range(count):
            self._collect(element, f"{path}[{index}]", offset + index * size, found)

    def _size(self, number: int) -> int:
        one = self._plain(number)
        if one.kind == _ARRAY_KIND:
            element, _, count = _ARRAY.unpack(one.after)
            return self._size(element) * int(count)
        return one.size_or_type
