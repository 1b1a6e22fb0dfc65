"""The example controller app, installed beside the project without a change to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from weir_base.paths import PROJECT

EXAMPLE = PROJECT / "examples" / "window_limit"
APPS = ("fabric_app.app", "window_limit_app.app")


def install(folder: Path) -> Path:
    """Installs the example with pip. Returns the folder that a process needs on its module path."""
    source, target = folder / "source", folder / "site-packages"
    shutil.copytree(EXAMPLE, source)  # pip leaves files of its build beside the sources
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", "--target", str(target), str(source)], check=True)
    return target


def environment(target: Path, **more: str) -> dict[str, str]:
    """The environment of a process that sees the installed example."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(target), str(PROJECT))), **more}
