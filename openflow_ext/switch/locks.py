"""Lock files: at most one agent for each data plane and for each bridge."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from openflow_ext.switch.errors import AgentRuns, SwitchError


def lock_of_data_plane(rundir: Path, name: str) -> Path:
    """The lock file that the agent of the data plane ``name`` holds."""
    return rundir / f"weir.{name}.lock"


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file ``path`` and remove it at the end.

    ``what`` names in the error what the lock protects. Raises AgentRuns if another process holds the lock,
    and SwitchError if the file cannot be opened.
    """
    fd = _take(path, what)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(fd)


def _take(path: Path, what: str) -> int:
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError as error:
            raise SwitchError(f"not root: cannot lock {path}; run with sudo") from error
        except OSError as error:
            raise SwitchError(f"cannot lock {path}: {error.strerror}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise AgentRuns(
                f"another agent already runs for {what}: it holds {path}; stop it first"
            ) from error
        if _is_at(fd, path):
            return fd
        os.close(fd)


def _is_at(fd: int, path: Path) -> bool:
    """Whether ``path`` is still the locked file. A process that releases the lock removes the file."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
