"""The sources of the BPF programs: each header includes all that it uses, and flags change atomically."""

from __future__ import annotations

import re
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


def test_flags_of_flows_change_atomically() -> None:
    """Two CPUs may handle segments of one flow at the same time."""
    stores = re.compile(r"\bflow->(flags|member)\s*([|&^+-]?=)(?!=)")
    found = [
        f"{source.name}:{number}"
        for source in sorted((PROJECT / "openflow_ext" / "bpf").glob("*.[ch]"))
        for number, line in enumerate(source.read_text().splitlines(), 1)
        if stores.search(line)
    ]
    assert not found, "use weir_flow_bits.h"
