"""The tests of the Rust crates, and their formatting."""

from __future__ import annotations

import os
import subprocess

import pytest

from weir_base.paths import PROJECT, build_dir

pytestmark = pytest.mark.cargo
MANIFEST = PROJECT / "dcudp" / "rust" / "Cargo.toml"


@pytest.mark.parametrize("crate", ["dcudp-net", "dcudp-proto"])
def test_the_tests_of_a_crate_pass(crate: str) -> None:
    argv = (
        "cargo",
        "test",
        "--manifest-path",
        MANIFEST,
        "--release",
        "--locked",
        "--quiet",
        "--package",
        crate,
    )
    done = subprocess.run(
        argv,
        env=os.environ | {"CARGO_TARGET_DIR": str(build_dir() / "cargo")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test result: ok" in done.stdout
