"""The command `weir lab`, as the tests run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from mininet_topos.machine.programs import wait_until

WEIR = str(Path(sys.executable).with_name("weir"))
BOUND_S = 400


def lab(*args: str) -> subprocess.CompletedProcess[str]:
    """Run `weir lab` and return how it ended and what it printed."""
    return subprocess.run((WEIR, "lab", *args), capture_output=True, text=True, timeout=BOUND_S, check=False)


def rows_of(folder: Path, name: str, text: str, *options: str) -> dict[str, dict[str, Any]]:
    """Run the experiment ``name`` from its text, and return its rows by scheme. Results are in `out`."""
    path = folder / f"{name}.toml"
    path.write_text(text)
    done = lab("run", str(path), "--out", str(folder / "out"), "--json", *options)
    assert done.returncode == 0, done.stderr
    return {row["scheme"]: row for row in json.loads(done.stdout)}


def wait_for_file(running: subprocess.Popen[str], path: Path) -> bool:
    """Wait until a running lab has written a file, or has ended; return whether the file exists."""
    return wait_until(lambda: path.exists() or running.poll() is not None, BOUND_S) and path.exists()
