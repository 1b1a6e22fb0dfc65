"""The state of the machine before and after a lab: a lab that has ended must leave nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from mininet_topos.machine.programs import wait_until

STATES = Path("/run/weir")
REMOVAL_S = 30
"""The kernel removes network namespaces some time after their last process has ended."""


def processes_of(folder: Path) -> list[int]:
    """Return the processes that a lab with this result folder has started: their logs are in the folder."""
    found = []
    for fd in Path("/proc").glob("[0-9]*/fd/2"):
        try:
            if fd.readlink().is_relative_to(folder):
                found.append(int(fd.parts[2]))
        except OSError:
            continue
    return found


def _is_host(pid: Path) -> bool:
    """Whether a process is the shell that holds the namespace of a Mininet host."""
    try:
        return b"mininet:" in (pid / "cmdline").read_bytes()
    except OSError:
        return False


def machine() -> dict[str, Any]:
    """Return what a lab could leave behind, except processes."""
    links = {name for name in os.listdir("/sys/class/net") if name.startswith("s") and "-eth" in name}
    list_bridges = ("ovs-vsctl", "list-br")
    bridges = subprocess.run(list_bridges, capture_output=True, text=True, check=True).stdout.split()
    programs = json.loads(subprocess.run(("bpftool", "prog", "-j"), capture_output=True, check=True).stdout)
    return {
        "links": links,
        "bridges": set(bridges),
        "states": set(STATES.glob("*")),
        "folders": set(Path(tempfile.gettempdir()).glob("weir-line-*")),
        "pins": {name for name in os.listdir("/sys/fs/bpf") if name.startswith("lab")},
        "probes": sum(program.get("name") in ("on_enqueue", "on_dequeue") for program in programs),
        "hosts": sum(_is_host(pid) for pid in Path("/proc").glob("[0-9]*")),
    }


def assert_nothing_left(before: dict[str, Any], folder: Path) -> None:
    """Assert that the machine is as it was before the lab, and that none of the lab's processes lives."""
    wait_until(lambda: machine() == before, REMOVAL_S)
    assert machine() == before
    assert processes_of(folder) == []
