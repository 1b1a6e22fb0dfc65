"""libdcudp.so through cffi. `dcudp.h` has the declarations."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from cffi import FFI

from dcudp.errors import DcudpError
from weir_base.paths import artifact

HEADER = Path(__file__).parent / "dcudp.h"
_BEGIN, _END = "/* declarations begin */", "/* declarations end */"
_ERROR_BYTES = 1024


def declarations() -> str:
    """The part of the header that cffi reads."""
    text = HEADER.read_text()
    return text[text.index(_BEGIN) : text.index(_END)]


ffi = FFI()
ffi.cdef(declarations())


@cache
def lib() -> Any:
    """The library. Raises ArtifactMissing if it is not built, DcudpError if it does not fit this package."""
    path = artifact("libdcudp.so")
    loaded = ffi.dlopen(str(path))
    if loaded.dcudp_abi() != loaded.DCUDP_ABI:
        raise DcudpError(f"{path} does not fit this version of the package dcudp: build it with `make bpf`")
    return loaded


def c_string(value: str | Path | None) -> Any:
    """A C string, or NULL. The caller keeps it as long as C uses it. Raises DcudpError for a NUL in it."""
    if value is None:
        return ffi.NULL
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise DcudpError(f"{value!r} holds a NUL character, where a name would end: remove it")
    return ffi.new("char[]", encoded)


class ErrorText:
    """A buffer for the sentence of an error."""

    def __init__(self) -> None:
        self.buffer = ffi.new("char[]", _ERROR_BYTES)
        self.bytes = _ERROR_BYTES

    def __str__(self) -> str:
        return bytes(ffi.string(self.buffer)).decode(errors="replace")
