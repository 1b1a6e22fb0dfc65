"""The paths of built files: BPF objects and C programs made by `make bpf`."""

from __future__ import annotations

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


class ArtifactMissing(Exception):
    """A built file is missing. The message names it and states how to build it."""


def build_dir() -> Path:
    """The folder of built files: `$WEIR_BUILD`, else `build/` beside the packages."""
    return Path(os.environ.get("WEIR_BUILD") or PROJECT / "build")


def artifact(name: str) -> Path:
    """The path of the built file `name`, e.g. `artifact("weir.bpf.o")`.

    Raises ArtifactMissing if it has not been built.
    """
    path = build_dir() / name
    if not path.is_file():
        raise ArtifactMissing(f"{path} is missing: build it with `make bpf`, or set WEIR_BUILD")
    return path
