"""Command lines: of the machine, of Open vSwitch, of this environment, and of what `make bpf` builds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mininet_topos.errors import LabError, Unable
from weir_base.paths import ArtifactMissing, artifact

ENVIRONMENT_BIN = Path(sys.executable).parent
TIMEOUT_S = 30


def run(*argv: str) -> str:
    """Run a command and return its standard output. Raises LabError with the command's error message."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except FileNotFoundError:
        raise LabError(f"{argv[0]} is missing: install it, or run `make setup`") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"{' '.join(argv)}: no answer within {TIMEOUT_S} s") from None
    if done.returncode:
        raise LabError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def vsctl(*args: str) -> str:
    """Run ovs-vsctl. Raises LabError."""
    return run("ovs-vsctl", "-t", "20", *args)


def command(name: str) -> str:
    """Return the path of a command of this Python environment. Raises LabError."""
    path = ENVIRONMENT_BIN / name
    if not path.exists():
        raise LabError(f"{path} is missing: run `make setup`")
    return str(path)


def built(name: str) -> Path:
    """Return the path of a program or BPF object that `make bpf` builds. Raises Unable."""
    try:
        return artifact(name)
    except ArtifactMissing as missing:
        raise Unable(str(missing)) from None
