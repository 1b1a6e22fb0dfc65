"""Network, mount and process namespaces for a benchmark: whatever it makes there ends with it."""

from __future__ import annotations

import os
import subprocess
import sys

import click

from weir_base.settings import VARIABLE

_MARK = "WEIR_BENCH_SANDBOX"
_NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private")


def enter() -> None:
    """Run this program again in new namespaces, unless it is in them already. Raises ClickException.

    Its programs have the default settings, not the settings of the services of this machine.
    """
    os.environ.setdefault(VARIABLE, "")
    if os.environ.pop(_MARK, "") == "1":
        for kind, place in (("sysfs", "/sys"), ("bpf", "/sys/fs/bpf"), ("tmpfs", "/run")):
            run("mount", "-t", kind, kind, place)
        os.environ["TMPDIR"] = "/run"  # temporary folders end with the namespaces, even after SIGKILL
        run("ip", "link", "set", "lo", "up")
        return
    if os.geteuid() != 0:
        raise click.ClickException("this benchmark loads BPF programs and needs root: run it with sudo")
    module = getattr(sys.modules["__main__"].__spec__, "name", None)
    if module is None:
        raise click.ClickException("run it as a module from the project's folder: python -m bench.NAME")
    command = ["unshare", *_NAMESPACES, sys.executable, "-m", module, *sys.argv[1:]]
    os.execvpe(command[0], command, os.environ | {_MARK: "1"})  # noqa: S606 - no shell


def run(*command: str) -> str:
    """Run a command and return its output. Raises ClickException with its error."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise click.ClickException(f"{command[0]} is missing: run `make setup`") from error
    if done.returncode:
        raise click.ClickException(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout
