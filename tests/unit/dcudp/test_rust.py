"""The tests of the Rust crates."""

from __future__ import annotations

import os
import subprocess

import pytest

from weir_base.paths import PROJECT, build_dir

MANIFEST = PROJECT / "dcudp" / "rust" / "Cargo.toml"


@pytest.mark.cargo
def test_the_tests_of_the_crates_pass() -> None:
    kinds = ("--workspace", "--lib", "--tests")
    done = subprocess.run(
        ("cargo", "test", "--manifest-path", MANIFEST, "--release", "--locked", "--quiet", *kinds),
        env=os.environ | {"CARGO_TARGET_DIR": str(build_dir() / "cargo")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test result: ok" in done.stdout
