"""The C structures and constants of the BPF maps, parsed from the header of the programs themselves."""

from __future__ import annotations

import re

from cffi import FFI

from weir_base.paths import PROJECT

HEADER = PROJECT / "openflow_ext" / "bpf" / "weir_structs.h"

_INTEGERS = """
typedef uint8_t __u8;
typedef uint16_t __u16;
typedef uint32_t __u32;
typedef uint64_t __u64;
"""

# struct bpf_timer is opaque. Its size is the same in every kernel since 5.15, which introduced it.
_KERNEL = "struct alarm_timer { uint64_t opaque[2]; };"


def _declarations(header: str) -> str:
    """The header without its include guard and includes, which leaves plain C declarations."""
    return re.sub(r"^#(ifndef|endif|include|define\s+\w+\s*$).*$", "", header, flags=re.MULTILINE)


ffi = FFI()
ffi.cdef(_INTEGERS + _declarations(HEADER.read_text()) + _KERNEL)
constants = ffi.dlopen(None)
