"""The metadata of an experiment: all data for repeating and judging it, for `metadata.json`."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mininet_topos.experiments.experiment import Experiment
from mininet_topos.machine.commands import run
from weir_base.paths import PROJECT

SYSCTLS = ("tcp_available_congestion_control",)
"""Of the machine. The hosts' own settings are in the records of the runs (run.json)."""
DIFF_DIGITS = 9


def _output(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, errors="replace", check=False, cwd=PROJECT)
    except OSError:
        return ""
    return done.stdout.strip()


def version() -> dict[str, Any]:
    """Return the commit of the project's folder, its changed files, and the kernel: what a run measures.

    A commit or a change may come while an experiment runs, and the programs of a scheme start anew for each
    repeat. ``diff`` stands for the changes of tracked files; it is empty if there are none.
    """
    diff = _output("git", "diff", "HEAD")
    return {
        "commit": _output("git", "rev-parse", "HEAD"),
        "changed": _output("git", "status", "--porcelain").splitlines(),
        "diff": hashlib.sha256(diff.encode()).hexdigest()[:DIFF_DIGITS] if diff else "",
        "kernel": platform.release(),
    }


def metadata(experiment: Experiment) -> dict[str, Any]:
    """Return the experiment, the command line, the versions of all software, and the state of the machine."""
    now = version()
    return {
        "experiment": experiment.to_json(),
        "arguments": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "git": {name: now[name] for name in ("commit", "changed")},
        "kernel": now["kernel"],
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "ovs": run("ovs-vswitchd", "--version").splitlines()[0],
        "datapath": "netdev (userspace)",
        "congestion_control": experiment.congestion_control,
        "sysctl": {name: Path(f"/proc/sys/net/ipv4/{name}").read_text().split() for name in SYSCTLS},
        "wmem_default": int(Path("/proc/sys/net/core/wmem_default").read_text()),
        "load_at_start": os.getloadavg(),
    }
