"""C for tests: a header of the data plane compiled for the host, so that it can be called; BPF programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from cffi import FFI

from weir_base.paths import PROJECT, build_dir

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


def compiled_bpf(source: str, folder: Path) -> Path:
    """The object file of a BPF program of this folder, which may include the data plane's headers."""
    out = folder / Path(source).with_suffix(".o").name
    options = ("-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror")
    includes = (f"-I{include}" for include in (build_dir(), *INCLUDES))
    subprocess.run(
        ("clang", *options, *includes, "-c", Path(__file__).with_name(source), "-o", out), check=True
    )
    return out
