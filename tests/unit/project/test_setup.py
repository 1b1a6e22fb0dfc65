"""The scripts of `make setup`: which packages they ask for, and which settings of the kernel they raise."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from weir_base.paths import PROJECT

LISTS = " 500 http://deb.example/debian stable/main amd64 Packages\n"
STATUS = " 100 /var/lib/dpkg/status\n"
CHROMIUM = ("chromium", "chromedriver")


def as_user_without_chromium(folder: Path, lists: str, candidate: str) -> dict[str, str]:
    """The environment of an ordinary user of a machine that lacks Chromium. ``candidate``: apt's version."""
    for program in Path("/usr/bin").iterdir():
        if program.name not in CHROMIUM:
            (folder / program.name).symlink_to(program)
    stubs = {
        "id": "echo 1000",
        "apt-cache": f"if [ $# -eq 1 ]; then printf '{lists}'; else echo '  Candidate: {candidate}'; fi",
    }
    for name, body in stubs.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    return {"PATH": str(folder)}


@pytest.mark.parametrize(
    ("lists", "candidate", "asks"),
    [
        pytest.param(STATUS + LISTS, "(none)", False, id="Ubuntu"),
        pytest.param(STATUS + LISTS, "1:130.0-1", True, id="Debian"),
        pytest.param(STATUS, "(none)", True, id="before apt-get update"),
    ],
)
def test_chromium_is_asked_for_if_it_can_be_a_package(
    tmp_path: Path, lists: str, candidate: str, asks: bool
) -> None:
    env = as_user_without_chromium(tmp_path, lists.replace("\n", "\\n"), candidate)
    done = subprocess.run(
        [str(PROJECT / "tools" / "packages.sh")], env=env, capture_output=True, text=True, check=False
    )
    assert ("chromium-driver" in done.stderr) == asks, done.stderr
    assert done.stdout == ""
    if done.returncode:
        assert "only root can install them" in done.stderr


@pytest.mark.parametrize(("before", "after"), [("212992", "16777216"), ("33554432", "33554432")])
def test_a_larger_buffer_stays(tmp_path: Path, before: str, after: str) -> None:
    files = [tmp_path / "wmem_max", tmp_path / "wmem_default"]
    files[0].write_text(f"{before}\n")
    files[1].write_text("4096\n")
    script = '. "$1"; raise_to 16777216 "${@:2}"'
    lib = str(PROJECT / "tools" / "lib.sh")
    subprocess.run(["bash", "-euo", "pipefail", "-c", script, "bash", lib, *map(str, files)], check=True)
    assert [file.read_text().strip() for file in files] == [after, "16777216"]
