"""A header of the data plane, compiled for the host, so that its arithmetic can be called."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from cffi import FFI

from weir_base.paths import PROJECT

INCLUDES = (PROJECT / "openflow_ext" / "bpf", PROJECT / "transports")


def compiled(header: str, declarations: str, folder: Path) -> tuple[FFI, Any]:
    """The functions and structures of `header` that `declarations` names, as cffi's interface and library."""
    source, library = folder / "header.c", folder / "header.so"
    visible = '__attribute__((visibility("default")))'
    source.write_text(f'#define WEIR_INLINE {visible}\n#include "{header}"\n')
    compiler = shutil.which("cc") or shutil.which("clang") or "cc"
    options = ("-shared", "-fPIC", "-O2", "-Wall", "-Werror", *(f"-I{include}" for include in INCLUDES))
    subprocess.run([compiler, *options, "-o", library, source], check=True)
    ffi = FFI()
    ffi.cdef(declarations)
    return ffi, ffi.dlopen(str(library))
