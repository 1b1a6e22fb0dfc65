"""dcudp.h, the Python binding and the Rust library describe the same structures."""

from __future__ import annotations

import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from dcudp.events import Kind
from dcudp.native import HEADER, ffi, lib
from dcudp.statistics import ConnectionStatistics, NodeStatistics


def test_kinds_are_those_of_the_header() -> None:
    named = {
        name.removeprefix("DCUDP_"): value for value, name in ffi.typeof("enum dcudp_kind").elements.items()
    }
    assert {kind.name: kind.value for kind in Kind} == named


@pytest.mark.parametrize(
    ("structure", "counters"),
    [("dcudp_statistics", ConnectionStatistics), ("dcudp_node_statistics", NodeStatistics)],
)
def test_counters_are_those_of_the_header(structure: str, counters: type) -> None:
    members = [name for name, _ in ffi.typeof(f"struct {structure}").fields]
    assert sorted(members) == sorted(field.name for field in fields(counters))


@pytest.mark.compiler
def test_a_c_program_may_include_the_header(tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text(
        '#include "dcudp.h"\n'
        f'_Static_assert(sizeof(struct dcudp_event) == {ffi.sizeof("struct dcudp_event")}, "event");\n'
        f'_Static_assert(sizeof(struct dcudp_options) == {ffi.sizeof("struct dcudp_options")}, "options");\n'
        "int main(void) { return DCUDP_ABI - 1; }\n"
    )
    for compiler in (("clang", "-x", "c"), ("clang", "-x", "c++")):
        argv = (*compiler, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", HEADER.parent, source)
        subprocess.run(argv, check=True)


@pytest.mark.cargo
def test_the_library_fits_the_header() -> None:
    assert lib().dcudp_abi() == lib().DCUDP_ABI
