"""The C structures of the BPF maps, read from the header that the programs are built from."""

from __future__ import annotations

import re

from cffi import FFI

from openflow_ext.paths import PROJECT

HEADER = PROJECT / "openflow_ext" / "bpf" / "weir_structs.h"

_INTEGERS = """
typedef uint8_t __u8;
typedef uint16_t __u16;
typedef uint32_t __u32;
typedef uint64_t __u64;
"""

# struct bpf_timer is opaque and has this size on every kernel that has it.
_KERNEL = "struct alarm_timer { uint64_t opaque[2]; };"


def _declarations(header: str) -> str:
    """The header without its include guard: what is left is plain C declarations."""
    return re.sub(r"^#(ifndef|endif|define\s+\w+\s*$).*$", "", header, flags=re.MULTILINE)


ffi = FFI()
ffi.cdef(_INTEGERS + _declarations(HEADER.read_text()) + _KERNEL)
constants = ffi.dlopen(None)
