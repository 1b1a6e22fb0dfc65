"""The kernel's description of types, read by the names of fields."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libbpf_cffi.btf import BtfError, Types

INT, ARRAY, STRUCT, TYPEDEF = 1, 3, 4, 8


class Builder:
    """Builds a BTF object. Each method returns the number of its type."""

    def __init__(self) -> None:
        self.names, self.types, self.count = b"\0", b"", 0

    def name(self, text: str) -> int:
        at = len(self.names)
        self.names += text.encode() + b"\0"
        return at

    def add(self, name: str, kind: int, size_or_type: int, after: bytes = b"", count: int = 0) -> int:
        self.types += struct.pack("<III", self.name(name), kind << 24 | count, size_or_type) + after
        self.count += 1
        return self.count

    def integer(self, name: str, size: int) -> int:
        return self.add(name, INT, size, struct.pack("<I", size * 8))

    def struct(self, name: str, size: int, *members: tuple[str, int, int]) -> int:
        after = b"".join(struct.pack("<III", self.name(n), t, at * 8) for n, t, at in members)
        return self.add(name, STRUCT, size, after, len(members))

    def array(self, element: int, count: int) -> int:
        return self.add("", ARRAY, 0, struct.pack("<III", element, element, count))

    def build(self) -> bytes:
        head = struct.pack(
            "<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(self.types), len(self.types), len(self.names)
        )
        return head + self.types + self.names


def test_fields_have_paths_through_structs_arrays_and_typedefs() -> None:
    btf = Builder()
    u32, u16 = btf.integer("__u32", 4), btf.integer("__u16", 2)
    alias = btf.add("be16", TYPEDEF, u16)
    inner = btf.struct("inner", 8, ("a", u32, 0), ("b", alias, 4))
    outer = btf.struct("outer", 28, ("words", btf.array(u32, 3), 0), ("slots", btf.array(inner, 2), 12))
    types = Types(btf.build())

    assert types.fields(outer) == {
        "words": (0, 12),
        "slots[0].a": (12, 4),
        "slots[0].b": (16, 2),
        "slots[1].a": (20, 4),
        "slots[1].b": (24, 2),
    }
    assert types.named("inner") == {"a": (0, 4), "b": (4, 2)}
    assert types.named("absent") is None
    assert types.fields(u32) == {"": (0, 4)}


def test_a_type_that_refers_to_itself_is_refused() -> None:
    btf = Builder()
    loop = btf.add("loop", TYPEDEF, 1)
    with pytest.raises(BtfError, match="not defined"):
        Types(btf.build()).fields(loop)


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BtfError):
        Types(b"\0\0" + data)
