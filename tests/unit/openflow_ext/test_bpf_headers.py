"""Each header of the BPF programs includes all that it uses: it compiles alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from weir_base.paths import PROJECT, build_dir

FOLDERS = (PROJECT / "openflow_ext" / "bpf", PROJECT / "transports")
HEADERS = [header for folder in FOLDERS for header in sorted(folder.glob("*.h"))]


@pytest.mark.compiler
@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_header_compiles_alone(header: Path) -> None:
    includes = [f"-I{folder}" for folder in (build_dir(), *FOLDERS)]
    options = ["-x", "c", "-target", "bpf", "-fsyntax-only", "-Wall", "-Werror", "-Wno-unused-function"]
    options.append("-Wno-undefined-internal")  # a control defines what the shared sender declares

    compiled = subprocess.run(
        ["clang", *options, *includes, header], capture_output=True, text=True, check=False
    )

    assert compiled.returncode == 0, compiled.stderr
